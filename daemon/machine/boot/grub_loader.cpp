// SPDX-License-Identifier: MIT
// GRUB: the trial is a menu entry in /boot/grub/custom.cfg, and a variable of GRUB's environment block, which GRUB
// clears. Permanent arguments are a drop-in in /etc/default/grub.d and a new grub.cfg, which is checked before it
// replaces the old one. /etc/default/grub is never written. An image, which is not booted, gets the drop-in at once.
// Reference: GRUB manual, "Simple configuration handling" and "The GRUB environment block".
#include <algorithm>
#include <array>

#include "machine/boot/boot_loader.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/grub_defaults.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

using Arguments = BootLoader::Arguments;

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
Result<void> append_to_defaults(Host& host, const Arguments& arguments) {
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

Result<void> describe(const Host& host, const Arguments& wanted, Description& description) {
  Arguments lasting = TRY(with_drop_in(host, wanted));
  if (!TRY(grub_defaults_keep(host, lasting)))
    description.notes.push_back(
        "the effect of /etc/default on GRUB is known only by running it: apply sources it in sh before anything "
        "changes");
  if (host.live()) {
    const auto one_time = require_one_time(host);  // only root can check this; "p2pctl plan" need not run as root
    if (!one_time && one_time.error().code == ErrorCode::invalid) return Failure(one_time.error());
    const std::string custom = TRY(with_trial(host, wanted));
    lasting = merged_arguments(TRY(drop_in_arguments(host)), noted_arguments(TRY(split_grub_custom(custom)).trial));
    description.files.push_back({std::string(kGrubCustom), FileState::Kind::regular, custom});
    description.commands = {"grub-reboot p2pd-trial", "reboot",
                            "grub-mkconfig    # after the proof: its output, checked, becomes /boot/grub/grub.cfg"};
  } else if (can_generate_grub_config(host)) {
    description.commands = {"grub-mkconfig    # its output, checked, becomes /boot/grub/grub.cfg"};
  }
  description.files.push_back({std::string(kGrubDropIn), FileState::Kind::regular, grub_drop_in(lasting)});
  return {};
}

/// Makes the trial from the default entry as it is now, once GRUB can read it.
Result<void> renew_trial(Host& host, const Arguments& arguments) {
  std::string content = TRY(with_trial(host, arguments));
  if (content == TRY(read_if_any(host, kGrubCustom))) return {};
  TRY(require_one_time(host));
  TRY(check_grub_script(host, "/boot/grub/custom.cfg with the trial entry", content));
  return host.write(kGrubCustom, std::move(content));
}

Result<void> write_trial(Host& host, const Arguments& arguments) {
  const Arguments lasting = TRY(with_drop_in(host, arguments));
  TRY(require_grub_defaults(host, lasting));
  if (host.live()) return renew_trial(host, arguments);
  return can_generate_grub_config(host) ? append_to_defaults(host, lasting)
                                        : host.write(kGrubDropIn, grub_drop_in(lasting));
}

/// Entry that grub-reboot has chosen for the next boot; empty: none.
Result<std::string> next_entry(const Host& host) {
  auto environment = parse_grub_environment(TRY(read_if_any(host, kGrubEnvironment)));
  return environment["next_entry"];
}

/// Selects the trial entry for the next boot. It is written again if the default entry has changed since.
Result<void> arm(Host& host, const Arguments& arguments) {
  TRY(require_one_time(host));
  TRY(renew_trial(host, arguments));
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

Result<void> make_default(Host& host, const Arguments& arguments) {
  const GrubCustom custom = TRY(split_grub_custom(TRY(read_if_any(host, kGrubCustom))));
  const Arguments proven = merged_arguments(noted_arguments(custom.trial), arguments);
  TRY(append_to_defaults(host, TRY(with_drop_in(host, proven))));
  if (!custom.trial.empty()) TRY(custom.user.empty() ? host.remove(kGrubCustom) : host.write(kGrubCustom, custom.user));
  return host.files().checkpoint("/boot/grub");
}

/// Checks that grub.cfg can be generated without the arguments if it has them, and its old content is not restored.
Result<void> prepare_undo(Host& host, const Arguments& wanted) {
  if (!can_generate_grub_config(host)) return {};
  if (host.is_as_left(kGrubConfig)) return {};
  const GrubEntry entry = TRY(read_grub_boot(host, TRY(host.files().read(kGrubConfig)))).entry;
  const bool has_any =
      std::ranges::any_of(wanted, [&](const std::string& one) { return grub_entry_has(entry, {one}); });
  return has_any ? check_grub_generation(host) : Result<void>();
}

/// Generates grub.cfg again if a file generated since the commit still has the arguments. The engine has restored the
/// files.
Result<void> undo(Host& host, const Arguments& wanted) {
  if (host.live()) TRY(disarm(host));
  if (host.files().exists("/boot/grub")) TRY(host.files().checkpoint("/boot/grub"));
  if (!can_generate_grub_config(host)) return {};
  const auto kept = drop_in_arguments(host);  // arguments that an earlier run made permanent stay
  const auto has_any = [&](const GrubEntry& entry) {
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

extern const BootLoader kGrubLoader = {
    .id = "grub",
    .describe = describe,
    .write_trial = write_trial,
    .arm = arm,
    .disarm = disarm,
    .make_default = make_default,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
