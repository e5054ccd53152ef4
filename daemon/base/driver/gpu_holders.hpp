// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// What kind of thing holds a GPU, by how it is stopped.
enum class HolderKind { display, persistenced, container, unit, process };
std::string_view to_string(HolderKind kind);

/// A process that has a device file of an NVIDIA GPU open. Its command line is not read: it may hold secrets.
struct GpuHolder {
  int pid = 0;
  std::string comm;  ///< the kernel's name of it, at most 15 characters, other than printable ASCII as '?'
  HolderKind kind = HolderKind::process;
  std::string name;                  ///< "docker 3f2a91b0c4d5", "ollama.service"; empty for a plain process
  std::vector<std::string> devices;  ///< "/dev/nvidia0", each once, sorted
  bool own = false;                  ///< of p2pd's units, or a child of this process
  bool dying = false;                ///< ended or killed; what hangs in the driver stays so until the reboot
};

struct GpuHolders {
  std::vector<GpuHolder> found;  ///< by pid
  std::size_t processes = 0;     ///< that were looked at; 0 in a tree that is not running
  std::size_t unreadable = 0;    ///< of them, those whose open files only root may see
};

/// Every process with /dev/nvidia* or an NVIDIA GPU's /dev/dri/* open. One that ends meanwhile holds nothing.
Result<GpuHolders> gpu_holders(const Host& host);

/// True of what can be stopped and started again without loss: nvidia-persistenced, the display manager, and containers
/// that docker or podman would restart (a job in a container has no restart policy). Asks those.
bool is_service(const Host& host, const GpuHolder& holder);

/// What /proc/PID/stat of holder.pid says: fills dying, and own for a child of this process.
void read_stat(const Host& host, GpuHolder& holder);

/// What a process of this name in these control groups (/proc/PID/cgroup) is: fills kind and name, and own.
void classify(GpuHolder& holder, std::string_view cgroups);

}  // namespace p2pd
