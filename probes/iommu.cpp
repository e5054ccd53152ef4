// SPDX-License-Identifier: MIT
// iommu: no IOMMU of this system translates the addresses that the GPUs use.
// GPUs address each other by bus address; IOMMU translation causes faults, or zeros at full speed.
// The kernel reports the state as the type of each GPU's group: DMA and DMA-FQ translate, identity does not.
// Passthrough mode (iommu=pt) only ends the translation: ACS redirect remains. VFIO needs the IOMMU, for guests only.
// Reads configuration space, sysfs iommu_group/type, /sys/class/iommu, names of ACPI tables, /proc/cmdline, cpuinfo.
// Reference: Documentation/ABI/testing/sysfs-kernel-iommu_groups of Linux.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json_members.hpp"
#include "base/probe.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/virtual_machine.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"absent", Parameter::Type::boolean, false, "true: no IOMMU may be in force, not even in passthrough mode"},
};
constexpr std::string_view kPci = "/sys/bus/pci/devices/";
constexpr std::string_view kTables = "/sys/firmware/acpi/tables";

using Json = nlohmann::json;

struct Gpu {
  std::string address;
  std::string driver;  ///< empty: none
  std::string group;   ///< empty: none
  std::string domain;  ///< type of the group: "identity", "DMA-FQ"; empty without a group
  bool translates = false;
};

Result<Gpu> look_at(const Host& host, const std::string& address) {
  const std::string directory = std::string(kPci) + address;
  if (!host.files().exists(directory))
    return fail(ErrorCode::not_found, directory + " is missing: the IOMMU of this GPU is not known");
  Gpu gpu{address, pci_driver(host, address), {}, {}, false};
  auto link = host.files().read_link(directory + "/iommu_group");
  if (!link && link.error().code == ErrorCode::not_found) return gpu;
  const std::string target = TRY(std::move(link));
  gpu.group = target.substr(target.rfind('/') + 1);
  gpu.domain = TRY_IN("type of the IOMMU group of " + address, host.line(directory + "/iommu_group/type"));
  gpu.translates = gpu.domain.starts_with("DMA") || gpu.domain == "blocked" || gpu.domain == "unmanaged";
  if (!gpu.translates && gpu.domain != "identity")
    return fail(ErrorCode::invalid,
                fmt::format("IOMMU group {} of {} is of type \"{}\"", gpu.group, address, gpu.domain));
  return gpu;
}

/// Arguments of the running kernel about translation or redirection.
Json asked(const std::vector<KernelArgument>& line, Finding& finding) {
  Json found = Json::array();
  std::string told;
  for (const KernelArgument& argument : line) {
    if (std::ranges::none_of(std::array{"iommu", "intremap", "pcie_acs_override", "vfio"},
                             [&](const char* part) { return argument.key.find(part) != std::string::npos; }))
      continue;
    found.push_back(argument.text());
    told += (told.empty() ? "" : " ") + argument.text();
  }
  finding.evidence.push_back({"/proc/cmdline", told.empty() ? "nothing about the IOMMU" : told});
  return found;
}

bool passthrough(const std::vector<KernelArgument>& line) {
  return std::ranges::any_of(std::array{"iommu=pt", "iommu.passthrough=1"},
                             [&](const char* wanted) { return all_in_force({wanted}, line); });
}

/// Arguments on the command line without effect, with the reason.
std::vector<std::string> without_effect(const std::vector<KernelArgument>& line) {
  std::vector<std::string> found;
  const auto has = [&](const char* text) { return std::ranges::find(line, kernel_argument(text)) != line.end(); };
  if (has("iommu=pt") && has("iommu=nopt") && !passthrough(line))
    found.push_back("of iommu=pt and iommu=nopt the last one counts");
  if (has("amd_iommu=force_isolation") && passthrough(line))
    found.push_back("amd_iommu=force_isolation does not override iommu=pt");
  if (std::ranges::find(line, "pcie_acs_override", &KernelArgument::key) != line.end())
    found.push_back("stock kernels do not know pcie_acs_override, and where it is known it clears no redirection");
  return found;
}

/// ACPI tables that describe an IOMMU; null if the kernel shows no tables.
Json acpi_tables(const Host& host) {
  if (!host.files().exists(kTables)) return nullptr;
  Json found = Json::array();
  for (const std::string name : {"DMAR", "IVRS", "IORT", "VIOT"})
    if (host.files().exists(fmt::format("{}/{}", kTables, name))) found.push_back(name);
  return found;
}

/// True if a process has /dev/kvm or a guest open, by the use count of the module; null if it is not a module.
Json kvm_in_use(const Host& host) {
  for (const std::string module : {"kvm_amd", "kvm_intel"}) {
    const auto count = host.line("/sys/module/" + module + "/refcnt");
    if (count) return *count != "0";
  }
  return nullptr;
}

/// "2 CPUs have an APIC ID of 255 or more, and start only with it"; empty if the IOMMU can be off.
std::string cpus_lost(const Json& facts) {
  const auto cpus = json_number<std::int64_t>(facts["cpus_that_need_it"]).value_or(0);
  return cpus == 0 ? "" : fmt::format("{} CPUs have an APIC ID of 255 or more, and start only with it", cpus);
}

std::string next_step(const Json& facts, bool pt) {
  constexpr std::string_view kUnreached = "iommu=pt does not reach these GPUs";
  constexpr std::string_view kReasons =
      "look for memory encryption (mem_encrypt=on, a firmware setting), for a port that firmware calls external, and "
      "for a program that set the type of their groups";
  const std::string lost = cpus_lost(facts);
  if (!pt)
    return "Boot with iommu=pt on the kernel command line" + (lost.empty() ? "." : "; not with it off: " + lost + ".");
  if (!facts["vfio_devices"].empty()) return fmt::format("{}, and VFIO needs the IOMMU: {}.", kUnreached, kReasons);
  if (!lost.empty()) return fmt::format("{}, and it cannot be off, since {}: {}.", kUnreached, lost, kReasons);
  return fmt::format(
      "{}: turn the IOMMU off, by intel_iommu=off or amd_iommu=off or in the firmware (VT-d, AMD IOMMU).", kUnreached);
}

void judge(Finding& finding, const std::vector<Gpu>& gpus, const VirtualMachine& machine, bool pt) {
  std::string translated;
  std::string given;
  std::size_t ours = 0;
  std::size_t grouped = 0;
  for (const Gpu& gpu : gpus) {
    if (gpu.driver == "vfio-pci") {  // assigned to a guest: translated for it, and no part of P2P here
      given += fmt::format("; {} is bound to vfio-pci, for a guest", gpu.address);
      continue;
    }
    ++ours;
    grouped += gpu.group.empty() ? 0U : 1U;
    if (gpu.translates) translated += fmt::format("{}{} ({})", translated.empty() ? "" : ", ", gpu.address, gpu.domain);
  }
  if (!translated.empty()) {
    finding.verdict = Verdict::fail;
    finding.summary = "the IOMMU translates for " + translated;
    finding.next = next_step(finding.facts, pt);
  } else if (ours == 0) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = gpus.empty() ? "no NVIDIA GPU on the PCI bus" : "every GPU is bound to vfio-pci, for guests";
  } else if (grouped == 0 && machine.guest == true) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "this guest has no IOMMU of its own; the host's IOMMU is not visible from here";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = grouped == 0 ? "no IOMMU is in force" : "the IOMMU is in passthrough mode for the GPUs";
  }
  if (ours != 0) finding.summary += given;
  for (const Json& text : finding.facts["without_effect"]) finding.summary += "; " + text.get<std::string>();
}

/// With `absent`, also fails an IOMMU in passthrough mode, if this system does not need it.
void judge_absence(Finding& finding) {
  const Json& facts = finding.facts;
  const bool grouped = std::ranges::any_of(facts["gpus"], [](const Json& gpu) { return !gpu["group"].is_null(); });
  if (!grouped || finding.verdict == Verdict::not_applicable) return;
  const std::string lost = cpus_lost(facts);
  if (!lost.empty() || !facts["vfio_devices"].empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = lost.empty() ? "VFIO devices need the IOMMU" : "the IOMMU stays on: " + lost;
    return;
  }
  finding.verdict = Verdict::fail;
  finding.summary = "an IOMMU is in force";
  finding.next = "Turn it off, by intel_iommu=off or amd_iommu=off or in the firmware (VT-d, AMD IOMMU).";
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  Finding finding;
  std::vector<Gpu> gpus;
  Json listed = Json::array();
  Json vfio = Json::array();
  for (const PciDevice& device : devices) {
    if (pci_driver(host, device.address) == "vfio-pci") vfio.push_back(device.address);
    if (!device.takes_part()) continue;
    const Gpu gpu = gpus.emplace_back(TRY(look_at(host, device.address)));
    const bool alone = gpu.group.empty();
    listed.push_back({{"address", gpu.address},
                      {"driver", gpu.driver.empty() ? Json() : Json(gpu.driver)},
                      {"group", alone ? Json() : Json(gpu.group)},
                      {"domain", alone ? Json() : Json(gpu.domain)},
                      {"translates", gpu.translates}});
    finding.evidence.push_back(
        {std::string(kPci) + gpu.address + "/iommu_group" + (alone ? "" : "/type"), alone ? "not there" : gpu.domain});
  }
  const VirtualMachine machine = virtual_machine(host, devices);
  const auto cpus = cpus_that_need_iommu(host);
  const auto cmdline = host.line("/proc/cmdline");
  const std::vector<KernelArgument> line = parse_kernel_line(cmdline.value_or(""));
  finding.facts = {{"units", host.names("/sys/class/iommu")},
                   {"acpi_tables", acpi_tables(host)},
                   {"asked", cmdline ? asked(line, finding) : Json()},
                   {"without_effect", without_effect(line)},
                   {"cpus_that_need_it", cpus ? Json(*cpus) : Json()},
                   {"guest", machine.guest ? Json(*machine.guest) : Json()},
                   {"vfio_devices", std::move(vfio)},
                   {"kvm_in_use", kvm_in_use(host)},
                   {"gpus", std::move(listed)}};
  judge(finding, gpus, machine, passthrough(line));
  if (finding.verdict == Verdict::fail && TRY(needs_built_driver(host)))
    finding.danger = "with IOMMU translation, writes between GeForce cards can land anywhere in memory";
  if (parameters.value("absent", false)) judge_absence(finding);
  return finding;
}

}  // namespace

extern const Probe kIommu;
const Probe kIommu = {
    .id = "iommu",
    .asserts = "no IOMMU of this system translates the addresses that the GPUs use",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
