// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Member `key` of `object`; null if it is missing, or `object` is none.
inline const nlohmann::json& field_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

/// Member `key` of `object` as a number; `otherwise` if it is missing, or json_number() returns nothing.
template <JsonNumber Number>
Number json_number(const nlohmann::json& object, const char* key, Number otherwise = 0) {
  return json_number<Number>(field_of(object, key)).value_or(otherwise);
}

/// Returns the texts in list `key` of `object`, which comes from outside; skips other values. Returns none if there is
/// no list.
inline std::vector<std::string> json_texts(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts;
  const nlohmann::json& list = field_of(object, key);
  if (!list.is_array()) return texts;
  for (const nlohmann::json& item : list)
    if (item.is_string()) texts.push_back(item);
  return texts;
}

}  // namespace p2pd
