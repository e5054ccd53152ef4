// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// First in its directory: of several pins that name a package, apt takes the first.
inline constexpr std::string_view kDriverPreferences = "/etc/apt/preferences.d/00p2pd-driver";
inline constexpr std::string_view kDriverBlacklist = "/etc/apt/apt.conf.d/52p2pd-driver";

/// Content of kDriverPreferences: no version of a package of driver_patterns() is ever installed. apt_preferences(5).
std::string driver_preferences();

/// Regular expressions of the same packages, as unattended-upgrades matches names.
std::vector<std::string> driver_expressions();

/// Content of kDriverBlacklist.
std::string driver_blacklist();

/// What of /etc/apt/preferences, which is read before our file, pins drivers otherwise: the words of its Package
/// fields.
std::vector<std::string> overruling_pins(const Host& host);

}  // namespace p2pd
