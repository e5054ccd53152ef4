// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/version.hpp"

namespace p2pd {

/// Result of building a release for one kernel.
struct KernelTrial {
  std::string release;  ///< "570.211.01"
  std::string kernel;   ///< "6.12.117"
  Version version;
  std::vector<std::string> rules;  ///< compat rules without which it fails
  std::string failure;             ///< first error; empty: it builds
};

/// config/kernel-table.yaml, compiled in: releases to their trials, oldest kernel first.
using KernelTable = std::map<Version, std::vector<KernelTrial>>;
Result<KernelTable> parse_kernel_table(std::string_view json);
Result<KernelTable> kernel_table();

/// Expected result of building a release for a kernel.
struct KernelOutlook {
  enum class Kind { builds, untried, fails } kind = Kind::untried;
  std::string reason;  ///< reason for a person; empty if it builds
};

/// Outlook of `release` ("570.211.01") on `kernel` ("6.14.0-27-generic"), which was built, is between two that were, or
/// past one that failed. For a release that was not built, the nearest of its branch decides, if the compat rules of
/// its builds are among those of this one, `compat`.
KernelOutlook kernel_outlook(const KernelTable& table, const Version& release, std::string_view kernel,
                             const std::vector<std::string>& compat = {});

/// Release whose builds decide for `release`: itself, or the nearest of its branch; empty: none was built.
std::string tested_release(const KernelTable& table, const Version& release);

/// First line of Linux ("7.2") that `release` is known not to build for; empty: none.
Version fails_from(const KernelTable& table, const Version& release);

/// Major and minor of a kernel's release; empty if it does not start with them.
Version mainline_of(std::string_view kernel);

}  // namespace p2pd
