// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Checks for a word that can name GPUs: a PCI address ("0000:65:00.0", "65:00.0"), a model ("10de:1d01") or a UUID
/// ("GPU-...").
bool is_gpu_name(std::string_view word);

/// Start of PciDevice::left_out of a GPU that can have no peer.
inline constexpr std::string_view kAlone = "alone: ";
inline bool is_alone(const PciDevice& gpu) { return gpu.left_out.starts_with(kAlone); }

/// Reason why a GPU of `host` takes no part in P2P: the plan names it, an option of the driver excludes it
/// (NVreg_ExcludedGpus), or it can have no peer. Empty: it takes part. A UUID is known if NVIDIA's driver is loaded.
std::string why_left_out(const Host& host, const PciDevice& gpu);

/// GPUs whose every pair can be peers: those of one generation, since CUDA has no peer access between two.
struct PeerGroup {
  std::string name;               ///< "Ada", "Blackwell"
  std::vector<std::string> gpus;  ///< PCI addresses
};

/// Sets the group of every GPU that takes part, and leaves those out that have no peer in theirs. Changes nothing if no
/// two GPUs can be peers: all are then expected to be, and checks say why they are not.
void divide_into_groups(std::vector<PciDevice>& devices);

/// Groups of the GPUs among `devices` that take part, the largest first, then by name; none if they are not divided.
std::vector<PeerGroup> peer_groups(const std::vector<PciDevice>& devices);

/// False for GPUs of two groups: traffic between them is not expected to work.
inline bool may_be_peers(const PciDevice& one, const PciDevice& other) { return one.group == other.group; }
/// The same by address; true for an address that is not among `devices`.
bool may_be_peers(const std::vector<PciDevice>& devices, std::string_view one, std::string_view other);

/// "2 x RTX 4090; 2 x RTX 3090; GT 1030 alone": the GPUs that take part, by groups, and those that are alone.
std::string groups_text(const std::vector<PciDevice>& devices);

}  // namespace p2pd
