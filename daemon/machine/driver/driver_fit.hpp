// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "machine/catalogue/catalogue.hpp"
#include "machine/driver/packaged_userspace.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {

/// Facts that decide which driver build a machine can use.
struct Machine {
  struct Gpu : GpuAt {
    std::optional<std::uint64_t> vram_bytes;  ///< VRAM that the driver reports; nullopt: not asked, the model's counts
    std::optional<std::uint64_t> bar1_bytes;  ///< size in force
    std::optional<std::uint64_t> bar1_most_bytes;  ///< largest size that BAR1 can have; nullopt: not readable
  };
  struct Target : BuildTarget {
    std::map<std::string, bool> rules;  ///< compat rules and if they apply; a rule that could not be read is absent
    bool held_back = false;             ///< newer than the default entry, which stays: need not be fitted
  };
  std::vector<Gpu> gpus;
  bool gpus_known = true;          ///< false for an image
  bool divided = false;            ///< into groups of peers, one a generation
  std::set<std::string> beside;    ///< generations of GPUs that take no part in P2P, and have the same driver
  bool nvlink = false;             ///< the loaded driver says that NVLink joins two of the GPUs
  std::vector<Target> kernels;     ///< kernels, oldest first
  std::vector<int> gcc_installed;  ///< major versions of compilers
  Distribution distribution;
  std::string driver_version;  ///< version of the loaded nvidia module; empty: none
  PackagedUserspace packages;  ///< driver of the installed packages
  std::map<std::string, std::string>
      failed_builds;  ///< compiler's first error of each build that failed here, by build_name()
};

/// Verdict of the solver on one entry of the catalogue.
struct EntryVerdict {
  /// Verdicts, from best to worst. untried: nobody built it for such a kernel, and the build here decides; open: a fact
  /// could not be found out; candidate: it may not be used yet.
  enum class Fit { fits, untried, open, rejected, candidate };
  std::string entry = {};
  Fit fit = Fit::rejected;
  std::string cause = {};        ///< cause of a rejection: "architecture", "kernel", "compiler", "headers"; else empty
  std::string reason = {};       ///< one sentence: the reason, and what would change it
  bool running_only = false;     ///< fits the running kernel, not every bootable one
  bool fits_if_allowed = false;  ///< a candidate that would fit
  std::vector<std::string> defects = {};  ///< defects that are known with such GPUs
};
std::string_view to_string(EntryVerdict::Fit fit);

/// Generations of the known cards: "Ada".
std::set<std::string> generations(const Machine& machine);
/// Checks for a converted card: more memory than its model, but its BAR1.
bool is_converted(const Machine::Gpu& gpu);

/// Known defects of an entry that count for the GPUs of this machine.
std::vector<const Defect*> defects_on(const CatalogueEntry& entry, const Machine& machine);

/// Judges one entry on this machine, regardless of other obstacles to P2P; reads nothing.
EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

}  // namespace p2pd
