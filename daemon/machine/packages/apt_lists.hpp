// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"

namespace p2pd {

/// Why apt's lists of packages are to be fetched before anything is installed: there are none, or they are older than
/// a day, and archives answer 404 for what they name. Empty: they are recent.
std::string stale_lists(const Host& host);

/// The apt-get with which refresh_lists() fetches them.
Command update_command();

/// Fetches apt's lists, in ten minutes at most. A source that fails is logged and no error: the others may do. An
/// Error: p2pd is to stop.
Result<void> refresh_lists(Host& host, const std::string& why);

/// True where apt's refusal says that the lists name what the archives no longer have, or lack what is asked for.
bool blames_lists(const Error& error);

}  // namespace p2pd
