// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "machine/driver/machine.hpp"

namespace p2pd {

/// Verdict of the solver on one entry of the catalogue.
struct EntryVerdict {
  /// Verdicts, from best to worst. untried: nobody built it for such a kernel, and the build here decides; open: a fact
  /// could not be found out; candidate: it may not be used yet.
  enum class Fit { fits, untried, open, rejected, candidate };
  const CatalogueEntry* entry = nullptr;  ///< of the catalogue that was given
  Fit fit = Fit::rejected;
  /// Cause of a rejection: "other-packages" (it is for machines with those), "packages", "architecture",
  /// "dynamic-bar1", "older", "source", "kernel", "compiler", "headers".
  std::string cause = {};
  std::string reason = {};       ///< one sentence: the reason, and what would change it
  bool running_only = false;     ///< fits the running kernel, not every bootable one
  bool fits_if_allowed = false;  ///< a candidate that would fit
};
std::string_view to_string(EntryVerdict::Fit fit);

/// One driver build with reasons, or the reason why there is none.
struct Choice {
  const CatalogueEntry* entry = nullptr;  ///< entry of the catalogue that was given
  bool already_p2p = false;  ///< the running driver supports P2P between these cards: only the proof is missing
  std::string cause;         ///< id, "mixed-generations", "kernel", ...; empty with an entry or already_p2p
  std::string summary;       ///< one line for a person
  std::string next;          ///< action for the operator if there is no entry
  const CatalogueEntry* by_hand = nullptr;  ///< build that a person installs where p2pd replaces no driver
  std::vector<std::string> commands;        ///< of a shell, that build and install its modules
  std::vector<EntryVerdict> table;          ///< verdicts on every entry, in the catalogue's order
  std::vector<std::string> questions;       ///< facts that could not be found out and could still forbid the entry
  std::vector<std::string> notes;           ///< facts that forbid nothing: known defects, packages that go
  std::vector<CatalogueEntry> possible;     ///< builds for the installed packages that no file lists, best first
  bool keeps_packages = false;              ///< the entry has the installed packages' version: they stay
  std::string evidence;                     ///< one line: test builds of the entry, reports of it on such cards
  bool reported = false;            ///< somebody moved data with the entry between cards of each generation here
  bool needs_dynamic_bar1 = false;  ///< a card has more VRAM than its BAR1 can cover
};

/// Known defects of an entry that count for the GPUs of this machine.
std::vector<const Defect*> defects_on(const CatalogueEntry& entry, const Machine& machine);

/// Facts that a person should know before `entry` is installed here: a lower driver, known defects, no test build.
std::vector<std::string> notes_on(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

/// Checks that the installed packages can stay with `entry`: only modules are replaced.
bool keeps_packages(const CatalogueEntry& entry, const Machine& machine);

/// Chooses the best entry that may be used and fits these GPUs and every bootable kernel; kernels that are held back do
/// not count if no entry fits them, too. Reads nothing. Best is not newest: see rank().
Choice choose_driver(const Catalogue& catalogue, const Machine& machine);

}  // namespace p2pd
