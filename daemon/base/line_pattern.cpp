// SPDX-License-Identifier: MIT
#include "base/line_pattern.hpp"

#include <cstring>
#include <optional>

namespace p2pd {
namespace {

constexpr unsigned kMostElements = 63;  // leaves one of 64 bits for "all matched"
constexpr std::size_t kLeastLiteral = 3;
using Bytes = std::array<bool, 256>;

std::size_t index_of(char c) { return static_cast<unsigned char>(c); }

/// Takes "[...]" off `rest`, which starts after the bracket; nullopt if it does not end.
std::optional<Bytes> take_class(std::string_view& rest) {
  Bytes bytes{};
  const bool negated = rest.starts_with('^');
  if (negated) rest.remove_prefix(1);
  for (bool first = true; !rest.empty(); first = false) {
    const char low = rest.front();
    rest.remove_prefix(1);
    if (low == ']' && !first) {
      if (negated)
        for (bool& byte : bytes) byte = !byte;
      return bytes;
    }
    char high = low;
    if (rest.size() > 1 && rest[0] == '-' && rest[1] != ']') {
      high = rest[1];
      rest.remove_prefix(2);
    }
    for (std::size_t byte = index_of(low); byte <= index_of(high); ++byte) bytes[byte] = true;
  }
  return std::nullopt;
}

}  // namespace

void LinePattern::add(const Bytes& accepted, char quantifier) {
  const std::uint64_t bit = std::uint64_t{1} << count_++;
  for (std::size_t byte = 0; byte < accepted.size(); ++byte)
    if (accepted[byte]) accepts_[byte] |= bit;
  if (quantifier == '*' || quantifier == '+') repeats_ |= bit;
  if (quantifier == '*' || quantifier == '?') optional_ |= bit;
}

Result<LinePattern> LinePattern::parse(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::invalid, "pattern '" + std::string(text) + "': " + std::string(why));
  };
  LinePattern pattern;
  std::string literal;
  for (std::string_view rest = text; !rest.empty();) {
    char c = rest.front();
    rest.remove_prefix(1);
    Bytes bytes{};
    bool plain = false;
    if (c == '[') {
      const auto listed = take_class(rest);
      if (!listed) return refuse("a class that does not end");
      bytes = *listed;
    } else if (c == '.') {
      bytes.fill(true);
    } else {
      if (std::string_view("()|{}^$*+?").find(c) != std::string_view::npos) return refuse(std::string("no ") + c);
      if (c == '\\') {
        if (rest.empty()) return refuse("it ends with a backslash");
        c = rest.front();
        rest.remove_prefix(1);
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
          return refuse("no letter escapes");
      }
      bytes[index_of(c)] = plain = true;
    }
    char quantifier = 0;
    if (!rest.empty() && (rest.front() == '*' || rest.front() == '+' || rest.front() == '?')) {
      quantifier = rest.front();
      rest.remove_prefix(1);
    }
    if (pattern.count_ == kMostElements) return refuse("more than 63 elements");
    pattern.add(bytes, quantifier);
    if (plain && quantifier == 0)
      literal += c;
    else
      literal.clear();
    if (literal.size() > pattern.literal_.size()) pattern.literal_ = literal;
  }
  if (pattern.literal_.size() < kLeastLiteral) return refuse("at least three plain characters in a row are wanted");
  return pattern;
}

bool LinePattern::matches(std::string_view line, bool at_start) const {
  if (::memmem(line.data(), line.size(), literal_.data(), literal_.size()) == nullptr) return false;
  const std::uint64_t done = std::uint64_t{1} << count_;
  std::uint64_t states = 0;  // bit i: all elements before i are matched, ending here
  for (std::size_t at = 0;; ++at) {
    if (at == 0 || !at_start) states |= 1;
    if (states == 0) return false;
    for (std::uint64_t more = states; more != 0;) {  // skips optional elements
      more = ((more & optional_) << 1) & ~states;
      states |= more;
    }
    if ((states & done) != 0) return true;
    if (at == line.size()) return false;
    const std::uint64_t taken = states & accepts_[index_of(line[at])];
    states = (taken << 1) | (taken & repeats_);
  }
}

}  // namespace p2pd
