// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {

/// First file in its directory: of several pins that name a package, apt takes the first.
inline constexpr std::string_view kDriverPreferences = "/etc/apt/preferences.d/00p2pd-driver";
inline constexpr std::string_view kDriverBlacklist = "/etc/apt/apt.conf.d/52p2pd-driver";

/// Content of kDriverPreferences: no package of driver_globs() is ever installed. If packages are `kept`, no other
/// version of them is installed, and others of the driver's `version` may be; modules for one kernel are not pinned.
/// apt_preferences(5).
std::string driver_preferences(const std::vector<DpkgPackage>& kept = {}, const std::string& version = {});
/// Content for `host`; `keeps`: its installed driver packages stay.
Result<std::string> driver_preferences(const Host& host, bool keeps);

/// Regular expressions for the same packages, as unattended-upgrades matches names.
std::vector<std::string> driver_expressions(bool keeps = false);

/// Content of kDriverBlacklist.
std::string driver_blacklist(bool keeps = false);

/// Pins of drivers in /etc/apt/preferences that overrule p2pd's file, because apt reads it first: the words of its
/// Package fields.
std::vector<std::string> overruling_pins(const Host& host);

}  // namespace p2pd
