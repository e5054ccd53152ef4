// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"

namespace p2pd {

/// Reason why apt's lists of packages must be fetched before an installation: there are none, or they are older than
/// a day, and archives answer 404 for packages in them. Empty: they are recent.
std::string stale_lists(const Host& host);

/// Command with which refresh_lists() fetches them.
Command update_command();

/// Fetches apt's lists, in ten minutes at most. Logs a failed source without an Error: the others may suffice. An
/// Error: p2pd must stop.
Result<void> refresh_lists(Host& host, const std::string& why);

/// Checks that apt refuses because its lists name packages that the archives no longer have, or lack a wanted one.
bool blames_lists(const Error& error);

}  // namespace p2pd
