// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One object of a table that people write. Each key is read once; done() names the first mistake: a key that is
/// missing, has an impossible value, or was not read. A wrong value reads as empty until then.
class JsonFields {
 public:
  enum class Need { required, optional, nullable };  ///< nullable: required key whose value may be null
  using Test = bool (*)(std::string_view);
  using RowTest = bool (*)(const std::string& key, const nlohmann::json& value);

  /// `object` must outlive this; `where` is put in front of the mistake.
  explicit JsonFields(const nlohmann::json& object, std::string where = {});

  std::string text(const char* key, Test good, Need need = Need::required);
  std::vector<std::string> texts(const char* key, Test good, Need need);
  std::vector<int> integers(const char* key);   ///< numbers from 0 to 1000; empty if absent
  std::optional<int> integer(const char* key);  ///< number from 0 to 1000
  std::uint64_t bytes(const char* key);         ///< number above 0; 0 if absent
  bool boolean(const char* key);                ///< required key
  const nlohmann::json& list(const char* key, Need need);
  nlohmann::json object(const char* key, RowTest good, Need need = Need::optional);  ///< empty if absent

  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }
  void wrong(std::string what);
  Result<void> done();

 private:
  const nlohmann::json* find(const char* key, Need need);
  void spoil(const char* key);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> asked_;
  std::string wrong_;
};

}  // namespace p2pd
