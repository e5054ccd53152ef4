// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

// Packages that a fix brings, and its undo takes away.

/// Installs packages and what they need, of all of which `list`, a file of p2pd's own, names what was not there before: written before apt begins, and added to after a kill. An Error, and nothing installed, where apt would
/// also install a package of a driver, remove one, or change one that is there, which no undo takes back.
Result<void> bring_packages(Host& host, const std::vector<std::string>& names, std::string_view list);

/// The command with which bring_packages() has apt install.
Command bring_command(const std::vector<std::string>& names);

/// True where `list` was written, and not all of it is installed: apt was killed.
Result<bool> bringing_was_interrupted(const Host& host, std::string_view list);

/// Takes away exactly what `list` names, then the list. An Error where others would go, too. Can be called again.
Result<void> take_brought_packages_away(Host& host, std::string_view list);

}  // namespace p2pd
