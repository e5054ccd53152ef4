// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/mirror.hpp"

namespace p2pd {

/// Mirror to make, in a directory of this machine that a web server serves as it is.
struct MirrorOrder {
  std::string directory;      ///< absolute; made if it is missing
  KeyFile key;                ///< private key that signs
  std::chrono::days valid{};  ///< time until it is stale
};

/// Result of make_mirror().
struct MirrorMade {
  MirrorManifest manifest;
  std::vector<std::string> written;  ///< paths that are new or changed; the others were there already
  std::vector<std::string> skipped;  ///< invalid files of the cache, with reasons
};

/// Copies from the cache of `machine` what another machine takes instead of compiling or fetching: every sound build,
/// and source and runfile of the entries of `all`, as pinned. `here` is this machine.
///
/// Each file appears whole, and the manifest last: a reader in between has the old manifest, and refuses a file that
/// does not match it. Unchanged files of an older manifest of the same key stay listed. ErrorCode::not_found: the cache
/// has nothing. denied: others can write to the directory.
Result<MirrorMade> make_mirror(const Host& machine, const Catalogue& all, Host& here, const MirrorOrder& order);

}  // namespace p2pd
