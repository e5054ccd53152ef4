// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/driver/catalogue.hpp"
#include "base/hardware/gpus.hpp"
#include "base/modules/toolchain.hpp"

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
};

/// What the solver says of one entry of the catalogue.
struct EntryVerdict {
  enum class Fit { fits, open, rejected, candidate };  ///< open: fits as far as is known; candidate: not enabled
  std::string entry;
  Fit fit = Fit::rejected;
  std::string cause;             ///< of a rejection: "architecture", "kernel", "compiler", "headers"; else empty
  std::string reason;            ///< one sentence: why, and what would change it
  bool running_only = false;     ///< fits the running kernel, not every bootable one
  bool needs_pins_only = false;  ///< a candidate that would fit once it is pinned
};
std::string_view to_string(EntryVerdict::Fit fit);

/// Generations of the known cards: "Ada".
std::set<std::string> generations(const Machine& machine);

/// What speaks for or against one entry on this machine, whatever else may keep the machine from P2P; reads nothing.
EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine);

}  // namespace p2pd
