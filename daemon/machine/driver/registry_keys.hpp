// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd {

// Keys of NVreg_RegistryDwords. Their values changed at driver 575, and two popular ones do nothing there.

/// Why `key`=`value` does not do what it is set for in a driver of this major version; empty: nothing is known against
/// it.
std::string wrong_registry_key(std::string_view key, std::string_view value, int major);

/// True of a key whose effect nobody has shown in the source: only for a plan that says `experimental: true`.
bool is_experimental_key(std::string_view key);

/// True of a key that p2pd knows something about.
bool is_known_key(std::string_view key);

}  // namespace p2pd
