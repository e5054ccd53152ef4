// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// Where a specification of the Container Device Interface for NVIDIA GPUs lies; of two, runtimes take the later one.
inline constexpr std::string_view kCdiFiles[] = {"/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"};

/// What a specification gives to containers, as far as it tells whether it is stale.
struct CdiSpecification {
  std::set<std::string> versions;  ///< of the driver, by the names of libcuda and libnvidia-ml
  std::set<std::string> devices;   ///< names: "0", "GPU-...", "all"
};

/// Reads the text of one, YAML as nvidia-ctk writes it, or JSON.
CdiSpecification parse_cdi(std::string_view text);

/// Those of kCdiFiles that are there.
std::vector<std::string> cdi_files(const Host& host);

/// The file that makes a container runtime ask for CDI; empty: none does.
std::string asks_for_cdi(const Host& host);

/// Version of the installed libcuda; empty: none. An Error: several versions, or one whose name does not tell.
Result<std::string> installed_libcuda(const Host& host);

}  // namespace p2pd
