// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

/// VRAM in bytes by address ("0000:01:00.0"), as the driver reports it to p2p-bench or "nvidia-smi -q"; empty without a
/// driver. No file has it, and the PCI id does not distinguish a card that was converted to more memory.
std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host);

/// Parses it from the text; skips what it does not understand.
std::map<std::string, std::uint64_t> parse_vram(std::string_view text);

}  // namespace p2pd
