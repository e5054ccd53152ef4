// SPDX-License-Identifier: MIT
// iommu: no IOMMU of this system translates the addresses that the GPUs use.
// GPUs address each other by bus address; IOMMU translation causes faults, or zeros at full speed.
// The kernel reports the state as the type of each GPU's group: DMA and DMA-FQ translate, identity does not.
// Passthrough mode (iommu=pt) only ends the translation: ACS redirect remains. VFIO needs the IOMMU, for guests only.
// Reads configuration space, sysfs iommu_group/type, /proc/cmdline, /proc/cpuinfo.
// Reference: Documentation/ABI/testing/sysfs-kernel-iommu_groups of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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

struct Gpu {
  std::string address;
  std::string driver;  ///< empty: none
  std::string group;   ///< empty: none
  std::string domain;  ///< type of the group: "identity", "DMA-FQ"; empty without a group
  bool translates = false;
};

Result<Gpu> look_at(const Host& host, const std::string& address) {
  const std::string directory = sysfs_path(address);
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

/// IOMMU of a system, and its users.
struct Iommu {
  std::vector<Gpu> gpus;
  std::vector<std::string> vfio;  ///< addresses of devices that are bound to vfio-pci
  std::vector<KernelArgument> line;
  bool guest = false;
  std::optional<std::int64_t> cpus_that_need_it;

  /// "2 CPUs have an APIC ID of 255 or more, and start only with it"; empty if it can be off.
  std::string cpus_lost() const {
    const std::int64_t cpus = cpus_that_need_it.value_or(0);
    return cpus == 0 ? "" : fmt::format("{} CPUs have an APIC ID of 255 or more, and start only with it", cpus);
  }
};

Result<Iommu> look_at(const Host& host) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  Iommu iommu;
  for (const PciDevice& device : devices) {
    if (pci_driver(host, device.address) == "vfio-pci") iommu.vfio.push_back(device.address);
    if (device.takes_part()) iommu.gpus.push_back(TRY(look_at(host, device.address)));
  }
  iommu.line = parse_kernel_line(host.line("/proc/cmdline").value_or(""));
  iommu.guest = virtual_machine(host, devices).guest.value_or(false);
  iommu.cpus_that_need_it = cpus_that_need_iommu(host);
  return iommu;
}

/// Arguments of the running kernel about translation or redirection.
std::string asked(const std::vector<KernelArgument>& line) {
  std::vector<std::string> found;
  for (const KernelArgument& argument : line)
    if (std::ranges::any_of(std::array{"iommu", "intremap", "pcie_acs_override", "vfio"},
                            [&](const char* part) { return argument.key.find(part) != std::string::npos; }))
      found.push_back(argument.text());
  return found.empty() ? "nothing about the IOMMU" : fmt::format("{}", fmt::join(found, " "));
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

std::string next_step(const Iommu& iommu) {
  constexpr std::string_view kUnreached = "iommu=pt does not reach these GPUs";
  constexpr std::string_view kReasons =
      "look for memory encryption (mem_encrypt=on, a firmware setting), for a port that firmware calls external, and "
      "for a program that set the type of their groups";
  const std::string lost = iommu.cpus_lost();
  if (!passthrough(iommu.line))
    return "Boot with iommu=pt on the kernel command line" + (lost.empty() ? "." : "; not with it off: " + lost + ".");
  if (!iommu.vfio.empty()) return fmt::format("{}, and VFIO needs the IOMMU: {}.", kUnreached, kReasons);
  if (!lost.empty()) return fmt::format("{}, and it cannot be off, since {}: {}.", kUnreached, lost, kReasons);
  return fmt::format(
      "{}: turn the IOMMU off, by intel_iommu=off or amd_iommu=off or in the firmware (VT-d, AMD IOMMU).", kUnreached);
}

void judge(Finding& finding, const Iommu& iommu) {
  std::vector<std::string> translated;
  std::string given;
  std::size_t ours = 0;
  std::size_t grouped = 0;
  for (const Gpu& gpu : iommu.gpus) {
    if (gpu.driver == "vfio-pci") {  // assigned to a guest: translated for it, and no part of P2P here
      given += fmt::format("; {} is bound to vfio-pci, for a guest", gpu.address);
      continue;
    }
    ++ours;
    grouped += gpu.group.empty() ? 0U : 1U;
    if (gpu.translates) translated.push_back(fmt::format("{} ({})", gpu.address, gpu.domain));
  }
  if (!translated.empty())
    finding.set(Verdict::fail, fmt::format("the IOMMU translates for {}", fmt::join(translated, ", ")),
                next_step(iommu));
  else if (ours == 0)
    finding.set(Verdict::not_applicable,
                iommu.gpus.empty() ? "no NVIDIA GPU on the PCI bus" : "every GPU is bound to vfio-pci, for guests");
  else if (grouped == 0 && iommu.guest)
    finding.set(Verdict::not_applicable,
                "this guest has no IOMMU of its own; the host's IOMMU is not visible from here");
  else
    finding.set(Verdict::pass, grouped == 0 ? "no IOMMU is in force" : "the IOMMU is in passthrough mode for the GPUs");
  if (ours != 0) finding.summary += given;
  for (const std::string& text : without_effect(iommu.line)) finding.summary += "; " + text;
}

/// With `absent`, also fails an IOMMU in passthrough mode, if this system does not need it.
void judge_absence(Finding& finding, const Iommu& iommu) {
  const bool grouped = std::ranges::any_of(iommu.gpus, [](const Gpu& gpu) { return !gpu.group.empty(); });
  if (!grouped || finding.verdict == Verdict::not_applicable) return;
  if (const std::string lost = iommu.cpus_lost(); !lost.empty())
    finding.set(Verdict::not_applicable, "the IOMMU stays on: " + lost);
  else if (!iommu.vfio.empty())
    finding.set(Verdict::not_applicable, "VFIO devices need the IOMMU");
  else
    finding.set(Verdict::fail, "an IOMMU is in force",
                "Turn it off, by intel_iommu=off or amd_iommu=off or in the firmware (VT-d, AMD IOMMU).");
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const Iommu iommu = TRY(look_at(host));
  Finding finding;
  finding.facts = {{"cpus_that_need_it", or_null(iommu.cpus_that_need_it)}, {"vfio_devices", iommu.vfio}};
  for (const Gpu& gpu : iommu.gpus) {
    const bool alone = gpu.group.empty();
    finding.facts["gpus"].push_back({{"address", gpu.address},
                                     {"group", or_null(gpu.group)},
                                     {"domain", or_null(gpu.domain)},
                                     {"translates", gpu.translates}});
    finding.saw(sysfs_path(gpu.address, alone ? "iommu_group" : "iommu_group/type"), alone ? "not there" : gpu.domain);
  }
  if (host.line("/proc/cmdline")) finding.saw("/proc/cmdline", asked(iommu.line));
  judge(finding, iommu);
  if (finding.verdict == Verdict::fail && TRY(needs_built_driver(host)))
    finding.danger = "with IOMMU translation, writes between GeForce cards can land anywhere in memory";
  if (parameters.value("absent", false)) judge_absence(finding, iommu);
  return finding;
}

}  // namespace

extern const Probe kIommu = {
    .id = "iommu",
    .asserts = "no IOMMU of this system translates the addresses that the GPUs use",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
