// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

namespace p2pd {

/// Value of an enumeration by its name; `names` are in the order of the values. Nothing if no value has that name.
template <class Enum, std::size_t count>
std::optional<Enum> value_called(const std::string_view (&names)[count], std::string_view name) {
  const auto* found = std::ranges::find(names, name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Enum>(found - names);
}

}  // namespace p2pd
