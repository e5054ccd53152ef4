// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/json.hpp"

namespace p2pd {

template <class Type>
concept JsonNumber = std::is_arithmetic_v<Type> && !std::same_as<Type, bool>;

/// `value` as a Number; nullopt if it is no number, is a fraction for a whole Number, or does not fit: json::get casts,
/// which is undefined for values out of range. For documents from outside: files, sockets, output of commands.
template <JsonNumber Number>
std::optional<Number> json_number(const nlohmann::json& value) {
  if constexpr (std::floating_point<Number>) {
    if (value.is_number()) return static_cast<Number>(value.get<double>());
  } else {
    if (const auto* natural = value.get_ptr<const nlohmann::json::number_unsigned_t*>())
      return std::in_range<Number>(*natural) ? std::optional(static_cast<Number>(*natural)) : std::nullopt;
    if (const auto* integer = value.get_ptr<const nlohmann::json::number_integer_t*>())
      return std::in_range<Number>(*integer) ? std::optional(static_cast<Number>(*integer)) : std::nullopt;
  }
  return std::nullopt;
}

/// Member `key` of `object`; `otherwise` if it is missing, or json_number() returns nothing.
template <JsonNumber Number>
Number json_number(const nlohmann::json& object, const char* key, Number otherwise = 0) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? otherwise : json_number<Number>(*found).value_or(otherwise);
}

}  // namespace p2pd
