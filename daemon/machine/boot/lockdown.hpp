// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

inline constexpr std::string_view kLockdown = "/sys/kernel/security/lockdown";

/// "none", "integrity" or "confidentiality": what root, too, is kept from; "none" where the kernel has no lockdown,
/// nothing where it cannot be told. Reference: kernel_lockdown(7).
Result<std::optional<std::string>> lockdown(const Host& host);

}  // namespace p2pd
