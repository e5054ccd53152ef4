// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kDisplayManager = "display-manager.service";  ///< alias of the unit in use

/// Kind of a process that uses a GPU, by the way to stop it. `display`: the display manager or a login screen;
/// `session`: a person's desktop at a seat.
enum class HolderKind { display, persistenced, container, unit, process, session };
std::string_view to_string(HolderKind kind);

/// A process that has a device file of an NVIDIA GPU open. Its command line is not read: it may contain secrets.
struct GpuHolder {
  int pid = 0;
  std::string comm;  ///< the kernel's name of it, at most 15 characters, all but printable ASCII as '?'
  HolderKind kind = HolderKind::process;
  /// "docker 3f2a91b0c4d5", "ollama.service", "session 2 of ada on seat0"; empty for a plain process.
  std::string name;
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

/// Containers that were given GPUs, each once, whether they use one now or not: the driver's libraries or device files
/// are mounted in them.
Result<std::vector<GpuHolder>> containers_with_gpus(const Host& host);

/// Checks that it can be stopped and started again without loss: nvidia-persistenced, the display manager, and
/// containers that docker or podman would restart (a job in a container has no restart policy). Asks docker or podman.
bool is_service(const Host& host, const GpuHolder& holder);

/// Reads /proc/PID/stat of holder.pid: fills dying, and own for a child of this process.
void read_stat(const Host& host, GpuHolder& holder);

/// Classifies a process by its control groups (/proc/PID/cgroup): fills kind, name, of_user and own. Uses the unit and
/// session that systemd runs it in, never its own name, which any user can choose. An Error: logind's files are not
/// readable.
Result<void> classify(const Host& host, GpuHolder& holder, std::string_view cgroups);

}  // namespace p2pd
