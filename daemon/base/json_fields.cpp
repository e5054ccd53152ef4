// SPDX-License-Identifier: MIT
#include "base/json_fields.hpp"

#include <fmt/format.h>

namespace p2pd {

using Json = nlohmann::json;

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) wrong("not an object");
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
    if (need == Need::required) wrong(fmt::format("'{}' is missing", key));
    return nullptr;
  }
  return &*found;
}

void JsonFields::spoil(const char* key) {
  wrong(fmt::format("'{}' cannot be {:.60}", key, object_.at(key).dump(-1, ' ', true, Json::error_handler_t::replace)));
}

}  // namespace p2pd
