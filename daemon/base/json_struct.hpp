// SPDX-License-Identifier: MIT
// Structs as JSON. A struct lists its members once, for both directions; an enumeration is text, that of to_string(),
// and names its last value for reading:
//
//   template <>
//   constexpr auto kFields<Link> = std::tuple(field("address", &Link::address), field("width", &Link::width));
//   template <>
//   constexpr auto kLast<Grade> = Grade::fail;
//
// A missing std::optional is null. Include it where structs are read and written, not in their headers.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/json.hpp"
#include "base/json_members.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Member of a struct, and its name in JSON.
template <class Whole, class Value>
struct Field {
  const char* name;
  Value Whole::*member;
  bool added;  ///< documents of earlier versions lack it
};
template <class Whole, class Value>
constexpr Field<Whole, Value> field(const char* name, Value Whole::*member) {
  return {name, member, false};
}
template <class Whole, class Value>
constexpr Field<Whole, Value> added_field(const char* name, Value Whole::*member) {
  return {name, member, true};
}
template <class Whole>
constexpr auto kFields = nullptr;
template <class Enum>
constexpr auto kLast = nullptr;

template <class Type>
concept HasFields = std::is_class_v<Type> && !std::is_null_pointer_v<std::remove_const_t<decltype(kFields<Type>)>>;
template <class Type>
concept Enumeration = std::is_enum_v<Type>;

/// Writes values as JSON.
struct JsonWriter {
  template <class Value>
  static nlohmann::json json(const Value& value) {
    return value;
  }
  template <Enumeration Enum>
  static nlohmann::json json(const Enum& value) {
    return to_string(value);
  }
  template <class Value>
  static nlohmann::json json(const std::optional<Value>& value) {
    return value ? json(*value) : nlohmann::json();
  }
  template <class Value>
  static nlohmann::json json(const std::vector<Value>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const Value& value : values) list.push_back(json(value));
    return list;
  }
  template <HasFields Whole>
  static nlohmann::json json(const Whole& whole) {
    nlohmann::json object = nlohmann::json::object();
    const auto put = [&](const auto& field) { object[field.name] = json(whole.*field.member); };
    std::apply([&](const auto&... fields) { (put(fields), ...); }, kFields<Whole>);
    return object;
  }
};

/// Reads JSON from another process or a file. `strict`: stops at the first value that is missing, of another type or
/// out of range. Otherwise such a value keeps its default, also in a list, of which the first kMostItems count.
class JsonReader {
 public:
  static constexpr std::size_t kMostItems = 4096;  ///< every pair of 64 GPUs

  explicit JsonReader(bool strict) : strict_(strict) {}

  /// Path of the value at which it stopped: "/pairs/1/chase_ns".
  const std::string& where() const { return where_; }

  template <JsonNumber Number>
  bool read(const nlohmann::json& json, Number& number) {
    const auto found = json_number<Number>(json);
    if (found) number = *found;
    return found.has_value();
  }
  bool read(const nlohmann::json& json, bool& value) {
    if (json.is_boolean()) value = json;
    return json.is_boolean();
  }
  bool read(const nlohmann::json& json, std::string& text) {
    if (json.is_string()) text = json;
    return json.is_string();
  }
  template <Enumeration Enum>
  bool read(const nlohmann::json& json, Enum& value) {
    const std::string text = text_of(json);
    for (int i = 0; i <= static_cast<int>(kLast<Enum>); ++i) {
      if (to_string(static_cast<Enum>(i)) != text) continue;
      value = static_cast<Enum>(i);
      return true;
    }
    return false;
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::optional<Value>& value) {
    if (json.is_null() || read(json, value.emplace())) return true;
    value.reset();
    return false;
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::vector<Value>& values) {
    return json.is_array() && std::ranges::all_of(json, [&](const nlohmann::json& item) {
             if (!strict_ && values.size() == kMostItems) return true;
             const std::string number = std::to_string(values.size());
             return at(number, item, values.emplace_back());
           });
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::map<std::string, Value>& values) {
    if (!json.is_object()) return false;
    for (const auto& [key, item] : json.items())
      if (!at(key, item, values[key])) return false;
    return true;
  }
  template <HasFields Whole>
  bool read(const nlohmann::json& json, Whole& whole) {
    static const nlohmann::json kMissing(nlohmann::json::value_t::discarded);
    const auto take = [&](const auto& field) {
      const auto found = json.find(field.name);
      if (found == json.end() && field.added) return true;
      return at(field.name, found == json.end() ? kMissing : *found, whole.*field.member);
    };
    return json.is_object() && std::apply([&](const auto&... fields) { return (take(fields) && ...); }, kFields<Whole>);
  }

 private:
  template <class Value>
  bool at(const std::string& key, const nlohmann::json& json, Value& value) {
    const bool sound = read(json, value) || !strict_;
    if (!sound) where_.insert(0, "/" + key);
    return sound;
  }

  bool strict_;
  std::string where_;
};

/// Struct from `json`; an Error names the first invalid value.
template <HasFields Whole>
Result<Whole> struct_from(const nlohmann::json& json) {
  Whole whole;
  JsonReader reader(true);
  if (reader.read(json, whole)) return whole;
  return fail(ErrorCode::invalid, reader.where().empty()
                                      ? "not an object"
                                      : reader.where() + " is missing, or not a value that it can have");
}

}  // namespace p2pd
