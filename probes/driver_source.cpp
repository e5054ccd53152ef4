// SPDX-License-Identifier: MIT
// driver-source: the module source of the entry is in the cache, unchanged since it was made from release and patch.
// A branch of a fork moves, and the code that runs in the kernel must be the reviewed code: names and bytes of the
// files must match the git tree that the catalogue pins, or that staging recorded beside it for the pinned commits.
// Reads /var/cache/p2pd/sources and the catalogue; runs nothing.
// Reference: git-hash-object(1); "Git Objects" in Pro Git, chapter 10.2.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    kEntryParameter,
    {"mirrors", Parameter::Type::strings, false, "file, http or https URLs that the fix tries first"},
};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
  const std::string directory = source_of(entry);
  const auto tree = check_source(host, entry);
  Finding finding;
  finding.facts = {{"entry", entry.id}};
  if (tree) {
    finding.set(Verdict::pass, fmt::format("the source of {} is there: NVIDIA's {} with the patch {:.12}", entry.id,
                                           entry.base_version, entry.commit));
    finding.saw(directory, "is git tree " + *tree);
    return finding;
  }
  const Error& error = tree.error();
  if (!can_be_made(error)) return Failure(error);
  const bool absent = !host.files().exists(directory);
  finding.set(Verdict::fail, absent
                                 ? fmt::format("the source of {} is not made yet", entry.id)
                                 : fmt::format("the source of {} is not the pinned one: {}", entry.id, error.message));
  finding.saw(directory, absent ? "not there" : error.message);
  return finding;
}

}  // namespace

extern const Probe kDriverSource = {
    .id = "driver-source",
    .asserts = "the module source of the entry is in the cache: the pinned release with the pinned patch, to the byte",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
