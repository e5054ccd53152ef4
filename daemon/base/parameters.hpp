// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

using Parameters = nlohmann::json;  ///< object of parameter names and values

/// One parameter that a probe or action takes.
struct Parameter {
  enum class Type { boolean, integer, string, strings, object };
  std::string_view name;
  Type type;
  bool required;
  std::string_view meaning;  ///< one line, shown by `p2pctl explain`
};

std::string_view to_string(Parameter::Type type);

/// Checks that `value` has the type that `parameter` declares.
bool fits(const Parameter& parameter, const nlohmann::json& value);

/// Checks the name of a plan or step: a-z, 0-9 and -, 1 to 64 characters.
bool is_name(std::string_view word);

/// "; did you mean "NAME"?" with the candidate most similar to `word`, or empty if none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace p2pd
