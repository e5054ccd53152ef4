// SPDX-License-Identifier: MIT
// driver-peers: the driver reports that every GPU can read and write the memory of every other one of its group.
// The report is a claim, not a proof (p2p-bench proves): it can be OK without a mailbox, or with a mapping that will be
// refused; a warning says so where the settings make it likely. If it is negative, its reason leads to the cause.
// "NS" for atomics is normal over BAR1 and no fault. NVML can block in the kernel, so another process queries it,
// with a deadline: p2p-bench, else nvidia-smi, which reports reads only; a machine record has the output of one of
// them. Reads "p2p-bench --driver-peers" or "nvidia-smi topo -p2p r", and /proc/driver/nvidia/version. Reference:
// NVML API Reference Guide, nvmlDeviceGetP2PStatus; nvidia-smi(1), "topo -p2p".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/json_members.hpp"
#include "base/probe.hpp"
#include "base/signatures.hpp"
#include "base/version.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/registry_keys.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/hardware/virtual_machine.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

struct Status {
  std::string_view code;
  std::string_view meaning;
  std::string_view next;
};
constexpr Status kStatuses[] = {
    {"CNS", "chipset not supported: the stock driver supports few",
     "Load a driver patched for P2P: \"p2pctl plan\" tells which. In a virtual machine, give the GPUs one "
     "x-nv-gpudirect-clique on its host instead."},
    {"GNS", "GPU not supported: the stock module is loaded, or BAR1 is smaller than VRAM",
     "Look at the checks nvidia-modules and bar1-size (p2pctl doctor --all), then load the patched modules."},
    {"TNS", "topology not supported: the GPUs are below different root complexes",
     "Load a driver patched for P2P, or move the cards below one root complex."},
    {"DR", "disabled by a registry key",
     "Remove the key from NVreg_RegistryDwords in /etc/modprobe.d; the check module-parameters names it."},
    {"NS", "not supported: this driver has no P2P for these two GPUs",
     "Load a driver patched for P2P; cards of two generations have none."},
    {"U", "the driver does not know", "Look at the kernel log (check kernel-log), then reboot."},
};

/// Row of `code`; the last row for a code that the driver does not have.
const Status& status_of(std::string_view code) {
  const auto found = std::ranges::find(kStatuses, code, &Status::code);
  return found != std::end(kStatuses) ? *found : *std::prev(std::end(kStatuses));
}

std::string code_of(std::string_view word) { return std::string(word == "OK" ? word : status_of(word).code); }

/// Words of a line, without the escape codes that underline them.
std::vector<std::string> words_of(std::string line) {
  for (std::size_t at = line.find("\x1b["); at != std::string::npos; at = line.find("\x1b[", at))
    line.erase(at, line.find('m', at) == std::string::npos ? std::string::npos : line.find('m', at) - at + 1);
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

bool names_gpu(const std::string& word) {
  return word.size() > 3 && word.starts_with("GPU") && word.find_first_not_of("0123456789", 3) == std::string::npos;
}

/// Pairs from nvidia-smi's matrix, without GPUs that take no part. The bus gives the addresses, which it does not
/// print, if their number fits.
Result<nlohmann::json> parse_matrix(const std::string& text, const std::vector<PciDevice>& devices) {
  const std::vector<std::string> taking_part = nvidia_gpus(devices);
  std::vector<std::string> all;
  for (const PciDevice& device : devices)
    if (device.is_nvidia_gpu()) all.push_back(device.address);
  std::vector<std::string> columns;
  auto pairs = nlohmann::json::array();
  std::size_t rows = 0;
  std::istringstream lines(text);
  const auto name = [&](std::size_t i) {
    return taking_part.size() == columns.size() ? taking_part[i] : all.size() == columns.size() ? all[i] : columns[i];
  };
  const auto takes_part = [&](const std::string& gpu) {
    return std::ranges::count(taking_part, gpu) > 0 || std::ranges::count(all, gpu) == 0;
  };
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || !names_gpu(words.front())) continue;
    if (columns.empty()) {
      if (!std::ranges::all_of(words, names_gpu)) break;
      columns = words;
    } else if (words.size() == columns.size() + 1 && rows < columns.size() && words[0] == columns[rows]) {
      for (std::size_t i = 0; i < columns.size(); ++i)
        if (i != rows && takes_part(name(rows)) && takes_part(name(i)))
          pairs.push_back({{"from", name(rows)}, {"to", name(i)}, {"read", code_of(words[i + 1])}});
      ++rows;
    }
  }
  if (columns.empty() || rows != columns.size()) return fail(ErrorCode::invalid, "its matrix of GPUs is incomplete");
  return pairs;
}

/// Ordered pair of GPUs, and the driver's report on it.
struct Pair {
  std::string from, to;
  std::string refusal;  ///< first code of its reads and writes that is not OK; empty: both are
  bool nvlink = false;
};

/// Pairs of an answer; nothing if it is no list of pairs with addresses. A missing answer is "U"; nvidia-smi was asked
/// for reads only.
std::optional<std::vector<Pair>> pairs_of(const nlohmann::json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<Pair> pairs;
  for (const nlohmann::json& one : list) {
    const nlohmann::json &from = field_of(one, "from"), &to = field_of(one, "to");
    if (!from.is_string() || !to.is_string()) return std::nullopt;
    Pair& pair = pairs.emplace_back(Pair{from, to, {}, field_of(one, "nvlink") == "OK"});
    for (const char* way : {"read", "write"}) {
      if (!one.contains(way) && std::string_view(way) == "write") continue;
      const nlohmann::json& word = field_of(one, way);
      const std::string code = code_of(word.is_string() ? word.get<std::string>() : "");
      if (code != "OK" && pair.refusal.empty()) pair.refusal = code;
    }
  }
  return pairs;
}

/// Error of a program without an answer of the driver's library; the next step depends on its output.
Failure no_answer(const std::string& message) {
  const auto known = program_failure(message);
  return fail(
      ErrorCode::command, message,
      known ? known->fix
            : "Look at the checks nvidia-userspace and nvidia-modules: the driver's library must fit its module.");
}

/// {"source", "gpus", "pairs"} from the program that answers; not_found if there is none.
Result<nlohmann::json> ask_driver(const Host& host, const std::vector<PciDevice>& devices) {
  if (const auto answer = driver_answer(host)) {
    const std::string question = driver_question().text();
    const nlohmann::json &gpus = field_of(*answer, "gpus"), &pairs = field_of(*answer, "pairs");
    if (gpus.is_array() && pairs_of(pairs) && !answer->contains("not_available"))
      return nlohmann::json{{"source", question}, {"gpus", gpus}, {"pairs", pairs}};
    const nlohmann::json& why = field_of(*answer, "not_available");
    return no_answer(question + ": " + (why.is_string() ? why.get<std::string>() : "no answer"));
  } else if (answer.error().code != ErrorCode::not_found) {
    return tl::unexpected(answer.error());
  }
  Command smi;
  smi.argv = {"nvidia-smi", "topo", "-p2p", "r"};
  smi.deadline = driver_question().deadline;
  const CommandResult told = TRY(host.run_readonly(smi));
  if (const auto success = require_success(smi, told); !success) return no_answer(success.error().message);
  const nlohmann::json pairs = TRY_IN(smi.text(), parse_matrix(told.output, devices));
  return nlohmann::json{{"source", smi.text()}, {"gpus", nlohmann::json::array()}, {"pairs", pairs}};
}

/// Members of `gpus` without an answer. None if answers have no addresses.
std::vector<std::string> not_driven(const std::vector<std::string>& gpus, const nlohmann::json& told,
                                    const std::vector<Pair>& pairs) {
  std::vector<std::string> missing;
  for (const std::string& gpu : gpus)
    if (std::ranges::none_of(told, [&](const nlohmann::json& one) { return field_of(one, "address") == gpu; }) &&
        std::ranges::find(pairs, gpu, &Pair::from) == pairs.end())
      missing.push_back(gpu);
  return missing.size() == gpus.size() ? std::vector<std::string>() : missing;
}

/// Judges GPUs without an answer. Another driver would not answer for a card that is assigned to a virtual machine,
/// either.
void judge_absence(const Host& host, Finding& finding, const std::vector<std::string>& gpus,
                   const std::vector<std::string>& missing, std::size_t answered, std::size_t expected) {
  std::vector<std::string> named;  // "0000:03:00.0 (nouveau)"
  bool given = false;
  for (const std::string& gpu : missing) {
    const std::string driver = pci_driver(host, gpu);
    named.push_back(fmt::format("{} ({})", gpu, driver.empty() ? "no driver" : driver));
    given = given || driver == "vfio-pci";
  }
  const std::string leave_out =
      gpus.size() < missing.size() + 2
          ? ""
          : fmt::format("; else leave it out: \"gpus: {{exclude: [\"{}\"]}}\" in /etc/p2pd/p2pd.yaml",
                        fmt::join(missing, "\", \""));
  const std::string summary =
      fmt::format("the driver answers for {} of {} ordered pairs: it does not drive ", answered, expected);
  if (missing.empty())
    finding.set(
        Verdict::fail, fmt::format("{}all {} GPUs", summary, gpus.size()),
        "Run nvidia-smi to see which is missing, then look at its driver (check gpu-inventory) and the kernel log.");
  else if (given)
    finding.set(
        Verdict::unknown, fmt::format("{}{}", summary, fmt::join(named, ", ")),
        fmt::format("Take {} out of the guest and away from vfio-pci (modprobe.d, driver_override), and reboot{}.",
                    fmt::join(missing, ", "), leave_out));
  else
    finding.set(
        Verdict::fail, fmt::format("{}{}", summary, fmt::join(named, ", ")),
        fmt::format("Read in the kernel log why the driver does not have {}{}.", fmt::join(missing, ", "), leave_out));
}

std::optional<std::uint32_t> number_of(const Dwords& keys, const std::string& address, const char* key) {
  for (const std::string& name : {device_key(address, key), std::string(key)})
    for (const auto& [known, value] : keys)
      if (known == name) return static_cast<std::uint32_t>(kernel_number(value).value_or(0));
  return std::nullopt;
}

/// Adds a warning for what makes a driver say OK and map nothing: keys in force, chips and BAR1. NVIDIA's own modules
/// say OK to GeForce cards over PCIe only if ForceP2P is set; modules with P2P need no such key.
void doubt_mapping(const Host& host, const std::vector<PciDevice>& devices, const std::vector<Pair>& pairs,
                   Finding& finding) {
  const auto params = nvidia_params(host).value_or(std::map<std::string, std::string>());
  const auto text = [&](std::string_view name) {
    const auto found = params.find(std::string(name));
    return found == params.end() ? std::string() : found->second;
  };
  Dwords keys = parse_dwords(kRegistryDwords, text(kRegistryDwords));
  for (auto& key : parse_dwords(kDeviceDwords, text(kDeviceDwords))) keys.push_back(std::move(key));
  const auto version = parse_version(host.line(kLoadedDriver).value_or(""));
  const std::string release = host.line("/proc/sys/kernel/osrelease").value_or("");
  const bool own = !release.empty() && has_own_modules(host, release);
  for (const Bar1& gpu : bar1_of_gpus(host, devices, told_vram_bytes(host))) {
    const std::string& address = gpu.gpu->address;
    const auto over_pcie = [&](const Pair& pair) { return pair.to == address && !pair.nvlink; };
    if (!version || !gpu.model || !gpu.carries_p2p() || !gpu.range || !gpu.vram_bytes() ||
        std::ranges::none_of(pairs, over_pcie))
      continue;
    const bool patched = own || !number_of(keys, address, "ForceP2P");
    StaticBar1Sizes sizes = static_bar1_sizes(host, gpu);
    sizes.bar1 = gpu.range->length;
    const PeerPath path =
        likely_path({static_cast<int>(version->front()), patched, gpu.model->chip, gpu.model->architecture,
                     number_of(keys, address, "RMForceP2PType"), number_of(keys, address, "RMPcieP2PType"),
                     number_of(keys, address, "RMForceStaticBar1"), sizes});
    if (path.doubt.empty()) continue;
    finding.facts["warnings"].push_back(fmt::format("{}: OK may come without a mapping{}: {}", address,
                                                    patched ? "" : " if these modules are NVIDIA's own", path.doubt));
    return;  // one says enough: the settings are mostly the same for all
  }
}

/// Number of ordered pairs of GPUs that can be peers.
std::size_t expected_pairs(const std::vector<PciDevice>& devices, const std::vector<std::string>& gpus) {
  std::size_t pairs = 0;
  for (const std::string& from : gpus)
    for (const std::string& to : gpus) pairs += from != to && may_be_peers(devices, from, to) ? 1 : 0;
  return pairs;
}

void judge(const Host& host, const std::vector<PciDevice>& devices, const std::vector<Pair>& pairs, Finding& finding) {
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  const std::size_t expected = expected_pairs(devices, gpus);
  std::vector<const Pair*> refused;
  std::size_t answered = 0;
  for (const Pair& pair : pairs) {
    if (!may_be_peers(devices, pair.from, pair.to)) continue;
    ++answered;
    if (!pair.refusal.empty()) refused.push_back(&pair);
  }
  if (answered < expected) {
    judge_absence(host, finding, gpus, not_driven(gpus, finding.facts["gpus"], pairs), answered, expected);
  } else if (refused.empty()) {
    finding.set(Verdict::pass, fmt::format("the driver reports OK for all {} ordered pairs{}", answered,
                                           answered < pairs.size() ? " within the groups of peers" : ""));
  } else {
    const auto& [from, to, code, nvlink] = *refused.front();
    const Status& status = status_of(code);
    const bool guest = virtual_machine(host, devices).guest.value_or(false);
    finding.set(Verdict::fail,
                fmt::format("the driver refuses {} of {} ordered pairs: {} to {} {} ({}){}", refused.size(), answered,
                            from, to, code, status.meaning, guest ? "; this is a virtual machine" : ""),
                std::string(status.next));
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  if (nvidia_gpus(devices).size() < 2) return not_applicable("fewer than two NVIDIA GPUs on the PCI bus");
  if (!host.files().exists("/proc/driver/nvidia/version")) return not_applicable("no NVIDIA driver is loaded");
  auto answer = ask_driver(host, devices);
  if (!answer && !host.live() && answer.error().code == ErrorCode::not_found)
    return not_applicable("this system is not running, and the driver's report on peers was not recorded");
  Finding finding;
  finding.facts = TRY(std::move(answer));
  const std::vector<Pair> pairs = pairs_of(finding.facts["pairs"]).value();
  finding.saw(finding.facts["source"].get<std::string>(), fmt::format("{} ordered pairs", pairs.size()));
  judge(host, devices, pairs, finding);
  if (finding.verdict == Verdict::pass) doubt_mapping(host, devices, pairs, finding);
  return finding;
}

}  // namespace

extern const Probe kDriverPeers = {
    .id = "driver-peers",
    .asserts = "the driver reports that every GPU can read and write the memory of every other one of its group",
    .check = check,
    .asks_driver = true,
    .skip_on_image = true,
};

}  // namespace p2pd
