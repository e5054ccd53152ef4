// SPDX-License-Identifier: MIT
#include "base/utf8.hpp"

#include <algorithm>

namespace p2pd {

std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf && follows(1)) return 2;
  if (lead >= 0xe0 && lead <= 0xef && follows(1) && follows(2)) {
    const bool overlong = lead == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = lead == 0xed && byte(1) > 0x9f;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4 && follows(1) && follows(2) && follows(3)) {
    const bool overlong = lead == 0xf0 && byte(1) < 0x90;
    const bool beyond = lead == 0xf4 && byte(1) > 0x8f;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string as_utf8(std::string_view text) {
  const auto is_character = [](std::string_view code) {  // not U+FDD0 to U+FDEF, nor the last two of a plane
    if (code.starts_with("\xef\xb7")) return code[2] < '\x90' || code[2] > '\xaf';
    const bool last = code.ends_with("\xbf\xbe") || code.ends_with("\xbf\xbf");
    return !last || (code.size() == 3 ? code[0] != '\xef' : code.size() != 4 || (code[1] & 0xf) != 0xf);
  };
  std::string out;
  while (!text.empty()) {
    std::size_t length = utf8_sequence(text);
    if (length > 0 && !is_character(text.substr(0, length))) length = 0;
    out += length > 0 ? text.substr(0, length) : "\ufffd";
    text.remove_prefix(std::max(length, std::size_t{1}));
  }
  return out;
}

}  // namespace p2pd
