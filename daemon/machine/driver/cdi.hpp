// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// Paths of Container Device Interface specifications for NVIDIA GPUs; of two, runtimes take the later one.
inline constexpr std::string_view kCdiFiles[] = {"/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"};

struct Proof;

/// p2pd's own specification, which exists while this machine is ready, and the device in it; where there are several
/// groups of peers, it has a device for each, too, "p2pd.org/p2p=ada". podman and Docker read
/// /run/cdi as well as /etc/cdi, and a reboot empties it. Its kind is a DNS name and a class: SPEC.md of
/// container-device-interface.
inline constexpr std::string_view kOwnCdi = "/run/cdi/p2pd.json";
inline constexpr std::string_view kReadyDevice = "p2pd.org/p2p=ready";

/// Content of kOwnCdi after this proof: the variables that `p2pctl env` prints, and kNcclConf if p2pd's block is in it;
/// in the device of a group also CUDA_VISIBLE_DEVICES. It holds no GPUs: those are in the specifications of kCdiFiles.
Result<std::string> own_cdi(const Host& host, const Proof& proof);

/// Content of a specification that shows if it is stale.
struct CdiSpecification {
  std::set<std::string> versions;  ///< versions of the driver, by the names of libcuda and libnvidia-ml
  std::set<std::string> devices;   ///< names: "0", "GPU-...", "all"
};

/// Parses a specification: YAML as nvidia-ctk writes it, or JSON.
CdiSpecification parse_cdi(std::string_view text);

/// Existing files of kCdiFiles.
std::vector<std::string> cdi_files(const Host& host);

/// File that makes a container runtime use CDI; empty: none does.
std::string asks_for_cdi(const Host& host);

/// Version of the installed libcuda; empty: none. An Error: several versions, or a name without one.
Result<std::string> installed_libcuda(const Host& host);

}  // namespace p2pd
