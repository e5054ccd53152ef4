// SPDX-License-Identifier: MIT
#include "base/wrap.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <vector>

namespace p2pd {
namespace {

/// Splits `text` into words. A text in double quotes is one word if it has at most `most` columns.
std::vector<std::string> words_of(const std::string& text, std::size_t most, ColumnsOf columns) {
  std::istringstream in(text);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  std::vector<std::string> out;
  for (auto word = words.begin(); word != words.end(); ++word) {
    out.push_back(*word);
    if (word->front() != '"' || word->find('"', 1) != word->npos) continue;
    const auto last =
        std::find_if(word + 1, words.end(), [](const std::string& one) { return one.find('"') != one.npos; });
    if (last == words.end()) continue;
    const std::string whole = fmt::format("{}", fmt::join(word, last + 1, " "));
    if (columns(whole) > most) continue;
    out.back() = whole;
    word = last;
  }
  return out;
}

}  // namespace

std::string wrap(const std::string& text, std::size_t indent, std::size_t width, ColumnsOf columns) {
  std::string out;
  std::size_t at = 0;
  for (const std::string& word : words_of(text, width - std::min(indent, width), columns)) {
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
