// SPDX-License-Identifier: MIT
#include "base/parameters.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace p2pd {
namespace {

/// Levenshtein distance: insertions, deletions and replacements between `a` and `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string_view to_string(Parameter::Type type) {
  constexpr std::string_view kNames[] = {"boolean", "integer", "string", "list of strings", "mapping"};
  return kNames[static_cast<std::size_t>(type)];
}

bool fits(const Parameter& parameter, const nlohmann::json& value) {
  switch (parameter.type) {
    case Parameter::Type::boolean: return value.is_boolean();
    case Parameter::Type::integer: return value.is_number_integer();
    case Parameter::Type::string: return value.is_string();
    case Parameter::Type::strings:
      return value.is_array() &&
             std::all_of(value.begin(), value.end(), [](const auto& item) { return item.is_string(); });
    case Parameter::Type::object: return value.is_object();
  }
  return false;
}

bool is_name(std::string_view word) {
  return !word.empty() && word.size() <= 64 &&
         std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongest = 128;  // limit above any name: a huge key must not cost quadratic time
  if (word.size() > kLongest) return {};
  std::size_t best = std::min(word.size() / 3 + 2, word.size());  // smallest distance that is too far
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t d = distance(word, candidate);
    if (d < best) {
      best = d;
      found = candidate;
    }
  }
  return found.empty() ? "" : "; did you mean \"" + std::string(found) + "\"?";
}

}  // namespace p2pd
