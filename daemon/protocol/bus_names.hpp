// SPDX-License-Identifier: MIT
// Names of the service on the system bus: org.p2pd1(5).
#pragma once

namespace p2pd::bus_names {

inline constexpr const char* kService = "org.p2pd1";
inline constexpr const char* kPath = "/org/p2pd1";
inline constexpr const char* kManager = "org.p2pd1.Manager";

}  // namespace p2pd::bus_names
