// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

/// VRAM by address ("0000:01:00.0") in bytes, as the driver tells it, to p2p-bench or to "nvidia-smi -q"; empty without a driver.
/// No file has it, and the PCI id does not tell a card that was converted to more memory from one that was not.
std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host);

/// The same from the text; what is not understood is left out.
std::map<std::string, std::uint64_t> parse_vram(std::string_view text);

}  // namespace p2pd
