// SPDX-License-Identifier: MIT
// Any text as dpkg's status file: what is taken has a name and a state, and written out again it reads the same.
#include "machine/packages/dpkg_status.hpp"

#include "fuzz.hpp"

namespace p2pd::fuzz {
namespace {

std::string paragraph(const DpkgPackage& package) {
  return "Package: " + package.name + "\nStatus: " + package.want + " " + package.flag + " " + package.state +
         "\nArchitecture: " + package.architecture + "\nVersion: " + package.version + "\n\n";
}

}  // namespace
}  // namespace p2pd::fuzz

void p2pd::fuzz::run(std::string_view input) {
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
