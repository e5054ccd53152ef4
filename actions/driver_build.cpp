// SPDX-License-Identifier: MIT
// driver-build: builds the entry's modules for every bootable kernel that has headers, before any old file is removed.
// Builds a copy of the pinned source in a scratch directory, with the kernel's own compiler, and with forced compat
// headers if the kernel's headers need them. A build gets its name only with five modules of the right kernel; an
// existing build is not repeated. Writes /var/cache/p2pd/builds/VERSION-COMMIT-KERNEL-DIGEST (undo removes it); a
// failed build's output stays in /var/log/p2pd. Reference: README.md of NVIDIA open-gpu-kernel-modules;
// Documentation/kbuild/kbuild.rst of Linux (KCFLAGS).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_make.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_entry(all, parameters));
  Description description;
  std::vector<std::string> kernels;
  for (const ModuleBuild& build : TRY(wanted_builds(host, all, entry))) {
    if (check_build(host, build)) continue;
    kernels.push_back(build.target.release);
    description.time += time_of_build(host);
    description.commands.push_back(make_of(host, all, build).text());
  }
  description.summary = fmt::format("build modules for {}", fmt::join(kernels, ", "));
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  return make_builds(host, all, TRY(staged_entry(all, parameters)));
}

}  // namespace

extern const Action kDriverBuildAction;
const Action kDriverBuildAction = {
    .id = "driver-build",
    .topic = "modules",
    .does = "builds the entry's modules for every bootable kernel that has headers",
    .parameters = kParameters,
    .effect = Effect::live,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
    .new_kernel = apply,
};

}  // namespace p2pd
