// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/driver/driver_install.hpp"
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
  bool gpus_known = true;        ///< false for an image
  bool divided = false;          ///< into groups of peers, one a generation
  std::set<std::string> beside;  ///< generations of GPUs that take no part in P2P, and have the same driver
  bool nvlink = false;           ///< the loaded driver says that NVLink joins two of the GPUs
  std::vector<Target> kernels;   ///< kernels, oldest first
  Distribution distribution;
  std::string driver_version;  ///< version of the loaded nvidia module; empty: none
  PackagedUserspace packages;  ///< driver of the installed packages
  std::string installed;       ///< newest version of packages, runfile and loaded module; empty: none
  std::map<std::string, std::string>
      failed_builds;  ///< compiler's first error of each build that failed here, by build_name()
};

/// Collects the solver's facts about `host`: its GPUs, every bootable kernel with the compat rules of `all` that apply
/// to it, its compilers, its distribution and the running driver. Reads configuration space, sysfs, /boot,
/// /proc/version, os-release and kernel headers; asks nvidia-smi for the VRAM of GeForce cards, because converted cards
/// have more than their PCI id implies. Facts that are not readable stay open in the result.
Result<Machine> machine_of(const Host& host, const Catalogue& all);

/// Generations of the known cards: "Ada".
std::set<std::string> generations(const Machine& machine);
/// Checks for a converted card: more memory than its model, but its BAR1.
bool is_converted(const Machine::Gpu& gpu);

}  // namespace p2pd
