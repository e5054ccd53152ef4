// SPDX-License-Identifier: MIT
#include "base/url.hpp"

#include <algorithm>

namespace p2pd {

std::string without_user_info(std::string text) {
  constexpr std::string_view kBehind = "/?# \t\r\n\"<>`\\";  // ends of an authority, in no password: RFC 3986, 3.2.1
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at)) {
    const std::size_t begin = at + 3, end = std::min(text.find_first_of(kBehind, begin), text.size());
    const std::size_t mark = begin < end ? text.rfind('@', end - 1) : std::string::npos;
    at = end;
    if (mark == std::string::npos || mark < begin) continue;
    text.erase(begin, mark + 1 - begin);
    at = end - (mark + 1 - begin);
  }
  return text;
}

std::optional<std::string> local_path(std::string_view url) {
  if (!url.starts_with("file:///")) return std::nullopt;
  return std::string(url.substr(7));
}

}  // namespace p2pd
