// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kStockEntry =
    "stock";  ///< NVIDIA's own modules as installed, in place of a catalogue entry

/// P2P over BAR1 of NVIDIA's own open modules: RTX 50 cards have it from driver 590 on, disabled by default.
struct StockP2p {
  Parameters options = Parameters::object();  ///< `options` and `registry_dwords` of modprobe-options that enable it
  std::string version;                        ///< version of the installed modules; empty: not known
  std::string why_not;                        ///< reason for a person why it cannot be enabled; empty: it can be
};

/// Reads the installed modules or, if they are compressed, the loaded one; configuration space, config/gpus.yaml; asks
/// nvidia-smi for the VRAM. Modules that p2pd built, other generations and a BAR1 smaller than the VRAM rule it out.
Result<StockP2p> stock_p2p(const Host& host);

/// Checks that it can be enabled and modprobe gives module nvidia these options.
Result<bool> is_stock_p2p_configured(const Host& host);

}  // namespace p2pd
