// SPDX-License-Identifier: MIT
#include "probes/registry.hpp"

namespace p2pd {

extern const Probe kAcsRedirection;
extern const Probe kBar1Size;
extern const Probe kBootLoader;
extern const Probe kBootableKernels;
extern const Probe kBridgeWindows;
extern const Probe kBuildTools;
extern const Probe kContainerDevices;
extern const Probe kCudaToolkit;
extern const Probe kDiskSpace;
extern const Probe kDisplayGpus;
extern const Probe kDriverBuild;
extern const Probe kDriverCatalogue;
extern const Probe kDriverModulesInstalled;
extern const Probe kDriverPeers;
extern const Probe kDriverPins;
extern const Probe kDriverRunfile;
extern const Probe kDriverSource;
extern const Probe kDriverUpdate;
extern const Probe kDriverUserspace;
extern const Probe kGpuGeneration;
extern const Probe kGpuHolders;
extern const Probe kGpuInventory;
extern const Probe kGpudirectRdma;
extern const Probe kInitramfs;
extern const Probe kIommu;
extern const Probe kKernelCmdline;
extern const Probe kKernelLog;
extern const Probe kModprobeOptions;
extern const Probe kModuleParameters;
extern const Probe kNouveauBlacklist;
extern const Probe kNvidiaDriver;
extern const Probe kNvidiaModules;
extern const Probe kNvidiaUserspace;
extern const Probe kOptionsInForce;
extern const Probe kOtherModules;
extern const Probe kOwnDriver;
extern const Probe kP2pBaseline;
extern const Probe kP2pBench;
extern const Probe kPackageActivity;
extern const Probe kPackageState;
extern const Probe kPackagedDriver;
extern const Probe kPcieLinks;
extern const Probe kPersistenced;
extern const Probe kSecureBoot;
extern const Probe kShutdownInhibitors;
extern const Probe kVfioGuests;
extern const Probe kVirtualization;
extern const Probe kWayBack;

std::span<const Probe> probes() {
  static const Probe kProbes[] = {
      kAcsRedirection,
      kBar1Size,
      kBootLoader,
      kBootableKernels,
      kBridgeWindows,
      kBuildTools,
      kContainerDevices,
      kCudaToolkit,
      kDiskSpace,
      kDisplayGpus,
      kDriverBuild,
      kDriverCatalogue,
      kDriverModulesInstalled,
      kDriverPeers,
      kDriverPins,
      kDriverRunfile,
      kDriverSource,
      kDriverUpdate,
      kDriverUserspace,
      kGpuGeneration,
      kGpuHolders,
      kGpuInventory,
      kGpudirectRdma,
      kInitramfs,
      kIommu,
      kKernelCmdline,
      kKernelLog,
      kModprobeOptions,
      kModuleParameters,
      kNouveauBlacklist,
      kNvidiaDriver,
      kNvidiaModules,
      kNvidiaUserspace,
      kOptionsInForce,
      kOtherModules,
      kOwnDriver,
      kP2pBaseline,
      kP2pBench,
      kPackageActivity,
      kPackageState,
      kPackagedDriver,
      kPcieLinks,
      kPersistenced,
      kSecureBoot,
      kShutdownInhibitors,
      kVfioGuests,
      kVirtualization,
      kWayBack,
  };
  return kProbes;
}

}  // namespace p2pd
