// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/module_identity.hpp"

namespace p2pd {

/// Names of the NVIDIA modules as load_driver() gives them to modprobe, in its order: each after those that it depends on.
inline constexpr std::array<std::string_view, 4> kLoadOrder = {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"};

/// A kernel module that holds a GPU, or is there to.
struct DriverModule {
  std::string name;  ///< "nvidia_uvm" or "nouveau"
  ModuleIdentity identity;
};

/// The NVIDIA modules that are loaded, and nouveau, unless the GPUs that it drives are left out: in the order in which they can be
/// taken out.
std::vector<DriverModule> driver_modules(const Host& host);

/// Takes them out, after the services that hold a GPU by design are stopped (gpu_services.hpp). Returns why that cannot be
/// done now, empty when all are out: the services are started again then, at once, and a reboot is what is left. Nobody
/// else's process, nor a person's desktop, is touched. An Error: what was stopped could not be written down.
Result<std::string> unload_driver(Host& host);

/// The command that loads `module` where modprobe.d bans it for the trial, too. modprobe then passes over the install line
/// of that module alone, so that those it depends on are loaded first.
Command load_command(const Host& host, std::string_view module);

/// Loads the installed NVIDIA modules by name, whatever is blacklisted.
Result<void> load_driver(Host& host);

}  // namespace p2pd
