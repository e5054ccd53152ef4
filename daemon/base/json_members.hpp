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

// Parts of JSON from another program or an untrusted file: one that is absent, or of another type, reads as empty.

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

inline std::optional<double> number_of(const nlohmann::json& value) { return json_number<double>(value); }
inline std::optional<double> number_of(const nlohmann::json& object, const char* key) {
  return number_of(field_of(object, key));
}

inline std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}
inline std::string text_of(const nlohmann::json& object, const char* key) { return text_of(field_of(object, key)); }

inline bool flag_of(const nlohmann::json& object, const char* key) { return field_of(object, key) == true; }

inline const nlohmann::json& list_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const nlohmann::json& list = field_of(object, key);
  return list.is_array() ? list : kEmpty;
}

inline const nlohmann::json& item_of(const nlohmann::json& list, std::size_t index) {
  static const nlohmann::json kNothing;
  return list.is_array() && index < list.size() ? list[index] : kNothing;
}

/// Texts in list `key` of `object`, without other values.
inline std::vector<std::string> json_texts(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts;
  for (const nlohmann::json& item : list_of(object, key))
    if (item.is_string()) texts.push_back(item);
  return texts;
}

}  // namespace p2pd
