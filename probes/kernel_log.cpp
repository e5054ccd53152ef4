// SPDX-License-Identifier: MIT
// kernel-log: what the kernel has said since it booted holds no known sign of a failure that stops P2P.
// A page fault of the IOMMU, an Xid, a module that the kernel refused: the log names the gate, mostly long before a
// benchmark does. A sign is a row of config/signatures.yaml; of each the first line is shown, the first in the table
// leads, since causes stand there before their consequences. A fault of a device that is no GPU is a note only, and so
// is what was said before the load of the driver that came last: a swap without a reboot leaves the old one's words.
// Reads /dev/kmsg, which is what is left of this boot; of a machine record dev/kmsg or var/log/kern.log.
// Reference: Documentation/ABI/testing/dev-kmsg of Linux; kernel-open/nvidia/nv.c; the source of each row.
#include <fmt/format.h>

#include <algorithm>

#include "base/boot/kernel_log.hpp"
#include "base/driver/signatures.hpp"
#include "base/hardware/pci.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::size_t kShownBytes = 512;  // of a line, in facts and evidence

/// What of the log matched one row.
struct Match {
  const Signature* signature;
  bool failure;
  std::size_t count = 0;
  std::string_view first;
};

/// "01:00.0" of every NVIDIA GPU; the kernel writes addresses with and without domain.
Result<std::vector<std::string>> gpu_addresses(const Host& host) {
  std::vector<std::string> out;
  for (const PciDevice& device : TRY(pci_devices(host)))
    if (device.vendor_id == kNvidia && device.is_display())
      out.push_back(device.address.substr(device.address.find(':') + 1));
  return out;
}

/// The index of the line with which the last load of the NVIDIA driver that succeeded began; 0 where none is told. It
/// registers NVLink's core first, and names itself when the GPUs are its own: what was wrong with one lies between.
std::size_t load_of_driver(const std::vector<std::string>& lines) {
  std::size_t begun = 0;
  std::size_t loaded = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("Nvlink Core is being initialized") != std::string::npos) begun = i;
    if (lines[i].find("NVRM: loading NVIDIA") != std::string::npos) loaded = begun;
  }
  return loaded;
}

/// The matches of `signature` among `lines`: failures apart from those of other devices and of drivers before `load`.
void look_for(const Signature& signature, const std::vector<std::string>& lines, std::size_t load,
              const std::vector<std::string>& gpus, std::vector<Match>& matches) {
  Match failure{&signature, true, 0, {}};
  Match note{&signature, false, 0, {}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (!signature.matches(line)) continue;
    const bool ours = !signature.gpu_only || std::ranges::any_of(gpus, [&](const std::string& address) {
      return line.find(address) != std::string::npos;
    });
    Match& match = signature.failure && ours && i >= load ? failure : note;
    if (match.count++ == 0) match.first = line;
  }
  for (const Match& match : {failure, note})
    if (match.count != 0) matches.push_back(match);
}

nlohmann::json facts_of(const Match& match) {
  return {{"id", match.signature->id},
          {"lines", match.count},
          {"first_line", match.first.substr(0, kShownBytes)},
          {"cause", match.signature->cause},
          {"fix", match.signature->fix},
          {"source", match.signature->source}};
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<Signature> table = TRY(signatures());
  const KernelLog log = TRY(kernel_log(host));
  const std::vector<std::string> gpus = TRY(gpu_addresses(host));
  const std::size_t load = load_of_driver(log.lines);
  std::vector<Match> matches;
  for (const Signature& signature : table)
    if (signature.log == "kernel") look_for(signature, log.lines, load, gpus, matches);

  Finding finding;
  finding.facts = {{"source", log.source},
                   {"lines", log.lines.size()},
                   {"complete", log.complete},
                   {"failures", nlohmann::json::array()},
                   {"notes", nlohmann::json::array()}};
  const Match* leading = nullptr;
  std::string ids;
  for (const Match& match : matches) {
    finding.facts[match.failure ? "failures" : "notes"].push_back(facts_of(match));
    finding.evidence.push_back({log.source, std::string(match.first.substr(0, kShownBytes))});
    if (!match.failure) continue;
    if (leading == nullptr)
      leading = &match;
    else
      ids += (ids.empty() ? "; also " : ", ") + match.signature->id;
  }
  if (log.lines.empty()) return fail(ErrorCode::invalid, log.source + " is empty: it tells nothing of this boot");
  if (leading != nullptr) {
    finding.verdict = Verdict::fail;
    finding.summary = fmt::format("{}: {}{}", leading->signature->id, leading->signature->cause, ids);
    finding.next = leading->signature->fix;
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.summary =
      fmt::format("no sign of a known failure in {} {}{}", log.lines.size(), log.lines.size() == 1 ? "line" : "lines",
                  log.complete ? "" : "; the log does not reach back to the boot");
  return finding;
}

}  // namespace

extern const Probe kKernelLog;
const Probe kKernelLog = {
    .id = "kernel-log",
    .asserts = "what is left of the kernel's log of this boot holds no known sign of a failure",
    .check = check,
    .of_the_machine = true,
};

}  // namespace p2pd
