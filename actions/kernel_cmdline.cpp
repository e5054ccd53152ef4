// SPDX-License-Identifier: MIT
// kernel-cmdline: starts the kernel with more arguments, on trial until they are proven.
// P2P over PCIe needs iommu= and pci=disable_acs_redir= at boot, and a wrong argument can keep a host from booting. So
// `apply` only adds a second menu entry (/boot/grub/custom.cfg), `before_reboot` selects it for one boot (grubenv), and
// `commit` makes it the default, unless that boot lost a CPU, memory or a device: a drop-in in /etc/default/grub.d, and
// a new grub.cfg, which is checked before it replaces the old one. /etc/default/grub is never written. An image, which
// is not booted, gets the drop-in at once.
// Reference: GRUB manual, "Simple configuration handling" and "GRUB environment block".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/action.hpp"
#include "base/json_members.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/grub_defaults.hpp"
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

/// Method by which arguments reach the kernel of a host.
enum class Way {
  trial,     ///< running host: one boot first
  generate,  ///< image with GRUB: its grub.cfg at once
  drop_in,   ///< image without GRUB: when its grub.cfg is first generated
};

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

Result<Way> way_of(const Host& host) {
  const bool config = host.files().exists(kGrubConfig);
  if (config && host.has_program("grub-mkconfig")) return host.live() ? Way::trial : Way::generate;
  if (!host.live()) return Way::drop_in;
  return fail(ErrorCode::invalid,
              "this host does not boot with GRUB: " +
                  std::string(config ? "grub-mkconfig is not installed" : "there is no /boot/grub/grub.cfg"),
              "Add the arguments in the form of this host's boot loader (for systemd-boot: /etc/kernel/cmdline), "
              "reboot, then start p2pd again.");
}

/// custom.cfg with the trial entry, not yet checked by GRUB.
Result<std::string> with_trial(const Host& host, const Arguments& arguments) {
  const GrubBoot boot = TRY(read_grub_boot(host, TRY(host.files().read(kGrubConfig))));
  if (!boot.menu.reads_custom)
    return fail(ErrorCode::invalid, "grub.cfg does not read /boot/grub/custom.cfg, where the trial entry would be",
                "Restore /etc/grub.d/41_custom (package grub-common, executable), run update-grub, then try again.");
  if (!boot.menu.one_time)
    return fail(ErrorCode::invalid, "grub.cfg ignores grub-reboot, which picks the trial entry for one boot",
                "Look for `set default=` in /etc/grub.d/40_custom and /boot/grub/custom.cfg: use GRUB_DEFAULT in "
                "/etc/default/grub instead, run update-grub, then try again.");
  TRY_IN("grub.cfg", check_grub_entry(host, boot.entry));
  std::string content = boot.custom.user;
  if (!content.empty() && !content.ends_with('\n')) content += '\n';
  return content + grub_trial(boot.entry, merged_arguments(noted_arguments(boot.custom.trial), arguments));
}

/// Error if GRUB cannot clear its one-time choice at boot, so that the trial would remain the default.
Result<void> require_one_time(const Host& host) {
  constexpr std::array<std::string_view, 8> kReadOnly{"btrfs", "cpiofs",  "newc",  "odc",
                                                      "romfs", "squash4", "tarfs", "zfs"};
  for (const std::string target : {"abstraction", "fs"}) {
    const std::string found = TRY(host.output_of({{"grub-probe", "--target=" + target, "/boot/grub"}, {}, {}}));
    for (const KernelArgument& word : parse_kernel_line(found))
      if (word.key == "lvm" || word.key == "diskfilter" || word.key == "ldm" || word.key.starts_with("mdraid") ||
          std::find(kReadOnly.begin(), kReadOnly.end(), word.key) != kReadOnly.end())
        return fail(ErrorCode::invalid,
                    "/boot/grub is on " + word.key + ", where GRUB cannot write: every boot would be the trial boot",
                    "Add the arguments to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub yourself, run update-grub "
                    "and reboot, or put /boot on a plain partition.");
  }
  return {};
}

/// Adds `arguments` to the drop-in, and through it to grub.cfg.
Result<void> make_default(Host& host, const Arguments& arguments) {
  TRY(require_grub_defaults(host, arguments));
  TRY(host.write(kGrubDropIn, grub_drop_in(arguments)));
  if (grub_entry_has(TRY(read_grub_boot(host, TRY(host.files().read(kGrubConfig)))).entry, arguments)) return {};
  return renew_grub_config(host, [&](const GrubBoot& boot) -> Result<bool> {
    if (grub_entry_has(boot.entry, arguments)) return true;
    return fail(ErrorCode::invalid,
                "the default entry of a new grub.cfg lacks the arguments of " + std::string(kGrubDropIn),
                "Check whether GRUB_DEFAULT in /etc/default/grub names a recovery entry or one of your own.");
  });
}

Result<Arguments> with_drop_in(const Host& host, const Arguments& arguments) {
  return merged_arguments(TRY(drop_in_arguments(host)), arguments);
}

std::string cost_of(const Arguments& arguments) {
  std::string cost;
  for (const std::string& text : arguments) {
    const KernelArgument argument = kernel_argument(text);
    const bool translation = argument.key == "iommu" || argument.key == "intel_iommu" || argument.key == "amd_iommu";
    if (translation && (argument.value == "pt" || argument.value == "off"))
      cost += text + ": every device can read and write all of this host's memory; ";
    if (argument.key == "pci" && argument.value.value_or("").find("acs") != std::string::npos)
      cost += "pci=disable_acs_redir: pass no device below these ports to a guest; ";
  }
  if (!cost.empty()) cost.resize(cost.size() - 2);
  return cost;
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Arguments wanted = TRY(arguments_of(host, parameters));
  const Way way = TRY(way_of(host));
  Arguments lasting = TRY(with_drop_in(host, wanted));
  Description description;
  if (!TRY(grub_defaults_keep(host, lasting)))
    description.notes.push_back(
        "the effect of /etc/default on GRUB is known only by running it: apply sources it in sh before anything "
        "changes");
  description.cost = cost_of(wanted);
  description.summary = way == Way::trial ? "try to boot with" : "boot with";
  for (const std::string& argument : wanted) description.summary += " " + argument;
  if (way == Way::trial) {
    const auto one_time = require_one_time(host);  // only root can check this; "p2pctl plan" need not run as root
    if (!one_time && one_time.error().code == ErrorCode::invalid) return Failure(one_time.error());
    const std::string custom = TRY(with_trial(host, wanted));
    lasting = merged_arguments(TRY(drop_in_arguments(host)), noted_arguments(TRY(split_grub_custom(custom)).trial));
    description.files.push_back({std::string(kGrubCustom), FileState::Kind::regular, custom});
    description.commands = {"grub-reboot p2pd-trial", "reboot",
                            "grub-mkconfig    # after the proof: its output, checked, becomes /boot/grub/grub.cfg"};
  } else if (way == Way::generate) {
    description.commands = {"grub-mkconfig    # its output, checked, becomes /boot/grub/grub.cfg"};
  }
  description.files.push_back({std::string(kGrubDropIn), FileState::Kind::regular, grub_drop_in(lasting)});
  return description;
}

/// Writes the trial entry, made from the default entry as it is now, once GRUB can read it.
Result<void> write_trial(Host& host, const Arguments& arguments) {
  std::string content = TRY(with_trial(host, arguments));
  if (content == TRY(read_if_any(host, kGrubCustom))) return {};
  TRY(require_one_time(host));
  TRY(check_grub_script(host, "/boot/grub/custom.cfg with the trial entry", content));
  return host.write(kGrubCustom, std::move(content));
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Arguments wanted = TRY(arguments_of(host, parameters));
  const Way way = TRY(way_of(host));
  const Arguments lasting = TRY(with_drop_in(host, wanted));
  TRY(require_grub_defaults(host, lasting));
  if (way == Way::drop_in) return host.write(kGrubDropIn, grub_drop_in(lasting));
  return way == Way::generate ? make_default(host, lasting) : write_trial(host, wanted);
}

/// Entry that grub-reboot has chosen for the next boot; empty: none.
Result<std::string> next_entry(const Host& host) {
  auto environment = parse_grub_environment(TRY(read_if_any(host, kGrubEnvironment)));
  return environment["next_entry"];
}

/// Selects the trial entry for the next boot. It is written again if the default entry has changed since.
Result<void> arm(Host& host, const Arguments& arguments) {
  TRY(require_one_time(host));
  TRY(write_trial(host, arguments));
  if (TRY(next_entry(host)) != kTrialId) {
    TRY(host.will_change(kGrubEnvironment, Restore::generated));
    TRY(host.run({{"grub-reboot", std::string(kTrialId)}, {}, {}}));
    if (TRY(next_entry(host)) != kTrialId)
      return fail(ErrorCode::command, "grub-reboot succeeded, but /boot/grub/grubenv does not name the trial entry",
                  "Run `grub-editenv list` to see what /boot/grub/grubenv has.");
  }
  return host.files().checkpoint("/boot/grub");
}

/// Clears the choice of grub-reboot, and also the empty next_entry that GRUB leaves, which means the same.
Result<void> disarm(Host& host) {
  const auto environment = parse_grub_environment(TRY(read_if_any(host, kGrubEnvironment)));
  const auto chosen = environment.find("next_entry");
  if (chosen == environment.end() || (!chosen->second.empty() && chosen->second != kTrialId)) return {};
  TRY(host.will_change(kGrubEnvironment, Restore::generated));
  TRY(host.run({{"grub-editenv", std::string(kGrubEnvironment), "unset", "next_entry"}, {}, {}}));
  return {};
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
  Result<void> armed = arm(host, TRY(arguments_of(host, parameters)));
  if (!armed) TRY_IN(armed.error().message, disarm(host));
  return armed;
}

/// Makes every argument on trial the default in one step, so that no boot has only some of them.
Result<void> commit(Host& host, const Parameters& parameters) {
  if (TRY(way_of(host)) != Way::trial) return {};
  TRY(has_all(host));
  const GrubCustom custom = TRY(split_grub_custom(TRY(read_if_any(host, kGrubCustom))));
  const Arguments proven = merged_arguments(noted_arguments(custom.trial), wanted_kernel_arguments(parameters));
  TRY(make_default(host, TRY(with_drop_in(host, proven))));
  if (host.files().exists(kEquipment)) TRY(host.remove(kEquipment));
  if (!custom.trial.empty()) TRY(custom.user.empty() ? host.remove(kGrubCustom) : host.write(kGrubCustom, custom.user));
  return host.files().checkpoint("/boot/grub");
}

/// Checks that grub.cfg can be generated without the arguments if it has them, and its old content is not restored.
Result<void> prepare_undo(Host& host, const Parameters& parameters) {
  if (!host.files().exists(kGrubConfig) || !host.has_program("grub-mkconfig")) return {};
  if (host.is_as_left(kGrubConfig)) return {};
  const GrubEntry entry = TRY(read_grub_boot(host, TRY(host.files().read(kGrubConfig)))).entry;
  const Arguments wanted = wanted_kernel_arguments(parameters);
  const bool has_any =
      std::ranges::any_of(wanted, [&](const std::string& one) { return grub_entry_has(entry, {one}); });
  return has_any ? check_grub_generation(host) : Result<void>();
}

/// Generates grub.cfg again if a file generated since the commit still has the arguments. The engine has restored the
/// files.
Result<void> undo(Host& host, const Parameters& parameters) {
  if (host.live()) TRY(disarm(host));
  if (host.files().exists("/boot/grub")) TRY(host.files().checkpoint("/boot/grub"));
  if (!host.files().exists(kGrubConfig) || !host.has_program("grub-mkconfig")) return {};
  const auto kept = drop_in_arguments(host);  // arguments that an earlier run made permanent stay
  const auto has_any = [&, wanted = wanted_kernel_arguments(parameters)](const GrubEntry& entry) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& one) {
      const bool stays = kept && std::find(kept->begin(), kept->end(), one) != kept->end();
      return !stays && grub_entry_has(entry, {one});
    });
  };
  if (!has_any(TRY(read_grub_boot(host, TRY(host.files().read(kGrubConfig)))).entry)) return {};
  return renew_grub_config(host, [&](const GrubBoot& boot) -> Result<bool> {
    return !has_any(boot.entry);  // otherwise they are the user's own
  });
}

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
