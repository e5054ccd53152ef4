// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace p2pd::sim {

/// One JSON object, every key of which must be asked for.
class Object {
 public:
  Object(const nlohmann::json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) broken("is not an object");
  }
  [[noreturn]] void broken(const std::string& why) const { throw std::runtime_error(where_ + " " + why); }

  const nlohmann::json* find(const char* key) {
    asked_.insert(key);
    const auto found = value_.find(key);
    return found == value_.end() ? nullptr : &*found;
  }
  std::optional<std::string> text(const char* key) {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_string()) broken(std::string(key) + " is not a text");
    return found->get<std::string>();
  }
  std::optional<bool> yes(const char* key) {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_boolean()) broken(std::string(key) + " is not true or false");
    return found->get<bool>();
  }
  std::optional<std::uint64_t> natural(const char* key, std::uint64_t most = ~0ULL) {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_number_integer() || *found < 0 || found->get<std::uint64_t>() > most)
      broken(std::string(key) + " is no fitting number");
    return found->get<std::uint64_t>();
  }
  std::optional<int> number(const char* key, int most) {
    const auto found = natural(key, static_cast<std::uint64_t>(std::max(most, 0)));
    if (found && most < 0) broken(std::string(key) + " names no device");
    return found ? std::optional(static_cast<int>(*found)) : std::nullopt;
  }
  std::optional<double> positive(const char* key) {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_number() || found->get<double>() <= 0) broken(std::string(key) + " is not a positive number");
    return found->get<double>();
  }
  template <class Value>
  Value needed(std::optional<Value> value, const char* key) const {
    if (!value) broken("has no " + std::string(key));
    return *std::move(value);
  }
  void end() const {
    for (const auto& [key, value] : value_.items())
      if (!asked_.contains(key)) broken("has an unknown key \"" + key + "\"");
  }

 private:
  const nlohmann::json& value_;
  std::string where_;
  std::set<std::string> asked_;
};

/// The rows of a list that may be missing, each with its name for messages.
inline std::vector<Object> rows(Object& object, const char* key) {
  std::vector<Object> found;
  const nlohmann::json* list = object.find(key);
  if (list == nullptr) return found;
  if (!list->is_array()) object.broken(std::string(key) + " is not a list");
  for (const nlohmann::json& row : *list)
    found.emplace_back(row, std::string(key) + "[" + std::to_string(found.size()) + "]");
  return found;
}

}  // namespace p2pd::sim
