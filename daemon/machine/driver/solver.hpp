// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "machine/driver/driver_fit.hpp"

namespace p2pd {

/// One driver build with reasons, or the named reason why there is none.
struct Choice {
  const CatalogueEntry* entry = nullptr;  ///< of the catalogue that was asked
  bool already_p2p = false;  ///< the driver that runs gives P2P between these cards: only the proof is missing
  std::string cause;         ///< empty with an entry or already_p2p; else an id: "mixed-generations", "kernel", ...
  std::string summary;       ///< one line for a person
  std::string next;          ///< what the operator does where there is no entry
  std::vector<EntryVerdict> table;     ///< of every entry, in the catalogue's order
  std::vector<std::string> questions;  ///< what could not be found out and could still forbid the entry
  std::vector<std::string> notes;      ///< worth knowing, forbids nothing: known defects, a driver that is lowered
  bool keeps_packages = false;         ///< the entry is of the installed packages' version: they stay
  bool needs_dynamic_bar1 = false;     ///< a card has more VRAM than its BAR1 can cover
};

/// What a person should know before `entry` is put on this machine: a lower driver, known defects, no report, no test build.
std::vector<std::string> notes_on(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

/// The packages that are installed can stay with `entry`: only modules are replaced.
bool keeps_packages(const CatalogueEntry& entry, const Machine& machine);

/// The best entry that may be used and fits these GPUs and every bootable kernel, but for those that are held back where
/// there is none that fits them, too; reads nothing. Best is not newest: see rank().
Choice choose_driver(const Catalogue& catalogue, const Machine& machine);

}  // namespace p2pd
