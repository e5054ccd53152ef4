// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd {

// Keys of NVreg_RegistryDwords. Their values changed at driver 575, and two popular ones do nothing there.

/// Reason why `key`=`value` does not have its intended effect in a driver of this major version; empty: nothing is
/// known against it.
std::string wrong_registry_key(std::string_view key, std::string_view value, int major);

/// Checks for a key whose effect is not confirmed in the source: only for a plan with `experimental: true`.
bool is_experimental_key(std::string_view key);

/// Checks for a key that p2pd knows something about.
bool is_known_key(std::string_view key);

}  // namespace p2pd
