// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/version.hpp"

namespace p2pd {

/// What became of building a release for one kernel.
struct KernelTrial {
  std::string release;  ///< "570.211.01"
  std::string kernel;   ///< "6.12.117"
  Version version;
  std::vector<std::string> rules;  ///< compat rules without which it fails
  std::string failure;             ///< the first error; empty: it builds
};

/// config/kernel-table.yaml, compiled in: releases to their trials, oldest kernel first.
using KernelTable = std::map<Version, std::vector<KernelTrial>>;
Result<KernelTable> parse_kernel_table(std::string_view json);
Result<KernelTable> kernel_table();

/// What the table lets expect of building a release for a kernel.
struct KernelOutlook {
  enum class Kind { builds, untried, fails } kind = Kind::untried;
  std::string reason;  ///< for a person; empty where it builds
};

/// Of `release` ("570.211.01") on `kernel` ("6.14.0-27-generic"), which was built, lies between two that were, or past
/// one that failed. A release that nobody built is told from the nearest of its branch, where what that was built with is
/// among the compat rules of this one, `compat`.
KernelOutlook kernel_outlook(const KernelTable& table, const Version& release, std::string_view kernel, const std::vector<std::string>& compat = {});

/// The first line of Linux ("7.2") that `release` is known not to build for; empty: none.
Version fails_from(const KernelTable& table, const Version& release);

/// Major and minor of a kernel's release; empty where it does not start with them.
Version mainline_of(std::string_view kernel);

}  // namespace p2pd
