// SPDX-License-Identifier: MIT
#include "base/redact.hpp"

#include <algorithm>
#include <cctype>

namespace p2pd {
namespace {

constexpr std::string_view kIdentifies[] = {"serial", "uuid", "guid", "pdi", "host id"};
/// Kernel arguments whose value may name the host, its network or a secret.
constexpr std::string_view kPrivateArguments[] = {"hostname=", "systemd.hostname=", "ip=",   "nfsroot=",
                                                  "ds=",       "password=",         "key=",  "url=",
                                                  "ks=",       "cloud-config-url=", "ifname="};

bool contains_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

/// Letters and digits of a value become zeros; "N/A" and "GPU-" stay.
std::string zeroed(std::string_view value) {
  std::string text(value);
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos || text.compare(first, std::string::npos, "N/A") == 0) return text;
  const std::size_t begin = text.compare(first, 4, "GPU-") == 0 ? first + 4 : first;
  std::for_each(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), [](char& c) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) c = '0';
  });
  return text;
}

/// The host in "(root@host)", which names who built a module, becomes "host".
std::string without_builder(std::string line) {
  const std::size_t at = line.find('@');
  const std::size_t end = at == std::string::npos ? at : line.find_first_of(") ", at);
  if (end != std::string::npos && end > at + 1) line.replace(at + 1, end - at - 1, "host");
  return line;
}

std::string line_without_identity(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return std::string(line);
  const std::string_view key = line.substr(0, colon);
  const std::string kept(line.substr(0, colon + 1));
  const std::string_view word = key.substr(std::min(key.find_first_not_of(" \t"), key.size()));
  if (word.substr(0, word.find_last_not_of(" \t") + 1) == "Name") return kept + " process";
  const bool identifies = std::ranges::any_of(kIdentifies, [&](std::string_view w) { return contains_word(key, w); });
  return identifies ? kept + zeroed(line.substr(colon + 1)) : without_builder(std::string(line));
}

}  // namespace

std::string without_identity(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    result += line_without_identity(text.substr(0, end));
    if (end == std::string_view::npos) break;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  return result;
}

std::string without_private_arguments(std::string text) {
  for (const std::string_view argument : kPrivateArguments) {
    for (std::size_t at = text.find(argument); at != std::string::npos; at = text.find(argument, at + argument.size())) {
      if (at > 0 && std::string_view(" \t\n\"'").find(text[at - 1]) == std::string_view::npos) continue;
      const std::size_t value = at + argument.size();
      const std::size_t end = std::min(text.find_first_of(" \t\n\"'", value), text.size());
      text.replace(value, end - value, "removed");
    }
  }
  return text;
}

}  // namespace p2pd
