// SPDX-License-Identifier: MIT
// Names of the service on the system bus: org.p2pd1(5).
#pragma once

namespace p2pd::bus_names {

inline constexpr const char* kService = "org.p2pd1";
inline constexpr const char* kPath = "/org/p2pd1";
inline constexpr const char* kManager = "org.p2pd1.Manager";

// actions of polkit
inline constexpr const char* kApply = "org.p2pd1.apply";
inline constexpr const char* kReboot = "org.p2pd1.reboot";
inline constexpr const char* kRevert = "org.p2pd1.revert";

}  // namespace p2pd::bus_names
