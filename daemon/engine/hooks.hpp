// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "base/host.hpp"
#include "engine/journal.hpp"

namespace p2pd {

// Directories of the administrator's programs, below /etc/p2pd/hooks.
inline constexpr std::string_view kBeforeChange = "before-change.d";  ///< before the first change of a run, or revert
inline constexpr std::string_view kAfterReady = "after-ready.d";      ///< a run, or the proof of a boot, ended well
inline constexpr std::string_view kOnFailure = "on-failure.d";        ///< it ended in any other way

/// Checks that everything in a directory of hooks can run: ErrorCode::denied names a program that others than root can
/// change, or that run-parts(8) skips by its name or mode, and the next step. Directories, hidden files, and leftovers
/// of editors and of dpkg are no programs. On an image no hook runs, and nothing is checked.
Result<void> check_hooks(const Host& host, std::string_view directory);

/// Runs the programs in a directory of hooks by run-parts(8), in order, until one fails; 5 minutes for all of them.
/// Their environment has P2PD_RUN, P2PD_PLAN, P2PD_RESULT ("ready", "failed", ...; empty before a change) and
/// P2PD_REASON. Returns false if there are none: the directory is absent or empty, or `host` is an image.
///
/// An Error names the program that failed and what it printed. ErrorCode::denied: others than root can change a
/// program, and nothing was run; or all others ran, and run-parts skipped this one.
Result<bool> run_hooks(Host& host, std::string_view directory, const Run& run);

}  // namespace p2pd
