// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/boot/grub_menu.hpp"

namespace p2pd {

inline constexpr std::string_view kGrubConfig = "/boot/grub/grub.cfg";
inline constexpr std::string_view kGrubCustom = "/boot/grub/custom.cfg";
inline constexpr std::string_view kGrubEnvironment = "/boot/grub/grubenv";
inline constexpr std::string_view kGrubDropIn = "/etc/default/grub.d/zz-p2pd.cfg";
inline constexpr std::string_view kTrialId = "p2pd-trial";            ///< of the one-time menu entry
inline constexpr std::string_view kTrialArgument = "p2pd.trial=1";    ///< tells a trial boot from others

/// `argument` for a line of grub.cfg: what GRUB's shell would take for its own is escaped.
std::string grub_quoted(std::string_view argument);

/// The kernel arguments that a file of ours, or our block in custom.cfg, carries.
std::vector<std::string> noted_arguments(std::string_view text);

/// custom.cfg, split into what is the user's and our trial block.
struct GrubCustom {
  std::string user;
  std::string trial;  ///< with its marker lines; empty when there is none
};
Result<GrubCustom> split_grub_custom(std::string_view text);

/// The trial block: `entry` again with those of `arguments` that it lacks, with kTrialId, rebooting by itself after a panic.
std::string grub_trial(const GrubEntry& entry, const std::vector<std::string>& arguments);

/// `arguments` as one piece of a line of grub.cfg.
std::string grub_line(const std::vector<std::string>& arguments);

/// The shell drop-in that appends `arguments` to GRUB_CMDLINE_LINUX_DEFAULT.
std::string grub_drop_in(const std::vector<std::string>& arguments);

/// Arguments of the drop-in of `host`; none when it is absent. ErrorCode::invalid when the file is not ours.
Result<std::vector<std::string>> drop_in_arguments(const Host& host);

}  // namespace p2pd
