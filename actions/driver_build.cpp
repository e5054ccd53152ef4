// SPDX-License-Identifier: MIT
// driver-build: builds the entry's modules for every bootable kernel that has headers, before any old file is removed.
// Takes a build of the same inputs from a mirror whose manifest a trusted key signed; else builds a copy of the pinned
// source in a scratch directory, with the kernel's own compiler, and with forced compat headers if the kernel's headers
// need them. A build gets its name only with five modules of the right kernel; an existing one is not repeated. Writes
// /var/cache/p2pd/builds/VERSION-COMMIT-KERNEL-DIGEST (undo removes it); a failed build's output stays in
// /var/log/p2pd. Reference: README.md of NVIDIA open-gpu-kernel-modules; Documentation/kbuild/kbuild.rst of Linux
// (KCFLAGS).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "base/action.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kMirrorParameter, kTrustedKeysParameter};
constexpr std::chrono::seconds kManifestDeadline{5};  // in a preview

/// The mirror, if one is configured; asked once per snapshot of the host.
std::optional<Result<Mirror>> mirror_for(const Host& host, const Parameters& parameters) {
  const MirrorPlace place = mirror_of(parameters);
  if (!place) return std::nullopt;
  return host.once<Mirror>("mirror " + place.url, [&] { return Mirror::open(host, place, kManifestDeadline); });
}

std::string summary_of(const std::vector<std::string>& taken, const std::vector<std::string>& built) {
  const std::string take = fmt::format("take modules for {} from the mirror", fmt::join(taken, ", "));
  const std::string build = fmt::format("build modules for {}", fmt::join(built, ", "));
  return taken.empty() ? build : built.empty() ? take : take + ", " + build;
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_entry(all, parameters));
  Description description;
  std::vector<std::string> taken, built;
  std::optional<Result<Mirror>> mirror;
  for (const ModuleBuild& build : TRY(wanted_builds(host, all, entry))) {
    if (check_build(host, build)) continue;
    if (!mirror) mirror = mirror_for(host, parameters);
    if (mirror && *mirror && require_mirrored(**mirror, build)) {
      taken.push_back(build.target.release);
      description.commands.push_back(fmt::format("curl {}/{}*", (*mirror)->url(), mirrored_build(build)));
      continue;
    }
    built.push_back(build.target.release);
    if (!build.target.strict.empty()) description.notes.push_back(strictness_of(build.target));
    description.time += time_of_build(host);
    description.commands.push_back(make_of(host, all, build).text());
  }
  if (mirror && !*mirror) description.notes.push_back("mirror refused: " + mirror->error().text());
  description.summary = summary_of(taken, built);
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  return make_builds(host, all, TRY(staged_entry(all, parameters)), mirror_of(parameters));
}

Result<void> validate(const Parameters& parameters) {
  TRY(validate_staging(parameters));
  return check_mirror(mirror_of(parameters));
}

}  // namespace

extern const Action kDriverBuildAction = {
    .id = "driver-build",
    .topic = "modules",
    .does = "builds the entry's modules for every bootable kernel that has headers, or takes them from a mirror",
    .parameters = kParameters,
    .validate = validate,
    .describe = describe,
    .apply = apply,
    .new_kernel = apply,
};

}  // namespace p2pd
