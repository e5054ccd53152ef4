// SPDX-License-Identifier: MIT
#include "actions/registry.hpp"

namespace p2pd {

extern const Action kKernelCmdlineAction;
extern const Action kModprobeOptionsAction;
extern const Action kP2pBaselineAction;

std::span<const Action> actions() {
  static const Action kActions[] = {
      kKernelCmdlineAction,
      kModprobeOptionsAction,
      kP2pBaselineAction,
  };
  return kActions;
}

}  // namespace p2pd
