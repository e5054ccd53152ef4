// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/grub_menu.hpp"

namespace p2pd {

inline constexpr std::string_view kGrubConfig = "/boot/grub/grub.cfg";
inline constexpr std::string_view kGrubCustom = "/boot/grub/custom.cfg";
inline constexpr std::string_view kGrubEnvironment = "/boot/grub/grubenv";
inline constexpr std::string_view kGrubDropIn = "/etc/default/grub.d/zz-p2pd.cfg";
inline constexpr std::string_view kTrialBegin =
    "### BEGIN p2pd trial ###\n";  ///< first line of the block of custom.cfg
inline constexpr std::string_view kTrialEnd = "### END p2pd trial ###\n";
inline constexpr std::string_view kTrialId = "p2pd-trial";  ///< id of the one-time menu entry

/// Quotes `argument` for a line of grub.cfg: escapes what GRUB's shell would interpret.
std::string grub_quoted(std::string_view argument);

/// custom.cfg, split into the user's part and p2pd's trial block.
struct GrubCustom {
  std::string user;
  std::string trial;  ///< block with its marker lines; empty if there is none
};
Result<GrubCustom> split_grub_custom(std::string_view text);

/// Makes the trial block: `entry` again, with those of `arguments` that it lacks and kTrialId; it reboots by itself,
/// into the default entry, after a panic or if its kernel or initrd cannot be loaded.
std::string grub_trial(const GrubEntry& entry, const std::vector<std::string>& arguments);

/// Joins `arguments` into one piece of a line of grub.cfg.
std::string grub_line(const std::vector<std::string>& arguments);

/// Makes the shell drop-in that appends `arguments` to GRUB_CMDLINE_LINUX_DEFAULT.
std::string grub_drop_in(const std::vector<std::string>& arguments);

/// Arguments of the drop-in of `host`; none if it is absent. ErrorCode::invalid if p2pd did not write the file.
Result<std::vector<std::string>> drop_in_arguments(const Host& host);

/// Content of the files under /boot/grub.
struct GrubBoot {
  GrubMenu menu;
  GrubEntry entry;  ///< the default entry
  GrubCustom custom;
};

/// Reads them, with `config` in place of grub.cfg.
Result<GrubBoot> read_grub_boot(const Host& host, std::string_view config);

/// Checks that GRUB can read `content`, which errors call `name`.
Result<void> check_grub_script(const Host& host, std::string_view name, const std::string& content);

/// Checks that there is a grub.cfg and a grub-mkconfig; without, drop-ins wait for the first one.
bool can_generate_grub_config(const Host& host);

/// Checks, without waiting, that renew_grub_config() can succeed: no package is being installed (ErrorCode::busy), and
/// grub-mkconfig makes a file that GRUB can read and that fits into /boot.
Result<void> check_grub_generation(const Host& host);

/// Generates grub.cfg as update-grub does, and replaces it if `wanted` returns true: checked by GRUB, with its kernel
/// and initrd present, renamed in one step.
///
/// Never replaces a file that another program, such as the installation of a kernel, wrote meanwhile by an older view
/// of the machine, but generates it again. ErrorCode::busy if that does not end.
Result<void> renew_grub_config(Host& host, const std::function<Result<bool>(const GrubBoot&)>& wanted);

}  // namespace p2pd
