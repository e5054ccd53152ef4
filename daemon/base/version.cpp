// SPDX-License-Identifier: MIT
#include "base/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace p2pd {

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    version.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != '.' || version.size() == 4) return std::nullopt;
  }
  if (version.size() < 2) return std::nullopt;
  return version;
}

std::string dotted(const Version& version) { return fmt::format("{}", fmt::join(version, ".")); }

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Weight of the first character; a digit or the end ends the part that is not a number.
int weight(std::string_view text) {
  if (text.empty() || is_digit(text.front())) return 0;
  const char c = text.front();
  if (c == '~') return -1;
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return static_cast<unsigned char>(c) + (letter ? 0 : 256);
}

std::string_view take_number(std::string_view& text) {
  while (text.starts_with('0')) text.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  const std::string_view number = text.substr(0, digits);
  text.remove_prefix(digits);
  return number;
}

}  // namespace

// Follows verrevcmp() of dpkg; compares numbers as texts, because they can be longer than any integer.
int compare_versions(std::string_view one, std::string_view other) {
  while (!one.empty() || !other.empty()) {
    while ((!one.empty() && !is_digit(one.front())) || (!other.empty() && !is_digit(other.front()))) {
      const int difference = weight(one) - weight(other);
      if (difference != 0) return difference;
      one.remove_prefix(1);  // the weights are equal and not both zero: neither is at its end
      other.remove_prefix(1);
    }
    const std::string_view left = take_number(one);
    const std::string_view right = take_number(other);
    if (left.size() != right.size()) return left.size() < right.size() ? -1 : 1;
    if (const int difference = left.compare(right); difference != 0) return difference;
  }
  return 0;
}

}  // namespace p2pd
