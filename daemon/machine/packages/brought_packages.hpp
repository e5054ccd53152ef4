// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/action.hpp"

namespace p2pd {

// Packages that a fix brings, and its undo takes away: those that its own run brought. Each run has a list of its own, in a directory
// beside `list`.

/// Installs packages and what they need, of all of which the list names what was not there before:
/// written before apt begins, and added to after a kill. What is there may be upgraded to what its own release of the
/// distribution has now. apt's lists are fetched first where they are stale, and where apt blames them. An Error names
/// all that is in the way, and nothing is installed: a package of a driver, one that would be removed, one that would
/// be changed to what another archive has.
Result<void> bring_packages(Host& host, const std::vector<std::string>& names, std::string_view list);

/// Adds to `description` what bring_packages() would do: commands, and what it would upgrade.
Result<void> describe_bringing(const Host& host, const std::vector<std::string>& names, Description& description);

/// True where `list` was written, and not all of it is installed: apt was killed.
Result<bool> bringing_was_interrupted(const Host& host, std::string_view list);

/// Takes away exactly what `list` names, then the list. An Error where others would go, too. Can be called again.
Result<void> take_brought_packages_away(Host& host, std::string_view list);

}  // namespace p2pd
