// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {

inline constexpr std::string_view kCompatDropIns = "/etc/p2pd/compat";

/// Text of compat header `name` ("pci-resize-exclude-bars.h"): a file of kCompatDropIns, or one of config/compat, which
/// are compiled in. not_found names both.
Result<std::string> compat_header(const Host& host, std::string_view name);

/// Checks that `rule` applies to the headers of `target`.
Result<bool> applies(const Host& host, const BuildTarget& target, const CompatRule& rule);

/// Names of the rules of `entry` that apply to `target`.
///
/// An Error: a header of the target is not readable, or has a change that no compat header compensates.
Result<std::vector<std::string>> rules_for(const Host& host, const Catalogue& all, const CatalogueEntry& entry,
                                           const BuildTarget& target);

}  // namespace p2pd
