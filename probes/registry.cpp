// SPDX-License-Identifier: MIT
#include "probes/registry.hpp"

namespace p2pd {

extern const Probe kGpuInventory;
extern const Probe kKernelCmdline;
extern const Probe kModprobeOptions;

std::span<const Probe> probes() {
  static const Probe kProbes[] = {
      kGpuInventory,
      kKernelCmdline,
      kModprobeOptions,
  };
  return kProbes;
}

}  // namespace p2pd
