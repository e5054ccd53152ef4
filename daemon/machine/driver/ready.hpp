// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// GPUs between whose every two P2P is proven.
struct ProvenGroup {
  std::string name;                ///< "ada", "all": a label, and the name of a device for containers
  std::vector<std::string> gpus;   ///< PCI addresses
  std::vector<std::string> uuids;  ///< "GPU-...", as far as the driver tells them
};

/// Label of a peer group: "ada" for "Ada", "chip-10de-30" for "chip 10de:30".
std::string group_label(std::string group);

/// Result of a proof on this boot.
struct Proof {
  bool limited = false;                  ///< less than the plan wants
  std::vector<std::string> fit_for;      ///< uses of P2P, "nccl"
  std::string summary = {};              ///< one line with what was measured; empty: not known
  std::vector<std::string> alone = {};   ///< of a proof that was announced: addresses of GPUs without a peer
  std::vector<ProvenGroup> groups = {};  ///< of a proof that was announced, the largest first

  bool is_fit_for(std::string_view use) const { return std::ranges::count(fit_for, use) > 0; }
};

/// True if not every GPU can be the peer of every other, so that programs must be told which to use.
inline bool is_divided(const Proof& proof) { return proof.groups.size() > 1 || !proof.alone.empty(); }

/// File that exists while P2P is proven on this boot, and file that exists while it is proven for less than the plan
/// wants.
std::string ready_file();
std::string limited_file();

/// Context in which a proof is valid: this machine and boot, these GPUs at their places (except those at the addresses
/// `without`), these modules by srcversion and build id.
Result<nlohmann::json> proof_context(const Host& host, const std::vector<std::string>& without = {});

/// `announce` writes the file for `proof` and removes the other one; `withdraw_ready` removes both. The device for
/// containers, kOwnCdi, follows the ready file. None is recorded for undo: the files describe the running boot.
Result<void> announce(Host& host, const Proof& proof);
Result<void> withdraw_ready(Host& host);

/// False if the last proof was on another machine, whose disk was copied to this one.
bool proven_on_this_machine(const Host& host);

/// Keys of proof_context(), true if the value has changed since P2P was proven on this boot; an Error if nothing was
/// proven.
Result<std::map<std::string, bool>> drift_since_proof(const Host& host);

/// Proof that is valid for the current state of `host`; an Error with the reason if there is none.
Result<Proof> require_proof(const Host& host);
/// The same for a proof of all that the plan wants.
Result<Proof> require_ready(const Host& host);

}  // namespace p2pd
