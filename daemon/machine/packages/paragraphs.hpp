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
  int line = 0;                               ///< of its first field, from 1
  std::string_view text;                      ///< as it stands, with its last newline; of the text that was read
  std::map<std::string, std::string> fields;  ///< by lower-case name; lines that go on are apart by '\n'

  std::string value(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// Reads all paragraphs, and of their fields the `wanted` ones (lower case). ErrorCode::invalid names the line that is
/// no field; a text that ends in the middle of a line is one, too.
Result<std::vector<Paragraph>> parse_paragraphs(std::string_view text, std::initializer_list<std::string_view> wanted);

}  // namespace p2pd
