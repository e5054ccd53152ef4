// SPDX-License-Identifier: MIT
#include "machine/packages/paragraphs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

Result<std::vector<Paragraph>> parse_paragraphs(std::string_view text, std::initializer_list<std::string_view> wanted) {
  if (!text.empty() && !text.ends_with('\n')) return fail(ErrorCode::invalid, "it ends in the middle of a line");
  std::vector<Paragraph> paragraphs;
  std::string* value = nullptr;  // field that the next line may continue
  bool open = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const char* begin = text.data();
    text.remove_prefix(line.size() + 1);
    if (trimmed(line).empty()) {
      open = false;
      continue;
    }
    const bool goes_on = line.front() == ' ' || line.front() == '\t';
    const std::size_t colon = line.find(':');
    if (!goes_on && colon == std::string_view::npos)
      return fail(ErrorCode::invalid, fmt::format("line {}: not a field", number));
    if (!open && goes_on) continue;  // dpkg ignores a continuation without a field
    if (!std::exchange(open, true)) paragraphs.push_back({number, std::string_view(begin, begin), {}});
    Paragraph& paragraph = paragraphs.back();
    paragraph.text = {paragraph.text.data(), static_cast<std::size_t>(text.data() - paragraph.text.data())};
    if (goes_on) {
      if (value != nullptr) *value += "\n" + std::string(trimmed(line));
      continue;
    }
    const std::string name = lower_case(line.substr(0, colon));
    value = std::ranges::find(wanted, name) == wanted.end() ? nullptr : &paragraph.fields[name];
    if (value != nullptr) *value = trimmed(line.substr(colon + 1));
  }
  return paragraphs;
}

}  // namespace p2pd
