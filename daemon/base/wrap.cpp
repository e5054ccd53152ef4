// SPDX-License-Identifier: MIT
#include "base/wrap.hpp"

#include <algorithm>
#include <sstream>

namespace p2pd {

std::string wrap(const std::string& text, std::size_t indent, std::size_t width, ColumnsOf columns) {
  std::istringstream words(text);
  std::string out;
  std::string word;
  std::size_t at = 0;
  while (words >> word) {
    if (at > 0 && indent + at + 1 + columns(word) > width) {
      out += "\n" + std::string(indent, ' ');
      at = 0;
    }
    out += (at > 0 ? " " : "") + word;
    at += columns(word) + (at > 0 ? 1 : 0);
  }
  return out;
}

std::string narrow_help(const std::string& help) {
  constexpr std::size_t kColumns = 80;
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name_at = line.find_first_not_of(' '), gap = line.find("  ", name_at);
    const std::size_t text_at = gap == line.npos ? line.npos : line.find_first_not_of(' ', gap);
    const std::size_t at = line.size() <= kColumns ? line.npos
                           : text_at == line.npos  ? std::min(name_at, line.size())
                                                   : text_at;
    out += at == line.npos ? line : line.substr(0, at) + wrap(line.substr(at), at, kColumns);
    out += '\n';
  }
  return out;
}

}  // namespace p2pd
