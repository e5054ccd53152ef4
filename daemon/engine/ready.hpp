// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// What was proven on this boot.
struct Proof {
  bool limited = false;              ///< less than the plan wants
  std::vector<std::string> fit_for;  ///< uses of P2P, "nccl"
};

/// The file that is there while P2P is proven on this boot, and the one where it is fit for less than the plan wants.
std::string ready_file();
std::string limited_file();

/// What a proof is good for: this machine and boot, these GPUs in these places (all but those at the addresses `without`), these
/// modules by srcversion and build id.
Result<nlohmann::json> proof_context(const Host& host, const std::vector<std::string>& without = {});

/// Writes the file that says so, in place of the other; withdraws both. Neither is recorded: it is no state that undo brings
/// back.
Result<void> announce(Host& host, const Proof& proof);
Result<void> withdraw_ready(Host& host);

/// False where the last proof was another machine's, of which this one has a copy of the disk.
bool proven_on_this_machine(const Host& host);

/// Each key of proof_context(), and whether it is no longer as it was when P2P was proven on this boot; an Error where nothing is.
Result<std::map<std::string, bool>> drift_since_proof(const Host& host);

/// What is proven of what `host` is now; the reason where nothing is.
Result<Proof> require_proof(const Host& host);
/// The same, where it is all that the plan wants.
Result<Proof> require_ready(const Host& host);

}  // namespace p2pd
