// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// The file that is there while P2P is proven on this boot.
std::string ready_file();

/// What a proof is good for: this machine and boot, these GPUs in these places, these modules.
Result<nlohmann::json> proof_context(const Host& host);

/// Writes the ready file; withdraws it. Neither is recorded: it is no state that undo brings back.
Result<void> announce_ready(Host& host);
Result<void> withdraw_ready(Host& host);

/// False where the last proof was another machine's, of which this one has a copy of the disk.
bool proven_on_this_machine(const Host& host);

/// Whether the ready file is there, and of what `host` is now; the reason where it is not.
Result<void> require_ready(const Host& host);

}  // namespace p2pd
