// SPDX-License-Identifier: MIT
#pragma once

#include "base/command.hpp"
#include "machine/catalogue/mirror.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {

/// Builds the modules of `entry`, whose source is staged, for every kernel of wanted_builds() that has none yet: a copy
/// of the source in a scratch directory, the kernel's own compiler, compat headers included if its headers need them.
/// A build gets its name only with five modules of the right kernel; the output of a failed one stays in kLogs. What
/// `mirror` has is taken from there, and nothing is compiled; what is refused is built here, and its record says why.
Result<void> make_builds(Host& host, const Catalogue& all, const CatalogueEntry& entry, const MirrorPlace& mirror = {});

/// Estimated time of one build on this machine.
std::chrono::minutes time_of_build(const Host& host);

/// Command that builds one of them.
Command make_of(const Host& host, const Catalogue& all, const ModuleBuild& build);

}  // namespace p2pd
