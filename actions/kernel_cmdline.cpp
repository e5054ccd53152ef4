// SPDX-License-Identifier: MIT
// kernel-cmdline: starts the kernel with more arguments, on trial until they are proven.
// P2P over PCIe needs iommu= and pci=disable_acs_redir= at boot, and a wrong argument can keep a host from booting. So
// `apply` only adds a second boot entry, `before_reboot` chooses it for one boot, and `commit` makes its arguments
// permanent, unless that boot lost a CPU, memory or a device. GRUB and systemd-boot do that in machine/boot.
// Reference: Documentation/admin-guide/kernel-parameters.txt of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/action.hpp"
#include "base/json_members.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"arguments", Parameter::Type::strings, true, "kernel arguments to start with, each KEY or KEY=VALUE"},
};

constexpr std::string_view kEquipment = "/var/lib/p2pd/before-trial.json";  // of the last boot that was no trial

using Arguments = std::vector<std::string>;

/// Parameter `arguments`; Error if one of them is not chosen yet, or would keep CPUs from starting.
Result<Arguments> arguments_of(const Host& host, const Parameters& parameters) {
  const Arguments wanted = wanted_kernel_arguments(parameters);
  if (std::ranges::find(wanted, kChosenAcsArgument) != wanted.end())
    return fail(ErrorCode::state, "the ports with ACS redirect were not known when this run began",
                "Start it again: \"sudo p2pctl retry\".");
  const std::int64_t cpus = cpus_that_need_iommu(host).value_or(0);
  if (cpus > 0 && all_in_force({"amd_iommu=off"}, parse_kernel_line(fmt::format("{}", fmt::join(wanted, " ")))))
    return fail(ErrorCode::invalid,
                fmt::format("with amd_iommu=off, {} CPUs do not start: their APIC ID is 255 or more", cpus),
                "Use iommu=pt instead.");
  return wanted;
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Arguments wanted = TRY(arguments_of(host, parameters));
  Description description;
  description.cost = isolation_cost(wanted);
  description.summary = host.live() ? "try to boot with" : "boot with";
  for (const std::string& argument : wanted) description.summary += " " + argument;
  TRY(TRY(boot_loader(host))->describe(host, wanted, description));
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Arguments wanted = TRY(arguments_of(host, parameters));
  return TRY(boot_loader(host))->write_trial(host, wanted);
}

/// Number of online CPUs, MiB of memory, and functions on the PCI bus by their id: what a boot may lose. Virtual
/// functions are left out, since services make them.
nlohmann::json equipment(const Host& host) {
  constexpr std::string_view kTotal = "MemTotal:";
  nlohmann::json found = nlohmann::json::object();
  if (const auto cpus = count_cpus(host.line("/sys/devices/system/cpu/online").value_or(""))) found["CPUs"] = *cpus;
  const std::string memory = host.files().read("/proc/meminfo").value_or("");
  if (memory.starts_with(kTotal)) found["MiB of memory"] = std::atoll(memory.c_str() + kTotal.size()) / 1024;
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>())) {
    if (host.files().exists(sysfs_path(device.address, "physfn"))) continue;
    nlohmann::json& count = found["PCI functions " + device.id()];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  return found;
}

bool is_trial_boot(const Host& host) {
  return all_in_force({std::string(kTrialArgument)}, parse_kernel_line(host.line("/proc/cmdline").value_or("")));
}

/// Error if this trial boot has less than the boot before it.
Result<void> has_all(const Host& host) {
  constexpr std::int64_t kTolerance = 1024;  // MiB: what a kernel keeps of memory differs between boots
  if (!is_trial_boot(host)) return {};
  const nlohmann::json before = parse_json(TRY(read_if_any(host, kEquipment)));
  if (!before.is_object()) return {};
  const nlohmann::json now = equipment(host);
  for (const auto& [name, count] : before.items()) {
    const auto had = json_number<std::int64_t>(count).value_or(0);
    const auto has = json_number<std::int64_t>(now, name.c_str());
    if (has >= had - (name == "MiB of memory" ? kTolerance : 0)) continue;
    return fail(
        ErrorCode::state, fmt::format("with these kernel arguments, this machine has {} of {} {}", has, had, name),
        "Undo them: \"sudo p2pctl revert\". If a device was removed on purpose: reboot, then \"sudo p2pctl retry\".");
  }
  return {};
}

/// Notes what the machine has without the trial, and arms it. The trial may be armed already, since a restart can wait
/// for days: a kernel may be installed or removed meanwhile. A trial that cannot boot is disarmed.
Result<void> before_reboot(Host& host, const Parameters& parameters) {
  if (!host.live()) return {};
  if (!is_trial_boot(host)) TRY(host.write(kEquipment, equipment(host).dump() + "\n"));
  const BootLoader* loader = TRY(boot_loader(host));
  Result<void> armed = loader->arm(host, TRY(arguments_of(host, parameters)));
  if (!armed) TRY_IN(armed.error().message, loader->disarm(host));
  return armed;
}

/// Makes every argument on trial the default in one step, so that no boot has only some of them.
Result<void> commit(Host& host, const Parameters& parameters) {
  if (!host.live()) return {};
  TRY(has_all(host));
  TRY(TRY(boot_loader(host))->make_default(host, wanted_kernel_arguments(parameters)));
  return host.files().exists(kEquipment) ? host.remove(kEquipment) : Result<void>();
}

/// Calls one of the two for systemd-boot, which knows itself what was written for it, and for GRUB unless
/// systemd-boot boots this host.
Result<void> for_loaders(Host& host, const Parameters& parameters,
                         Result<void> (*BootLoader::*call)(Host&, const Arguments&)) {
  const Arguments wanted = wanted_kernel_arguments(parameters);
  TRY((kSystemdBoot.*call)(host, wanted));
  return boots_by_systemd_boot(host) ? Result<void>() : (kGrubLoader.*call)(host, wanted);
}

Result<void> prepare_undo(Host& host, const Parameters& parameters) {
  return for_loaders(host, parameters, &BootLoader::prepare_undo);
}

Result<void> undo(Host& host, const Parameters& parameters) { return for_loaders(host, parameters, &BootLoader::undo); }

}  // namespace

extern const Action kKernelCmdlineAction = {
    .id = "kernel-cmdline",
    .topic = "kernel",
    .does = "starts the kernel with the arguments in `arguments`: one trial boot, then by default",
    .parameters = kParameters,
    .effect = Effect::reboot,
    .hazard = true,
    .validate = validate_kernel_arguments,
    .describe = describe,
    .apply = apply,
    .before_reboot = before_reboot,
    .commit = commit,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
