// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {

/// Names of the NVIDIA modules for modprobe in load_driver(), in its order: each after those that it depends on.
inline constexpr std::array<std::string_view, 4> kLoadOrder = {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"};

/// Kernel module that drives, or can drive, a GPU.
struct DriverModule {
  std::string name;  ///< "nvidia_uvm", "nouveau" or "nova_core"
  ModuleIdentity identity;
};

/// GPUs that take part, each with the driver that is bound to it; empty: none is.
Result<std::map<std::string, std::string>> drivers_of_gpus(const Host& host);

/// "NovaCore drives 0000:01:00.0 and 1 more" if GPUs that take part are bound to nouveau or Nova; else empty.
std::string taken_by_linux(const std::map<std::string, std::string>& drivers);

/// Loaded NVIDIA modules, and those of Linux unless the GPUs that they drive are excluded, in the order in which they
/// can be unloaded.
std::vector<DriverModule> driver_modules(const Host& host);

/// Checks for Nova among `modules`: it starts the GPUs' firmware (GSP), and only a reset lets another driver start its
/// own.
bool keeps_gpus_until_reboot(const std::vector<DriverModule>& modules);

/// Unloads them, after stopping services that use a GPU by design (gpu_holders.hpp). Returns the reason if that is not
/// possible now, empty if all are unloaded. With a reason, the services have been started again, and a reboot is
/// needed. Stops no other process, including desktop sessions. An Error: the list of stopped services could not be
/// saved.
Result<std::string> unload_driver(Host& host);

/// Command that loads `module` even if modprobe.d blocks it during the trial. modprobe then skips the install line
/// of that module alone, so that those it depends on are loaded first.
Command load_command(const Host& host, std::string_view module);

/// Loads the installed NVIDIA modules by name, even blacklisted ones.
Result<void> load_driver(Host& host);

}  // namespace p2pd
