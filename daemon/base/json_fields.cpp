// SPDX-License-Identifier: MIT
#include "base/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {
namespace {

using Json = nlohmann::json;

bool is_small(const Json& value) { return value.is_number_unsigned() && value <= 1000U; }

}  // namespace

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) wrong("not an object");
}

std::string JsonFields::text(const char* key, Test good, Need need) {
  const Json* value = find(key, need);
  if (value == nullptr) return {};
  if (value->is_string() && good(value->get_ref<const std::string&>())) return *value;
  spoil(key);
  return {};
}

std::vector<std::string> JsonFields::texts(const char* key, Test good, Need need) {
  const Json& items = list(key, need);
  const auto fits = [&](const Json& item) { return item.is_string() && good(item.get_ref<const std::string&>()); };
  if (std::ranges::all_of(items, fits)) return items;
  spoil(key);
  return {};
}

std::vector<int> JsonFields::integers(const char* key) {
  const Json& items = list(key, Need::optional);
  if (std::ranges::all_of(items, is_small)) return items;
  spoil(key);
  return {};
}

std::optional<int> JsonFields::integer(const char* key) {
  const Json* value = find(key, Need::optional);
  if (value == nullptr) return std::nullopt;
  if (is_small(*value)) return value->get<int>();
  spoil(key);
  return std::nullopt;
}

std::uint64_t JsonFields::bytes(const char* key) {
  const Json* value = find(key, Need::optional);
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && *value > 0U) return value->get<std::uint64_t>();
  spoil(key);
  return 0;
}

bool JsonFields::boolean(const char* key) {
  const Json* value = find(key, Need::required);
  if (value == nullptr) return false;
  if (!value->is_boolean()) spoil(key);
  return *value == true;
}

const Json& JsonFields::list(const char* key, Need need) {
  static const Json kNone = Json::array();
  const Json* value = find(key, need);
  if (value == nullptr) return kNone;
  if (value->is_array()) return *value;
  spoil(key);
  return kNone;
}

Json JsonFields::object(const char* key, RowTest good, Need need) {
  const Json* value = find(key, need);
  if (value == nullptr) return Json::object();
  bool sound = value->is_object();
  if (sound)
    for (const auto& [name, item] : value->items()) sound = sound && good(name, item);
  if (sound) return *value;
  spoil(key);
  return Json::object();
}

void JsonFields::wrong(std::string what) {
  if (wrong_.empty()) wrong_ = where_ + std::move(what);
}

Result<void> JsonFields::done() {
  if (object_.is_object())
    for (const auto& item : object_.items())
      if (!asked_.contains(item.key())) wrong("unknown key '" + item.key() + "'");
  if (!wrong_.empty()) return fail(ErrorCode::invalid, wrong_);
  return {};
}

const Json* JsonFields::find(const char* key, Need need) {
  asked_.insert(key);
  const auto found = object_.is_object() ? object_.find(key) : object_.end();
  if (found == object_.end()) {
    if (need != Need::optional) wrong(fmt::format("'{}' is missing", key));
    return nullptr;
  }
  return need == Need::nullable && found->is_null() ? nullptr : &*found;
}

void JsonFields::spoil(const char* key) {
  wrong(fmt::format("'{}' cannot be {:.60}", key, object_.at(key).dump(-1, ' ', true, Json::error_handler_t::replace)));
}

}  // namespace p2pd
