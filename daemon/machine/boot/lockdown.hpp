// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

inline constexpr std::string_view kLockdown = "/sys/kernel/security/lockdown";
inline constexpr std::string_view kSigEnforce = "/sys/module/module/parameters/sig_enforce";

/// Mode that restricts root, too: "none", "integrity" or "confidentiality"; "none" if the kernel has no lockdown,
/// nullopt if it is not known. Reference: kernel_lockdown(7).
Result<std::optional<std::string>> lockdown(const Host& host);

/// Settings that decide if the running kernel refuses modules without a signature that it trusts; nullopt: not known.
struct ModulePolicy {
  std::optional<bool> secure_boot;
  std::optional<std::string> lockdown;
  std::optional<bool> sig_enforce;
  bool asked = false;  ///< the kernel's arguments tell it to refuse

  std::optional<bool> refuses() const;
};
Result<ModulePolicy> module_policy(const Host& host);

}  // namespace p2pd
