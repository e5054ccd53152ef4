// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace p2pd {

/// A paragraph of a control file, as dpkg and apt write them: deb822(5).
struct Paragraph {
  int line = 0;                               ///< line of its first field, from 1
  std::string_view text;                      ///< text as read, with its last newline; a part of the parsed text
  std::map<std::string, std::string> fields;  ///< values by lower-case name; '\n' separates continued lines

  std::string value(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// Parses all paragraphs, and the `wanted` ones of their fields (lower case). ErrorCode::invalid names the line that is
/// no field, or reports a text that ends in the middle of a line.
Result<std::vector<Paragraph>> parse_paragraphs(std::string_view text, std::initializer_list<std::string_view> wanted);

}  // namespace p2pd
