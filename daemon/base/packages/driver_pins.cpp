// SPDX-License-Identifier: MIT
#include "base/packages/driver_pins.hpp"

#include <fmt/format.h>

#include <sstream>

#include "base/packages/driver_packages.hpp"
#include "base/packages/paragraphs.hpp"

namespace p2pd {

std::string driver_preferences() {
  std::string globs;
  for (const DriverPattern& pattern : driver_patterns()) globs += fmt::format(" {}", pattern.glob);
  return fmt::format(
      "Explanation: Written by p2pd. A driver by runfile is installed, or about to be: packages of another one would\n"
      "Explanation: overwrite its files. \"p2pctl revert\" takes this away.\n"
      "Package:{}\nPin: version *\nPin-Priority: -1\n",
      globs);
}

std::vector<std::string> driver_expressions() {
  std::vector<std::string> expressions;
  for (const DriverPattern& pattern : driver_patterns()) {
    std::string& text = expressions.emplace_back();
    for (const char c : pattern.glob) text += c == '*' ? ".*" : c == '!' ? "^" : std::string(1, c);
    text += "$";
  }
  return expressions;
}

std::string driver_blacklist() {
  std::string text =
      "// Written by p2pd: unattended-upgrades leaves drivers alone. \"p2pctl revert\" takes this away.\n"
      "Unattended-Upgrade::Package-Blacklist {\n";
  for (const std::string& expression : driver_expressions()) text += fmt::format("  \"{}\";\n", expression);
  return text + "};\n";
}

std::vector<std::string> overruling_pins(const Host& host) {
  std::vector<std::string> found;
  const std::string text = host.files().read("/etc/apt/preferences", 1U << 20).value_or("") + "\n";
  const auto paragraphs = parse_paragraphs(text, {"package", "pin-priority"});
  if (!paragraphs) return found;
  for (const Paragraph& one : *paragraphs) {
    std::istringstream words(one.value("package"));
    for (std::string word; words >> word;)
      if (word.find("nvidia") != word.npos || word.starts_with("libcuda") || word.starts_with("cuda-drivers"))
        if (!one.value("pin-priority").starts_with('-')) found.push_back(word);
  }
  return found;
}

}  // namespace p2pd
