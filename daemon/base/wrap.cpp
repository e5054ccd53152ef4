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

std::string narrow(const std::string& line) {
  if (line.size() <= kColumns) return line;
  const std::size_t name_at = line.find_first_not_of(' '), gap = line.find("  ", name_at);
  const std::size_t text_at = gap == line.npos ? line.npos : line.find_first_not_of(' ', gap);
  const std::size_t at = text_at == line.npos ? std::min(name_at, line.size()) : text_at;
  return line.substr(0, at) + wrap(line.substr(at), at, kColumns);
}

std::string narrow_help(const std::string& help) {
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += narrow(line) + '\n';
  return out;
}

}  // namespace p2pd
