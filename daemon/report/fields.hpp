// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "base/json_members.hpp"

namespace p2pd::ctl {

// Fields of JSON from another program or an untrusted file: an absent field, or one of another type, reads as empty.

inline std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}
inline std::string text_of(const nlohmann::json& object, const char* key) { return text_of(field_of(object, key)); }

inline const nlohmann::json& list_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const nlohmann::json& list = field_of(object, key);
  return list.is_array() ? list : kEmpty;
}

inline const nlohmann::json& item_of(const nlohmann::json& list, std::size_t index) {
  static const nlohmann::json kNothing;
  return list.is_array() && index < list.size() ? list[index] : kNothing;
}

/// Entry [row][column] of a list of lists.
inline const nlohmann::json& cell_of(const nlohmann::json& grid, std::size_t row, std::size_t column) {
  return item_of(item_of(grid, row), column);
}

inline std::optional<double> number_of(const nlohmann::json& value) { return json_number<double>(value); }
inline std::optional<double> number_of(const nlohmann::json& object, const char* key) {
  return number_of(field_of(object, key));
}

/// Seconds since 1970 of a time in ISO 8601 UTC; nothing for other text.
inline std::optional<std::int64_t> unix_time(const std::string& time) {
  std::tm parts{};
  const char* end = ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&parts);
}

/// "45 s", "2 min 5 s", "1 h 3 min", "12 days"
inline std::string duration_text(std::int64_t seconds) {
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds < 172'800) return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{} days", seconds / 86'400);
}

inline bool flag_of(const nlohmann::json& object, const char* key) { return field_of(object, key) == true; }

}  // namespace p2pd::ctl
