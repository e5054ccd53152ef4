// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

using Parameters = nlohmann::json;  ///< an object: parameter name to value

/// One parameter that a probe or action takes.
struct Parameter {
  enum class Type { boolean, integer, string, strings, object };
  std::string_view name;
  Type type;
  bool required;
  std::string_view meaning;  ///< one line, shown by `p2pctl explain`
};

std::string_view to_string(Parameter::Type type);

/// True when `value` is of the type that `parameter` wants.
bool fits(const Parameter& parameter, const nlohmann::json& value);

/// What plans and steps are called: a-z, 0-9 and -, 1 to 64 of them.
bool is_name(std::string_view word);

/// The candidate that is spelled most like `word`, or empty when none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace p2pd
