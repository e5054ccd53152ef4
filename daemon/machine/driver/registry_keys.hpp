// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace p2pd {

// Keys of NVreg_RegistryDwords. Their values changed at driver 575, and two popular ones do nothing there. What the
// driver makes of them is in tests/driver_answers.yaml, obtained from its own code; driver_answers_test compares.

/// Major version of a driver, 570 of "570.86.16"; 0 if it is no version.
int major_of(std::string_view version);

/// Reason why `key`=`value` does not have its intended effect in a driver of this major version; empty: nothing is
/// known against it.
std::string wrong_registry_key(std::string_view key, std::string_view value, int major);

/// Checks for a key whose effect is not confirmed in the source: only for a plan with `experimental: true`.
bool is_experimental_key(std::string_view key);

/// What makes a driver map all VRAM of a GPU into BAR1 ("static BAR1"), which P2P over BAR1 needs.
enum class StaticBar1 {
  automatic,  ///< it does so by itself
  forced,     ///< key RMForceStaticBar1=1 of this GPU
  impossible  ///< nothing: with that key, the GPU would not start; or peers could not be mapped
};
/// Sizes in bytes.
struct StaticBar1Sizes {
  std::uint64_t bar1 = 0;
  std::uint64_t vram = 0;     ///< of the chips on the card
  std::uint64_t clients = 0;  ///< most of it that clients of the driver can have
  bool console = false;       ///< a framebuffer of the firmware is at the start of BAR1
};
/// For P2P over BAR1 alone, without the mailbox, in a driver of this major version; `impossible` without a VRAM.
StaticBar1 static_bar1(int major, const StaticBar1Sizes& sizes);

/// What decides how a driver that says OK reaches a GPU's memory over PCIe. Keys that are not set are nullopt.
struct PeerSettings {
  int major = 0;         ///< version of the driver
  bool patched = false;  ///< a build that has P2P over BAR1 between GeForce cards; else NVIDIA's own modules
  std::string chip, architecture;
  std::optional<std::uint32_t> force_type, pcie_type,
      force_static;  ///< RMForceP2PType, RMPcieP2PType, RMForceStaticBar1
  StaticBar1Sizes sizes;
};
struct PeerPath {
  bool mailbox = false;  ///< else BAR1
  std::string doubt;     ///< reason why nothing is mapped although the driver says OK; empty: none is known
};
PeerPath likely_path(const PeerSettings& settings);

/// Checks for a key that p2pd knows something about.
bool is_known_key(std::string_view key);

}  // namespace p2pd
