// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/driver/registry_keys.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {

// NVIDIA's own modules as installed, in place of a catalogue entry.
inline constexpr std::string_view kStockEntry = "stock";                 ///< with their P2P over BAR1
inline constexpr std::string_view kStockMailboxEntry = "stock-mailbox";  ///< with their P2P over the mailbox
inline bool is_stock(std::string_view entry) { return entry == kStockEntry || entry == kStockMailboxEntry; }

/// P2P of NVIDIA's own open modules, disabled by default: over BAR1 between RTX 50 cards, with driver 570 and from 580
/// on; over the mailbox, which takes no room in BAR1, between desktop cards with a GA102 (RTX 3080 to 3090 Ti).
struct StockP2p {
  Parameters options = Parameters::object();  ///< `options` and `registry_dwords` of modprobe-options that enable it
  std::string version;                        ///< version of the installed modules; empty: not known
  std::string why_not;                        ///< reason for a person why it cannot be enabled; empty: it can be
};

/// Reads the installed modules or, if they are compressed, the loaded one; configuration space, config/gpus.yaml; asks
/// nvidia-smi for the VRAM. `entry` is one of the two above. Modules that p2pd built and other chips rule it out, and
/// over BAR1 a BAR1 that the driver cannot map all VRAM into.
Result<StockP2p> stock_p2p(const Host& host, std::string_view entry);

/// True if the loaded driver says that it gives P2P over PCIe without ForceP2P: these are not NVIDIA's own modules,
/// which ask a chipset that they do not know, and they do not take the mailbox.
bool is_patched(const Host& host);

/// Checks that one of the two can be enabled and modprobe gives module nvidia its options.
Result<bool> is_stock_p2p_configured(const Host& host);

/// Sizes that decide how a driver maps the VRAM of `gpu`, BAR1 as it is or as the driver will make it.
StaticBar1Sizes static_bar1_sizes(const Host& host, const Bar1& gpu);

/// `keys` and those that let a driver of this version map all VRAM into BAR1: RMForceStaticBar1=1, and `more` keys, for
/// each GPU that takes part and needs it. The GPUs that it would keep from starting are in no key.
Result<nlohmann::json> with_static_bar1(const Host& host, nlohmann::json keys, int major, const nlohmann::json& more);

/// Adds the needs of `entry` to `options` and `registry_dwords` in `parameters` of modprobe-options: those of a
/// catalogue entry are in the catalogue, but for RMForceStaticBar1, which with_static_bar1() decides for each GPU;
/// those of NVIDIA's own modules (is_stock) are from stock_p2p(). If both have a name, the plan's value counts.
///
/// Error(not_found): is_stock, and its P2P cannot be enabled.
/// Error(invalid): a key is wrong for the driver of the entry (without one, for the loaded driver), or is experimental
/// and `experimental` is not true.
Result<Parameters> with_driver_options(const Host& host, Parameters parameters);

/// Options of modprobe.d for module nvidia: the NVreg_ option that counts, by its name.
Result<std::map<std::string, ModuleOption>> configured_options(const Host& host);

}  // namespace p2pd
