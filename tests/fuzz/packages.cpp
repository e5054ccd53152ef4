// SPDX-License-Identifier: MIT
// Texts of apt and dpkg.
#include <algorithm>

#include "fuzz.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"

/// Any text as a file of apt's configuration: names are in lower case and of bounded length, a value that is returned
/// is one that was read, and nothing is left below a name that the text clears at its end.
FUZZ(apt_conf) {
  static const Tree tree;
  static const std::string kFile = "/etc/apt/apt.conf.d/50fuzz";
  constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::vector<AptOption> parsed = parse_apt_conf(input, kFile);
  std::size_t bytes = 0;
  for (const AptOption& option : parsed) {
    require(option.name.find_first_of(kUpper) == std::string::npos, "a name in upper case");
    bytes += option.name.size();
  }
  require(bytes <= (input.size() + 1) * 200, "names that outgrow the text");

  tree.write(kFile, input);
  const auto options = apt_options(tree.host);
  require(options.has_value() && options->size() <= parsed.size(), "options that were not read");
  for (const AptOption& option : *options) {
    require(option.name != "#clear", "a #clear that was not carried out");
    require(std::ranges::count(parsed, option) > 0, "an option that was not read");
    if (option.name.ends_with("::"))
      require(!apt_list(*options, option.name.substr(0, option.name.size() - 2)).empty(), "a list without its item");
  }
  if (options->empty()) return;
  const std::string& name = options->back().name;
  require(apt_value(*options, name) == options->back().value, "not the last value");
  if (name.find_first_of(" \t\r\n\f\v\"{};#/") != std::string::npos) return;
  tree.write("/etc/apt/apt.conf.d/60clear", "#clear " + name + ";\n");
  const auto cleared = apt_options(tree.host);
  std::filesystem::remove(tree.directory / "/etc/apt/apt.conf.d/60clear");
  require(cleared.has_value(), "a #clear that is an error");
  require(std::ranges::count(*cleared, name, &AptOption::name) == 0, "a name that outlives its #clear");
}

namespace p2pd::fuzz {
namespace {

std::string paragraph(const DpkgPackage& package) {
  return "Package: " + package.name + "\nStatus: " + package.want + " " + package.flag + " " + package.state +
         "\nArchitecture: " + package.architecture + "\nVersion: " + package.version + "\n\n";
}

}  // namespace
}  // namespace p2pd::fuzz

/// Any text as dpkg's status file: what is read has a name and a state, and its written form reads the same.
FUZZ(dpkg_status) {
  const auto packages = parse_dpkg_status(input);
  if (!packages) {
    require(packages.error().code == ErrorCode::invalid, "an error of another kind");
    return;
  }
  std::string written;
  for (const DpkgPackage& package : *packages) {
    require(!package.name.empty() && !package.state.empty(), "a package without name or state");
    require(!package.interrupted() || !package.installed() || package.flag != "ok", "installed and interrupted");
    written += paragraph(package);
  }
  const auto again = parse_dpkg_status(written);
  require(again.has_value() && again->size() == packages->size(), "written out, it reads otherwise");
  for (std::size_t i = 0; i < packages->size(); ++i)
    require(paragraph((*again)[i]) == paragraph((*packages)[i]), "a package that changed on the way");
}
