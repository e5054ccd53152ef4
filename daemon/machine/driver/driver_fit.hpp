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

/// What decides which driver build a machine can take.
struct Machine {
  struct Gpu : GpuAt {
    std::optional<std::uint64_t> vram_bytes;       ///< as the driver tells; nothing: not asked, the model's counts
    std::optional<std::uint64_t> bar1_bytes;       ///< in force
    std::optional<std::uint64_t> bar1_most_bytes;  ///< the most that BAR1 can become; nothing: not readable
  };
  struct Target : BuildTarget {
    std::map<std::string, bool> rules;  ///< compat rule to whether it applies; what is absent could not be read
    bool held_back = false;             ///< newer than the default entry, which stays: it need not be fitted
  };
  std::vector<Gpu> gpus;
  bool gpus_known = true;          ///< an image will boot on any
  std::vector<Target> kernels;     ///< oldest first
  std::vector<int> gcc_installed;  ///< major versions
  Distribution distribution;
  std::string driver_version;  ///< of the loaded nvidia module; empty: none
  PackagedUserspace packages;  ///< of the driver that packages brought
  std::map<std::string, std::string> failed_builds;  ///< build_name() to the compiler's first error, where one failed here
};

/// What the solver says of one entry of the catalogue.
struct EntryVerdict {
  /// From best to worst. untried: nobody built it for such a kernel, and the build here decides; open: something could not
  /// be found out; candidate: it may not be used yet.
  enum class Fit { fits, untried, open, rejected, candidate };
  std::string entry = {};
  Fit fit = Fit::rejected;
  std::string cause = {};        ///< of a rejection: "architecture", "kernel", "compiler", "headers"; else empty
  std::string reason = {};       ///< one sentence: why, and what would change it
  bool running_only = false;     ///< fits the running kernel, not every bootable one
  bool fits_if_allowed = false;  ///< a candidate that would fit
  std::vector<std::string> defects = {};  ///< that are known with such GPUs
};
std::string_view to_string(EntryVerdict::Fit fit);

/// Generations of the known cards: "Ada".
std::set<std::string> generations(const Machine& machine);
/// Converted cards carry more memory than their model, and keep its BAR1.
bool is_converted(const Machine::Gpu& gpu);

/// Known defects of an entry that count for the GPUs of this machine.
std::vector<const Defect*> defects_on(const CatalogueEntry& entry, const Machine& machine);

/// What speaks for or against one entry on this machine, whatever else may keep the machine from P2P; reads nothing.
EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

}  // namespace p2pd
