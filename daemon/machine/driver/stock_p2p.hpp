// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kStockEntry = "stock";  ///< in place of a catalogue entry: NVIDIA's own modules, as they are installed

/// P2P over BAR1 of NVIDIA's own open modules: RTX 50 cards have it from driver 590 on, switched off.
struct StockP2p {
  Parameters options = Parameters::object();  ///< switch it on: `options` and `registry_dwords` of module nvidia, as of modprobe-options
  std::string version;                        ///< of the installed modules; empty: not known
  std::string why_not;                        ///< the reason for a person where it cannot be switched on; empty: it can be
};

/// Reads the installed modules or, where they are compressed, the loaded one; configuration space, config/gpus.yaml; asks
/// nvidia-smi for the VRAM. Modules that p2pd built, other generations and a BAR1 smaller than the VRAM are a reason.
Result<StockP2p> stock_p2p(const Host& host);

/// True where it can be switched on and modprobe gives module nvidia these options.
Result<bool> is_stock_p2p_configured(const Host& host);

}  // namespace p2pd
