// SPDX-License-Identifier: MIT
#include "actions/registry.hpp"

namespace p2pd {

extern const Action kDriverBuildAction;
extern const Action kDriverRunfileAction;
extern const Action kDriverSourceAction;
extern const Action kKernelCmdlineAction;
extern const Action kModprobeOptionsAction;
extern const Action kModulesLoadAction;
extern const Action kModulesUnloadAction;
extern const Action kP2pBaselineAction;

std::span<const Action> actions() {
  static const Action kActions[] = {
      kDriverBuildAction,
      kDriverRunfileAction,
      kDriverSourceAction,
      kKernelCmdlineAction,
      kModprobeOptionsAction,
      kModulesLoadAction,
      kModulesUnloadAction,
      kP2pBaselineAction,
  };
  return kActions;
}

}  // namespace p2pd
