// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace p2pd::bench {

/// What NVML knows of one GPU and CUDA does not tell.
struct NvmlGpu {
  std::string address;  ///< "0000:01:00.0"
  std::string uuid;     ///< "GPU-..."
  bool mig = false;     ///< MIG mode is on
  bool display_active = false;
  int processes = 0;                                       ///< others that compute on it
  double switch_gb_s = 0;                                  ///< raw rate of its active NVLinks to switches, one way
  std::vector<std::pair<std::string, double>> peers_gb_s;  ///< of those straight to another GPU, by its PCI address
};

/// Every GPU that NVML shows, or why there is none ("no libnvidia-ml.so.1"); NVML is never needed, only useful.
struct Nvml {
  std::vector<NvmlGpu> gpus;
  std::string not_available;
};
Nvml read_nvml();

/// The same from a library's functions by name; one that is absent (null) leaves its fact out.
Nvml read_nvml(const std::function<void*(const char* name)>& find);

/// "0000:01:00.0" of NVML's "00000000:01:00.0", which has eight digits of domain and capitals.
std::string pci_address(std::string_view nvml);

}  // namespace p2pd::bench
