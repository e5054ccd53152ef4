// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File of services to start again, one a line: a unit, or a container ("docker 3f2a91b0c4d5"). It is kept over
/// reboots, until start_services().
inline constexpr std::string_view kStoppedServices = "/var/lib/p2pd/stopped-services";

/// Users of the GPUs: those that p2pd may stop, and the others.
struct GpuUsers {
  /// Services that can be stopped and started again: nvidia-persistenced, the display manager if it uses a GPU, and
  /// containers with a restart policy that use GPUs or were given some: their libraries are those of the loaded driver,
  /// and a boot without a driver does not start them.
  std::vector<std::string> services;
  /// Users that only a person may end: other processes, and desktops at a seat that would end with the display manager.
  std::vector<std::string> others;
};
Result<GpuUsers> gpu_users(const Host& host);

/// Command for `service`: "stop" or "start".
Command service_command(const std::string& verb, const std::string& service);

/// Adds `services` to kStoppedServices, durably.
Result<void> note_services(Host& host, const std::vector<std::string>& services);

/// Notes them, then stops them by name.
Result<void> stop_services(Host& host, const std::vector<std::string>& services);

/// Starts the noted services, each once; containers only if `containers`, else they stay noted. An Error names what
/// was not started; interrupted: the rest stays noted.
Result<void> start_services(Host& host, bool containers);

}  // namespace p2pd
