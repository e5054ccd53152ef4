// SPDX-License-Identifier: MIT
#include "machine/hardware/p2p_use.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace p2pd {

std::string_view to_string(P2pUse use) {
  constexpr std::string_view kNames[] = {"copies", "nccl", "custom-all-reduce", "atomics", "managed-memory"};
  static_assert(std::size(kNames) == std::size(kP2pUses));
  return kNames[static_cast<std::size_t>(use)];
}

std::vector<P2pUse> usual_uses() { return {P2pUse::nccl, P2pUse::custom_all_reduce}; }

Result<std::vector<P2pUse>> uses_from(const std::vector<std::string>& names) {
  std::vector<P2pUse> uses;
  for (const std::string& name : names) {
    const auto* use = std::ranges::find_if(kP2pUses, [&](P2pUse known) { return to_string(known) == name; });
    if (use == std::end(kP2pUses)) {
      std::vector<std::string_view> known;
      for (const P2pUse one : kP2pUses) known.push_back(to_string(one));
      return fail(ErrorCode::invalid,
                  fmt::format("\"{}\" is not a use of P2P; known: {}", name, fmt::join(known, ", ")));
    }
    if (std::ranges::find(uses, *use) == uses.end()) uses.push_back(*use);
  }
  if (uses.empty()) return fail(ErrorCode::invalid, "no use of P2P is given");
  return uses;
}

}  // namespace p2pd
