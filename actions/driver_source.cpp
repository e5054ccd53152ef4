// SPDX-License-Identifier: MIT
// driver-source: makes the module source of the entry in the cache: NVIDIA's release with a fork's patch applied.
// Takes that tree from a mirror with a signed manifest; else fetches both at their pinned commits, from mirrors
// (repositories, or bundles in a directory) first; a server that refuses ids is asked for the tag or branch. The patch
// is the fork's change of C files below kernel-open/ and src/, and nothing else of the fork. The tree gets its name
// only when it is complete and matches the pins. Writes /var/cache/p2pd/sources/VERSION-COMMIT, .json (facts) and
// .patch (for people); undo removes them. Reference: git-fetch(1); git-apply(1); gitattributes(5); git-config(1),
// protocol.allow and transfer.fsckObjects.
#include <fmt/format.h>

#include "base/action.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    kEntryParameter,
    {"mirrors", Parameter::Type::strings, false,
     "URLs of repositories, of the parent of OWNER/NAME, of a .bundle or a directory with COMMIT.bundle"},
    kMirrorParameter,
    kTrustedKeysParameter,
};

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_entry(all, parameters));
  Description description;
  description.summary = fmt::format("fetch the module source of {}, patch {}", entry.base_version, entry.id);
  if (const MirrorPlace mirror = mirror_of(parameters))
    description.notes.push_back(fmt::format("{}/{}.tar.gz is tried first", mirror.url, mirrored_source(entry)));
  description.commands.push_back(
      fmt::format("git fetch --depth=1 {} {}", all.releases_at,
                  entry.base_commit.empty() ? "refs/tags/" + entry.base_version : entry.base_commit));
  description.commands.push_back(entry.patch_file.empty()
                                     ? fmt::format("git fetch --depth=1 {} {}", entry.repository, entry.commit)
                                     : fmt::format("curl {}    # SHA-256 {}", entry.patch_file, entry.commit));
  description.commands.push_back(fmt::format("git apply {}    # {}\"p2pctl catalogue diff {}\" shows it",
                                             source_patch_of(entry),
                                             entry.diffstat.empty() ? "" : entry.diffstat + "; ", entry.id));
  if (const auto machine = machine_of(host, all))
    for (std::string& note : notes_on(all, entry, *machine)) description.notes.push_back(std::move(note));
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  return stage_source(host, all, TRY(staged_entry(all, parameters)), mirrors_of(parameters), mirror_of(parameters));
}

Result<void> validate(const Parameters& parameters) {
  TRY(validate_staging(parameters));
  return check_mirror(mirror_of(parameters));
}

}  // namespace

extern const Action kDriverSourceAction = {
    .id = "driver-source",
    .topic = "download",
    .does = "makes the entry's module source: NVIDIA's pinned release with the pinned patch",
    .parameters = kParameters,
    .validate = validate,
    .describe = describe,
    .apply = apply,
    .new_kernel = apply,
};

}  // namespace p2pd
