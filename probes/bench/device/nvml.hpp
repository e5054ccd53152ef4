// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace p2pd::bench {

/// Facts about one GPU that NVML has and CUDA does not.
struct NvmlGpu {
  std::string address;  ///< "0000:01:00.0"
  std::string uuid;     ///< "GPU-..."
  bool mig = false;     ///< MIG mode is on
  bool display_active = false;
  int processes = 0;  ///< other processes that compute on it
  std::optional<std::uint64_t> temperature_c;
  std::optional<std::uint64_t> replays;   ///< PCIe replays
  std::optional<std::uint64_t> throttle;  ///< reasons for lower clocks, a bit each
  double switch_gb_s = 0;                 ///< raw rate of its active NVLinks to switches, one way
  std::vector<std::pair<std::string, double>>
      peers_gb_s;  ///< raw rate of its direct NVLinks to another GPU that the driver uses for P2P, by PCI address
  std::vector<std::string> unused;  ///< GPUs with direct NVLinks that the driver does not use, by PCI address
};

/// GPUs that NVML shows, or the reason for none ("no libnvidia-ml.so.1"). NVML is optional.
struct Nvml {
  std::vector<NvmlGpu> gpus;
  std::string not_available;
};
Nvml read_nvml();

/// Reads from a library's functions by name; a missing function (null) leaves its fact out.
Nvml read_nvml(const std::function<void*(const char* name)>& find);

/// "0000:01:00.0" for NVML's "00000000:01:00.0", which has eight digits of domain and capitals.
std::string pci_address(std::string_view nvml);

}  // namespace p2pd::bench
