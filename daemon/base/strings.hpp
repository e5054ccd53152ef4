// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace p2pd {

/// Strings of a row of a table. It is a call because clang-format puts several arguments, but not several
/// items of a long braced list, on a line.
template <class... Literal>
std::vector<const char*> strings(Literal... literals) {
  return {literals...};
}

/// `text` with lower-case letters of ASCII, whatever the locale.
inline std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

/// `text` with a capital as its first letter, of ASCII.
inline std::string capitalized(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

}  // namespace p2pd
