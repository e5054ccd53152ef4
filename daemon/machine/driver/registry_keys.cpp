// SPDX-License-Identifier: MIT
// Registry keys. Reference: nvrm_registry.h and nv-reg.h of NVIDIA's open-gpu-kernel-modules, tags 550.54.15 to
// 595.45.04.
#include "machine/driver/registry_keys.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/units.hpp"
#include "base/version.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

constexpr int kSplit = 575;  // version in which the values of the P2P keys changed

constexpr int kNever = 1 << 20;
constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();

/// Values of a key in RegistryDwords that do not have their intended effect, from `least` to `most`, in drivers from
/// `first` to before `end`.
struct WrongKey {
  std::string_view key;
  int first, end;
  std::uint32_t least, most;
  std::string_view why;
};
constexpr WrongKey kWrongKeys[] = {
    {"EnableResizableBar", 0, kNever, 0, kMost, "does nothing here: it is the module option NVreg_EnableResizableBar"},
    {"GrdmaPciTopoCheckOverride", 0, kNever, 0, kMost,
     "does nothing here: it is the module option NVreg_GrdmaPciTopoCheckOverride, for RDMA only"},
    {"RMForceP2PType", 0, kSplit, 1, 1,
     "before 575, 1 forces mailbox P2P, which GA102 alone has among GeForce chips; BAR1 is 2"},
    {"RMForceP2PType", 0, kSplit, 3, 3, "before 575, 3 forces NVLink; BAR1 is 2"},
    {"RMForceP2PType", 0, kNever, 4, kMost, "forces C2C, or nothing that is known"},
    {"RMForceP2PType", kSplit, kNever, 2, 2, "from 575 on, 2 forces NVLink; PCIe is 1"},
    {"RMForceP2PType", kSplit, kNever, 3, 3, "from 575 on, 3 forces C2C; PCIe is 1"},
    {"RMPcieP2PType", 0, kSplit, 0, kMost, "drivers before 575 do not know it"},
    {"RMPcieP2PType", kSplit, kNever, 0, 0, "0 is mailbox P2P, which GA102 alone has among GeForce chips; BAR1 is 1"},
    {"RMPcieP2PType", kSplit, kNever, 3, kMost, "has the values 0 to 2"},
    {"RMForceStaticBar1", kSplit, kNever, 3, kMost, "from 575 on it has the values 0 to 2; others are ignored"},
};
constexpr std::string_view kForceP2p = "ForceP2P";

/// Checks for 0 in reads (1:0) or writes (5:4) of kForceP2p, which forbids them.
bool forbids(std::uint64_t value) { return (value & 0x3U) == 0 || (value & 0x30U) == 0; }

/// MiB that BAR1 must have above a size, by driver from `first` on; nullopt: not known, or it does not help.
struct StaticBar1Row {
  int first;
  std::optional<std::uint64_t> automatic, automatic_console;  ///< above the VRAM
  std::optional<std::uint64_t> forced, forced_console;        ///< above what clients get
};
constexpr StaticBar1Row kStaticBar1[] = {
    {575, 3, 515, 1, 513},                    // 575 itself was not asked: these are the larger sizes
    {570, 1, std::nullopt, 1, std::nullopt},  // with a console the mapping of a peer is refused
    {565, 1, std::nullopt, 1, std::nullopt},  // it does not keep the console
};

constexpr std::string_view kExperimental[] = {"RMDisableFeatureDisablement"};

}  // namespace

int major_of(std::string_view version) {
  const auto numbers = parse_version(version);
  return numbers ? static_cast<int>(numbers->front()) : 0;
}

std::string wrong_registry_key(std::string_view key, std::string_view value, int major) {
  const auto number = kernel_number(value);
  if (!number || *number > kMost) return "not a number: the driver ignores it";
  if (key == kForceP2p && forbids(*number)) return "forbids peer reads or writes; 0x11 allows both";
  for (const WrongKey& row : kWrongKeys)
    if (row.key == key && major >= row.first && major < row.end && *number >= row.least && *number <= row.most)
      return std::string(row.why);
  return {};
}

bool is_experimental_key(std::string_view key) {
  return std::ranges::find(kExperimental, key) != std::end(kExperimental);
}

StaticBar1 static_bar1(int major, const StaticBar1Sizes& sizes) {
  const auto row = std::ranges::find_if(kStaticBar1, [&](const StaticBar1Row& one) { return major >= one.first; });
  if (row == std::end(kStaticBar1) || sizes.vram == 0) return StaticBar1::impossible;
  const auto fits = [&](std::uint64_t bytes, std::optional<std::uint64_t> more) {
    return more && sizes.bar1 >= bytes + *more * kMiB;
  };
  if (fits(sizes.vram, sizes.console ? row->automatic_console : row->automatic)) return StaticBar1::automatic;
  if (fits(sizes.clients, sizes.console ? row->forced_console : row->forced)) return StaticBar1::forced;
  return StaticBar1::impossible;
}

PeerPath likely_path(const PeerSettings& s) {
  const bool before = s.major < kSplit;
  const bool blackwell = s.architecture == "Blackwell";
  const bool kept_static =
      s.force_static == 1U || (s.force_static != 0U && static_bar1(s.major, s.sizes) == StaticBar1::automatic);
  const std::uint32_t pcie_type = s.pcie_type.value_or(0),
                      force_type = s.force_type.value_or(s.patched && before ? 2 : 0);
  PeerPath path;
  if (before)
    path.mailbox = force_type != 2;
  else
    path.mailbox = !s.patched && (!blackwell || pcie_type == 0 || force_type >= 2);
  if (path.mailbox && !s.patched && !before && pcie_type == 1)
    path.doubt =
        "RMPcieP2PType=1 leaves the mailbox out, and these chips have no P2P over BAR1 in NVIDIA's own modules";
  else if (path.mailbox && s.chip != "GA102")
    path.doubt = "it takes the mailbox, which works on GA102 alone among GeForce chips";
  else if (!path.mailbox && !s.patched && !blackwell)
    path.doubt = "NVIDIA's own modules refuse to map BAR1 of a peer before RTX 50";
  else if (!path.mailbox && s.sizes.bar1 < s.sizes.clients)
    path.doubt = "BAR1 is smaller than the VRAM: mappings are refused, or the mailbox is used without being there";
  else if (!path.mailbox && s.major >= 570 && before && s.sizes.console)
    path.doubt = "a framebuffer at the start of BAR1 shifts the VRAM by 32 MiB, and the mapping of a peer wants 512";
  else if (!path.mailbox && blackwell && !s.patched && !kept_static)
    path.doubt = "BAR1 does not map all VRAM at once: the driver falls back to the mailbox, and says OK all the same";
  return path;
}

bool is_known_key(std::string_view key) {
  return is_experimental_key(key) || key == "PeerMappingOverride" || key == kForceP2p ||
         std::ranges::find(kWrongKeys, key, &WrongKey::key) != std::end(kWrongKeys);
}

}  // namespace p2pd
