// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

inline constexpr std::string_view kLockdown = "/sys/kernel/security/lockdown";

/// Mode that restricts root, too: "none", "integrity" or "confidentiality"; "none" if the kernel has no lockdown,
/// nullopt if it is not known. Reference: kernel_lockdown(7).
Result<std::optional<std::string>> lockdown(const Host& host);

}  // namespace p2pd
