// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace p2pd {

/// Returns the texts in list `key` of `object`, which comes from outside; skips other values. Returns none if there is
/// no list.
inline std::vector<std::string> json_texts(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts;
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_array()) return texts;
  for (const nlohmann::json& item : *found)
    if (item.is_string()) texts.push_back(item);
  return texts;
}

}  // namespace p2pd
