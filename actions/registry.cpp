// SPDX-License-Identifier: MIT
#include "actions/registry.hpp"

namespace p2pd {

extern const Action kKernelCmdlineAction;
extern const Action kModprobeOptionsAction;

std::span<const Action> actions() {
  static const Action kActions[] = {
      kKernelCmdlineAction,
      kModprobeOptionsAction,
  };
  return kActions;
}

}  // namespace p2pd
