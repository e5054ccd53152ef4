// SPDX-License-Identifier: MIT
#include "machine/driver/driver_pins.hpp"

#include <fmt/format.h>

#include <regex>
#include <sstream>

#include "machine/driver/driver_install.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

/// Checks for modules that a distribution built for one kernel. They come with kernels if the driver's packages stay:
/// they need those at their version, and after a rollback they are the driver of newer kernels.
bool is_of_kernel(std::string_view name) { return name.starts_with("linux-"); }

std::vector<std::string_view> pinned_globs(bool keeps) {
  std::vector<std::string_view> globs = driver_globs();
  if (keeps) std::erase_if(globs, is_of_kernel);
  return globs;
}

}  // namespace

std::string driver_preferences(const std::vector<DpkgPackage>& kept, const std::string& version) {
  std::string text = kept.empty() ? "Explanation: Written by p2pd. A driver by runfile is installed, or about to be: "
                                    "packages of another one would\n"
                                    "Explanation: overwrite its files. \"p2pctl revert\" takes this away.\n"
                                  : "Explanation: Written by p2pd. The driver's packages stay at the version that its "
                                    "modules with P2P were built for.\n"
                                    "Explanation: \"p2pctl revert\" takes this away.\n";
  for (const DpkgPackage& package : kept)  // apt takes the first of several pins that fit a version
    text += fmt::format("Package: {}\nPin: version {}\nPin-Priority: 1001\n\n", package.id(), package.version);
  std::string globs;
  for (const std::string_view glob : pinned_globs(!kept.empty())) globs += fmt::format(" {}", glob);
  if (!version.empty())  // as a regular expression
    text += fmt::format("Package:{}\nPin: version /^([0-9]+:)?{}-/\nPin-Priority: 500\n\n", globs,
                        std::regex_replace(version, std::regex("\\."), "\\."));
  return text + fmt::format("Package:{}\nPin: version *\nPin-Priority: -1\n", globs);
}

Result<std::string> driver_preferences(const Host& host, bool keeps) {
  if (!keeps) return driver_preferences();
  std::vector<DpkgPackage> packages = TRY(dpkg_packages(host));
  std::erase_if(packages, [](const DpkgPackage& package) {
    return !package.present() || driver_role(package.name) == DriverRole::none || is_of_kernel(package.name);
  });
  return driver_preferences(packages, TRY(packaged_userspace(host)).version);
}

std::vector<std::string> driver_expressions(bool keeps) {
  std::vector<std::string> expressions;
  for (const std::string_view glob : pinned_globs(keeps)) {
    std::string& text = expressions.emplace_back();
    for (const char c : glob) text += c == '*' ? ".*" : c == '!' ? "^" : std::string(1, c);
    text += "$";
  }
  return expressions;
}

std::string driver_blacklist(bool keeps) {
  std::string text =
      "// Written by p2pd: unattended-upgrades leaves drivers alone. \"p2pctl revert\" takes this away.\n"
      "Unattended-Upgrade::Package-Blacklist {\n";
  for (const std::string& expression : driver_expressions(keeps)) text += fmt::format("  \"{}\";\n", expression);
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
