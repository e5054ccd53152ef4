// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "machine/driver/driver_fit.hpp"

namespace p2pd {

/// One driver build with reasons, or the reason why there is none.
struct Choice {
  const CatalogueEntry* entry = nullptr;  ///< entry of the catalogue that was given
  bool already_p2p = false;         ///< the running driver supports P2P between these cards: only the proof is missing
  std::string cause;                ///< id, "mixed-generations", "kernel", ...; empty with an entry or already_p2p
  std::string summary;              ///< one line for a person
  std::string next;                 ///< action for the operator if there is no entry
  std::vector<EntryVerdict> table;  ///< verdicts on every entry, in the catalogue's order
  std::vector<std::string> questions;  ///< facts that could not be found out and could still forbid the entry
  std::vector<std::string> notes;      ///< facts that forbid nothing: known defects, a driver that is lowered
  bool keeps_packages = false;         ///< the entry has the installed packages' version: they stay
  bool needs_dynamic_bar1 = false;     ///< a card has more VRAM than its BAR1 can cover
};

/// Facts that a person should know before `entry` is installed here: a lower driver, known defects, no report, no test
/// build.
std::vector<std::string> notes_on(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

/// Checks that the installed packages can stay with `entry`: only modules are replaced.
bool keeps_packages(const CatalogueEntry& entry, const Machine& machine);

/// Chooses the best entry that may be used and fits these GPUs and every bootable kernel; kernels that are held back do
/// not count if no entry fits them, too. Reads nothing. Best is not newest: see rank().
Choice choose_driver(const Catalogue& catalogue, const Machine& machine);

}  // namespace p2pd
