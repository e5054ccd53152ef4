// SPDX-License-Identifier: MIT
#include "screen/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "machine/driver/machine.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd::ctl {
namespace {

constexpr std::size_t kLongest = 52;  ///< for a word: a kernel argument lists ports

std::string without_parentheses(const std::string& text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' && depth++ == 0 && out.ends_with(' ')) out.pop_back();
    if (depth == 0) out += c;
    if (c == ')' && depth > 0) --depth;
  }
  return out;
}

/// Position at which to cut `word`: after the last list item that fits, and never within a UTF-8 character.
std::size_t end_of(const std::string& word) {
  if (const std::size_t item = word.find_last_of(";,", kLongest); item != std::string::npos) return item + 1;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) --end;
  return end;
}

std::string shortened_words(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word; out += (out.empty() ? "" : " ") + word)
    if (word.size() > kLongest) word = word.substr(0, end_of(word)) + "…";
  return out;
}

}  // namespace

std::string shortened(const std::string& text, std::size_t limit) {
  std::string out = shortened_words(text);
  if (out.size() > limit) out = without_parentheses(out);
  if (out.size() <= limit) return out;
  std::size_t end = out.rfind("; ", limit - 2);
  if (end == out.npos) end = out.rfind(": ", limit - 2);
  if (end == out.npos || end < limit / 2) end = out.rfind(' ', limit - 2);
  return out.substr(0, end) + " …";
}

std::string machine_text(const Host& host) {
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  std::vector<std::string> parts;
  if (std::string gpus = groups_text(devices); !gpus.empty()) parts.push_back(std::move(gpus));
  if (const std::string system = distribution(host).text(); !system.empty()) parts.push_back(system);
  if (const auto kernel = host.line("/proc/sys/kernel/osrelease")) parts.push_back("Linux " + *kernel);
  if (const auto driver = host.line(kLoadedDriver)) parts.push_back("driver " + *driver);
  return shortened(fmt::format("{}", fmt::join(parts, "; ")), 2 * kScreen);
}

}  // namespace p2pd::ctl
