// SPDX-License-Identifier: MIT
// driver-source: the module source of the entry lies in the cache, and is the pinned commit to the byte.
// A branch of a fork moves, and what runs in the kernel must be what was looked at. The commit object lies beside the
// tree: its SHA-1 must be the pin, and the tree that it names must be what names and bytes of the files add up to.
// Reads /var/cache/p2pd/sources and the catalogue; runs nothing.
// Reference: git-hash-object(1); "Git Objects" in Pro Git, chapter 10.2.
#include <fmt/format.h>

#include "base/driver/staging.hpp"
#include "base/fetch/git_tree.hpp"
#include "base/probe.hpp"

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
  const auto checked = check_git_tree(host.files(), directory, commit_file_of(entry), entry.commit);
  Finding finding;
  finding.facts = {{"entry", entry.id}, {"commit", entry.commit}, {"directory", directory}};
  if (checked) {
    finding.verdict = Verdict::pass;
    finding.summary = fmt::format("the source of {} is there, at commit {:.12}", entry.id, entry.commit);
    finding.evidence.push_back({directory, "is the tree of commit " + entry.commit});
    return finding;
  }
  const Error& error = checked.error();
  if (error.code != ErrorCode::not_found && error.code != ErrorCode::invalid) return Failure(error);
  const bool absent = !host.files().exists(directory);
  finding.verdict = Verdict::fail;
  finding.summary = absent ? fmt::format("the source of {} is not fetched yet", entry.id)
                           : fmt::format("the source of {} is not the pinned commit: {}", entry.id, error.message);
  finding.evidence.push_back({directory, absent ? "not there" : "differs from commit " + entry.commit});
  return finding;
}

}  // namespace

extern const Probe kDriverSource;
const Probe kDriverSource = {
    .id = "driver-source",
    .asserts = "the module source of the entry lies in the cache, at the pinned commit to the byte",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
