// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// `text` with '?' for all but printable ASCII.
std::string printable(std::string text);

/// Kind of a process that uses a GPU, by the way to stop it. `display`: the display manager or a login screen;
/// `session`: a person's desktop at a seat.
enum class HolderKind { display, persistenced, container, unit, process, session };
std::string_view to_string(HolderKind kind);

/// A process that has a device file of an NVIDIA GPU open. Its command line is not read: it may contain secrets.
struct GpuHolder {
  int pid = 0;
  std::string comm;  ///< the kernel's name of it, at most 15 characters, all but printable ASCII as '?'
  HolderKind kind = HolderKind::process;
  /// "docker 3f2a91b0c4d5", "ollama.service", "session 2 of ada on seat0"; "105 (llm)" for a container of Proxmox VE;
  /// empty for a plain process.
  std::string name;
  std::string stop = {};             ///< command that ends a container of Proxmox VE: "pct shutdown 105"
  bool of_user = false;              ///< below user.slice, where users choose the names of units, scopes and containers
  std::vector<std::string> devices;  ///< "/dev/nvidia0", each once, sorted
  bool own = false;                  ///< belongs to p2pd's units, or is a child of this process
  bool dying = false;                ///< ended or killed; a process that hangs in the driver stays so until the reboot
};

struct GpuHolders {
  std::vector<GpuHolder> found;  ///< processes by pid
  std::size_t processes = 0;     ///< number of processes examined; 0 in a tree that is not running
  std::size_t unreadable = 0;    ///< number of those whose open files only root may see
};

/// Finds every process with /dev/nvidia* or an NVIDIA GPU's /dev/dri/* open; skips one that ends meanwhile.
Result<GpuHolders> gpu_holders(const Host& host);

/// Checks that it can be stopped and started again without loss: nvidia-persistenced, the display manager, and
/// containers that docker or podman would restart (a job in a container has no restart policy). Asks docker or podman.
bool is_service(const Host& host, const GpuHolder& holder);

/// Reads /proc/PID/stat of holder.pid: fills dying, and own for a child of this process.
void read_stat(const Host& host, GpuHolder& holder);

/// Classifies a process by its control groups (/proc/PID/cgroup): fills kind, name, of_user and own. Uses the unit and
/// session that systemd runs it in, never its own name, which any user can choose. An Error: logind's files are not
/// readable.
Result<void> classify(const Host& host, GpuHolder& holder, std::string_view cgroups);

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

/// Command for `service`, a unit or a container: "stop" or "start".
Command service_command(const std::string& verb, const std::string& service);

/// Adds `services` to kStoppedServices, durably.
Result<void> note_services(Host& host, const std::vector<std::string>& services);

/// Starts the noted services, each once; containers only if `containers`, else they stay noted. An Error names what
/// was not started; interrupted: the rest stays noted.
Result<void> start_services(Host& host, bool containers);

}  // namespace p2pd
