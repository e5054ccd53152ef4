// SPDX-License-Identifier: MIT
#include "actions/registry.hpp"

namespace p2pd {

extern const Action kAcsRedirectionAction;
extern const Action kBuildToolsAction;
extern const Action kContainerDevicesAction;
extern const Action kCudaToolkitAction;
extern const Action kDefaultKernelAction;
extern const Action kDriverBuildAction;
extern const Action kDriverModulesAction;
extern const Action kDriverPinsAction;
extern const Action kDriverRunfileAction;
extern const Action kDriverSourceAction;
extern const Action kDriverUpdateAction;
extern const Action kDriverUserspaceAction;
extern const Action kInitramfsAction;
extern const Action kKernelCmdlineAction;
extern const Action kModprobeOptionsAction;
extern const Action kModulesLoadAction;
extern const Action kModulesUnloadAction;
extern const Action kNouveauBlacklistAction;
extern const Action kP2pBaselineAction;
extern const Action kPackagedDriverAction;
extern const Action kPersistencedAction;
extern const Action kWayBackAction;

std::span<const Action> actions() {
  static const Action kActions[] = {
      kAcsRedirectionAction,
      kBuildToolsAction,
      kContainerDevicesAction,
      kCudaToolkitAction,
      kDefaultKernelAction,
      kDriverBuildAction,
      kDriverModulesAction,
      kDriverPinsAction,
      kDriverRunfileAction,
      kDriverSourceAction,
      kDriverUpdateAction,
      kDriverUserspaceAction,
      kInitramfsAction,
      kKernelCmdlineAction,
      kModprobeOptionsAction,
      kModulesLoadAction,
      kModulesUnloadAction,
      kNouveauBlacklistAction,
      kP2pBaselineAction,
      kPackagedDriverAction,
      kPersistencedAction,
      kWayBackAction,
  };
  return kActions;
}

}  // namespace p2pd
