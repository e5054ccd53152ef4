// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/mirror.hpp"

namespace p2pd {

/// Mirror to make, in a directory of this machine that a web server serves as it is.
struct MirrorOrder {
  std::string directory;      ///< absolute; it is made where it is missing
  KeyFile key;                ///< private key that signs
  std::chrono::days valid{};  ///< time until it is stale
};

/// Result of make_mirror().
struct MirrorMade {
  MirrorManifest manifest;
  std::vector<std::string> written;  ///< paths that are new or changed; the others were there already
  std::vector<std::string> skipped;  ///< what is in the cache and not sound, with reasons
};

/// Copies from the cache of `machine` what another machine takes instead of compiling or fetching: every sound build,
/// and source and runfile of the entries of `all`, as pinned. `here` is this machine.
///
/// Each file appears whole, and the manifest last: who reads it in between has the manifest of before, and refuses a
/// file that is no longer the one in there. What an older manifest of the same key lists stays in, if it is unchanged.
/// ErrorCode::not_found: the cache has nothing. denied: others can write to the directory.
Result<MirrorMade> make_mirror(const Host& machine, const Catalogue& all, Host& here, const MirrorOrder& order);

}  // namespace p2pd
