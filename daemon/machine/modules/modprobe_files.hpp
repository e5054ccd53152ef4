// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File that keeps the new modules from being loaded, for a device or by name, until P2P is proven. Of install lines
/// for one module libkmod uses the first, in the order of file names.
inline constexpr std::string_view kTrialBan = "/etc/modprobe.d/00-p2pd-trial.conf";

/// Form of `name` that the kernel compares: '_' for '-'.
std::string kernel_name(std::string_view name);

/// Files of modprobe.d that modprobe reads, in its order: base name to path.
Result<std::map<std::string, std::string>> modprobe_files(const Host& host);

/// Modules of Linux itself that drive NVIDIA GPUs, in the order in which they can be unloaded: Nova, since Linux 7.0,
/// whose PCI driver is called NovaCore, and nouveau.
inline constexpr std::array<std::string_view, 4> kLinuxDrivers = {"nova_drm", "nova", "nova_core", "nouveau"};

/// A module that modprobe.d keeps from being loaded for a device: by `blacklist`, by an `install` line that runs true
/// or false, or by `alias NAME off`.
struct BannedModule {
  std::string module;
  std::string source;  ///< file:line
};
Result<std::vector<BannedModule>> banned_modules(const Host& host);

/// First install line of modprobe.d that libkmod uses for `module`, except those of kTrialBan; nullopt if it
/// loads the module itself.
struct InstallLine {
  std::string command;  ///< command of a shell
  std::string source;   ///< file:line
};
Result<std::optional<InstallLine>> install_line(const Host& host, std::string_view module);

/// A line as libkmod reads it: a backslash joins it with the next, and is removed before anything else.
struct ModprobeLine {
  std::string text;
  int number = 0;  ///< number of its first physical line
};
std::vector<ModprobeLine> modprobe_lines(std::string_view text);

/// Takes the first word off `rest`; blanks are spaces and tabs.
std::string_view take_word(std::string_view& rest);

/// Content of a modprobe.d file; empty if it is masked by a link to /dev/null, or is a dangling link.
Result<std::string> modprobe_content(const Host& host, const std::string& path);

}  // namespace p2pd
