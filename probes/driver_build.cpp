// SPDX-License-Identifier: MIT
// driver-build: the entry's five modules are built for every bootable kernel that has headers.
// Guides remove the old driver before they find out that the new one does not build. Here the build comes first, and
// its files are installed later: made from the pinned commit, for this kernel's headers, with its compiler. Checks
// again each module's vermagic, srcversion, build id and SHA-256. Reads /var/cache/p2pd/builds, /boot, kernel headers
// and the catalogue. Reference: Documentation/kbuild/modules.rst of Linux; kernel-open/Makefile of NVIDIA
// open-gpu-kernel-modules.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};

Finding not_built(const CatalogueEntry& entry, const Error& error) {
  Finding finding;
  finding.set(Verdict::fail, fmt::format("{} cannot be built yet: {}", entry.id, error.message), error.next);
  finding.facts = {{"entry", entry.id}};
  return finding;
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_entry(all, parameters));
  const auto builds = wanted_builds(host, all, entry);
  if (!builds && can_be_made(builds.error())) return not_built(entry, builds.error());
  if (!builds) return Failure(builds.error());
  Finding finding;
  finding.facts = {{"entry", entry.id}};
  std::vector<std::string> lacking, there;
  for (const ModuleBuild& build : *builds) {
    const auto record = check_build(host, build);
    if (!record && !can_be_made(record.error())) return Failure(record.error());
    (record ? there : lacking).push_back(build.target.release);
    finding.facts["builds"].push_back(
        {{"kernel", build.target.release}, {"rules", build.rules}, {"built", record.has_value()}});
    finding.saw(build.directory, record ? "five modules, as they were built" : record.error().message);
    if (record && record->contains("mirror")) finding.saw(build.directory, origin_of(*record));
  }
  finding.set(lacking.empty() ? Verdict::pass : Verdict::fail,
              fmt::format("modules of {} are {}built for {}", entry.id, lacking.empty() ? "" : "not ",
                          fmt::join(lacking.empty() ? there : lacking, ", ")));
  return finding;
}

}  // namespace

extern const Probe kDriverBuild = {
    .id = "driver-build",
    .asserts = "the entry's modules are built for every bootable kernel that has headers",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
