// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine/hardware/left_out.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

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
