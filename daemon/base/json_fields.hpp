// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_struct.hpp"

namespace p2pd {

/// One object of a table that people write. Each key is read once; done() names the first mistake: a key that is
/// missing, has an impossible value, or was not read. A wrong value reads as empty until then.
class JsonFields {
 public:
  enum class Need { required, optional };
  using Test = bool (*)(std::string_view);
  using RowTest = bool (*)(const std::string& key, const nlohmann::json& value);

  /// `object` must outlive this; `where` is put in front of the mistake.
  explicit JsonFields(const nlohmann::json& object, std::string where = {});

  std::string text(const char* key, Test good, Need need = Need::required) {
    return read<std::string>(key, good, need);
  }
  std::vector<std::string> texts(const char* key, Test good, Need need) {
    const auto all_good = [&](const std::vector<std::string>& texts) { return std::ranges::all_of(texts, good); };
    return read<std::vector<std::string>>(key, all_good, need);
  }
  /// Number from 0 to 1000.
  std::optional<int> integer(const char* key) {
    const auto is_small = [](std::optional<int> value) { return value && *value >= 0 && *value <= 1000; };
    return read<std::optional<int>>(key, is_small, Need::optional);
  }
  /// Number above 0; 0 if absent.
  std::uint64_t bytes(const char* key) {
    return read<std::uint64_t>(
        key, [](std::uint64_t value) { return value > 0; }, Need::optional);
  }
  /// False if absent.
  bool flag(const char* key) {
    return read<bool>(
        key, [](bool) { return true; }, Need::optional);
  }
  nlohmann::json object(const char* key, RowTest good, Need need = Need::optional);  ///< empty if absent

  void wrong(std::string what);
  Result<void> done();

 private:
  template <class Value, class Good>
  Value read(const char* key, Good good, Need need) {
    Value value{};
    const nlohmann::json* found = find(key, need);
    if (found == nullptr || (JsonReader(true).read(*found, value) && good(value))) return value;
    spoil(key);
    return {};
  }
  const nlohmann::json* find(const char* key, Need need);
  void spoil(const char* key);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> asked_;
  std::string wrong_;
};

}  // namespace p2pd
