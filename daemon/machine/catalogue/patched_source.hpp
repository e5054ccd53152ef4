// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/fetch/git_store.hpp"

namespace p2pd {

/// The source of an entry as it was made: NVIDIA's release with a patch on it.
struct PatchedSource {
  std::string base_commit;
  std::string made_for_commit;       ///< the release that the patch was made for
  std::string commit;                ///< of the patch; of a patch file its SHA-256
  std::string tree;                  ///< git's id of the result
  std::string patch;                 ///< as git-diff(1) writes it
  std::vector<std::string> stat;     ///< its files with their lines, and a last line that counts them
  std::vector<std::string> left_out; ///< files that the fork changed outside kernel-open/ and src/
};

/// Makes the source of `entry` in `store`, whose check_out() then lays it down.
///
/// The release and the patch are the pinned ones; where the release is not pinned, the patch has to descend from the tag
/// that NVIDIA has. Only C files below kernel-open/ and src/ may change: anything else there runs while it is built.
/// `mirrors` (file, http, https) are asked first. An Error names what differs, and nothing is left in doubt: invalid, it
/// is not what was pinned; not_found, no place has it.
Result<PatchedSource> make_patched_source(Host& host, GitStore& store, const Catalogue& all, const CatalogueEntry& entry,
                                          const std::vector<std::string>& mirrors);

/// The commit that NVIDIA's tag of `version` names now; mirrors are asked first.
Result<std::string> release_commit(Host& host, GitStore& store, const Catalogue& all, const std::string& version,
                                   const std::vector<std::string>& mirrors);

/// "/var/cache/p2pd/sources/570.211.01-0e943687150e": the plain tree.
std::string source_of(const CatalogueEntry& entry);
/// What was staged there, beside it: pins and tree as JSON.
std::string source_record_of(const CatalogueEntry& entry);
/// The patch beside it, for people.
std::string source_patch_of(const CatalogueEntry& entry);

/// Makes the source of `entry` and lays it down at source_of(), record and patch beside it; all of them, or none.
Result<void> stage_source(Host& host, const Catalogue& all, const CatalogueEntry& entry, const std::vector<std::string>& mirrors);

/// The id of the tree that lies at source_of(), which is what was staged of these pins. not_found: nothing is there;
/// invalid: something else is.
Result<std::string> check_source(const Host& host, const CatalogueEntry& entry);

}  // namespace p2pd
