// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/action.hpp"

namespace p2pd {

// Packages that a fix installs and its undo removes: those that its own run installed. Each run has a list of its own,
// in a directory beside `list`.

/// Installs packages and their dependencies. The list of the run names all that were not there before:
/// it is written before apt begins, and added to after a kill. Present packages may be upgraded within their own
/// release of the distribution. Fetches apt's lists first if they are stale, and again if apt blames them. An Error
/// names all obstacles, and nothing is installed: a package of a driver, one that would be removed, one that would be
/// changed to another archive's version.
Result<void> bring_packages(Host& host, const std::vector<std::string>& names, std::string_view list);

/// Adds to `description` what bring_packages() would do: commands, and packages to upgrade.
Result<void> describe_bringing(const Host& host, const std::vector<std::string>& names, Description& description);

/// Checks that `list` was written, and not all of it is installed: apt was killed.
Result<bool> bringing_was_interrupted(const Host& host, std::string_view list);

/// "gcc-12 installed" or "libc6 upgraded" for each package in the list of a run, whose path an undo record names.
/// Empty: `path` is not such a list, or it cannot be read.
std::vector<std::string> brought_packages(const Host& host, std::string_view path);

/// Checks that take_brought_packages_away() can succeed once newer changes are undone, without waiting for a lock.
/// Finishes an interrupted dpkg.
Result<void> prepare_taking_away(Host& host, std::string_view list);

/// Removes exactly the packages of `list`, then the list. An Error if others would be removed, too. Can be called
/// again.
Result<void> take_brought_packages_away(Host& host, std::string_view list);

}  // namespace p2pd
