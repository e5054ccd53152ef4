// SPDX-License-Identifier: MIT
// build-tools: installs by apt the tools that a driver build lacks, including headers and the kernel's own compiler.
// The compiler is installed in addition and called by its name (CC=gcc-12): the command "gcc" does not change.
// One apt-get, simulated first: a driver package or a removal is an error, an upgrade within the release is not.
// Stale package lists are fetched first. Writes the files of the packages, and before that the list of new packages
// below /var/lib/p2pd/build-tools.d: undo removes exactly those; upgraded packages stay upgraded.
// Reference: apt-get(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/toolchain.hpp"
#include "machine/packages/brought_packages.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"entry", Parameter::Type::string, false, "FORK/BRANCH of the catalogue entry that is built, or chosen"},
    kUserspaceParameter};

constexpr std::string_view kList = "/var/lib/p2pd/build-tools";

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const BuildTools tools = TRY(build_tools(host, !keeps_packages(parameters)));
  Description description;
  description.summary = fmt::format("install {}", fmt::join(tools.packages, ", "));
  TRY(describe_bringing(host, tools.packages, description));
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const BuildTools tools = TRY(build_tools(host, !keeps_packages(parameters)));
  if (tools.packages.empty() && !TRY(bringing_was_interrupted(host, kList))) return {};
  return bring_packages(host, tools.packages, kList);
}

Result<void> prepare_undo(Host& host, const Parameters&) { return prepare_taking_away(host, kList); }

Result<void> undo(Host& host, const Parameters&) { return take_brought_packages_away(host, kList); }

}  // namespace

extern const Action kBuildToolsAction = {
    .id = "build-tools",
    .topic = "packages",
    .does = "installs with apt the missing tools for a driver build, including kernel headers and compiler",
    .parameters = kParameters,
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
