// SPDX-License-Identifier: MIT
// What NVML says of the GPUs. Its types are declared here as in nvml.h: no toolkit is needed to build.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace p2pd::bench {

namespace nvml {

using Device = void*;
constexpr int kSuccess = 0;

/// nvmlPciInfo_t.
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
};
static_assert(sizeof(PciInfo) == 68);

/// Function of the library by its name; null if it does not exist.
using Find = std::function<void*(const char* name)>;

}  // namespace nvml

/// Facts about one GPU that NVML has and CUDA does not.
struct NvmlGpu {
  std::string address;  ///< "0000:01:00.0"
  std::string uuid;     ///< "GPU-..."
  bool mig = false;     ///< MIG mode is on
  int processes = 0;    ///< other processes that compute on it
  std::optional<std::uint64_t> temperature_c;
  std::optional<std::uint64_t> replays;   ///< PCIe replays
  std::optional<std::uint64_t> throttle;  ///< reasons for lower clocks, a bit each
  double switch_gb_s = 0;                 ///< raw rate of its active NVLinks to switches, one way
  std::vector<std::pair<std::string, double>>
      peers_gb_s;  ///< raw rate of its direct NVLinks to another GPU that the driver uses for P2P, by PCI address
  std::vector<std::string> unused;  ///< GPUs with direct NVLinks that the driver does not use, by PCI address
};

/// GPUs that NVML shows, or the reason for none ("no libnvidia-ml.so.1"). NVML is optional, and may block in the kernel
/// endlessly: only for a process with a deadline.
struct Nvml {
  std::vector<NvmlGpu> gpus;
  std::string not_available;
};
Nvml read_nvml();

/// Reads from a library's functions by name; a missing function (null) leaves its fact out.
Nvml read_nvml(const nvml::Find& find);

/// Report of the driver about every GPU and every ordered pair; measures nothing and creates no context:
///
///   schema         "p2pd.driver-peers/1"
///   not_available  reason for a missing answer: "no libnvidia-ml.so.1"; absent if there is one
///   gpus           [{"address", "persistence", "bar1_bytes", "vram_bytes", "generation", "generation_most", "width",
///                  "width_most"}]; current and maximum generation and width of the PCIe link
///   pairs          [{"from", "to", "read", "write", "nvlink", "atomics", "topology"}]: addresses; the status as
///                  nvidia-smi prints it, "OK", "CNS"; the level as it does, "PIX" to "SYS", of PCIe even under NVLink
///
/// A value that the driver does not report is null.
nlohmann::json driver_peers(const nvml::Find& find);
nlohmann::json driver_peers();

/// "0000:01:00.0" for NVML's "00000000:01:00.0", which has eight digits of domain and capitals.
std::string pci_address(std::string_view nvml);

}  // namespace p2pd::bench
