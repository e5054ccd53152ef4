// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/mirror.hpp"
#include "machine/fetch/git_store.hpp"

namespace p2pd {

/// Source of an entry as it was made: NVIDIA's release with a patch on it.
struct PatchedSource {
  std::string base_commit;
  std::string made_for_commit;        ///< commit of the release that the patch was made for
  std::string commit;                 ///< commit of the patch; for a patch file its SHA-256
  std::string tree;                   ///< git's id of the result
  std::string patch;                  ///< patch in the format of git-diff(1)
  std::vector<std::string> stat;      ///< its files with their lines, and a last line that counts them
  std::vector<std::string> left_out;  ///< files that the fork changed outside kernel-open/ and src/
};

/// Makes the source of `entry` in `store`; check_out() of `store` then writes it.
///
/// The release and the patch are the pinned ones. If the release is not pinned, the patch must descend from NVIDIA's
/// tag; if the patch is not, it is that of the fork's branch now. Only C files below kernel-open/ and src/ may change:
/// any other file there runs while it is built. `mirrors` (file, http, https) are tried first. An Error names the
/// difference: invalid, it is not what was pinned; not_found, no place has it. `refusal` receives it if the patch does
/// not apply to the release.
Result<PatchedSource> make_patched_source(Host& host, GitStore& store, const Catalogue& all,
                                          const CatalogueEntry& entry, const std::vector<std::string>& mirrors,
                                          std::string* refusal = nullptr);

/// Commit that NVIDIA's tag of `version` names now; mirrors are tried first.
Result<std::string> release_commit(Host& host, GitStore& store, const Catalogue& all, const std::string& version,
                                   const std::vector<std::string>& mirrors);

/// Path of the plain tree: "/var/cache/p2pd/sources/570.211.01-0e943687150e".
std::string source_of(const CatalogueEntry& entry);
/// Path of the record beside it: pins and tree as JSON.
std::string source_record_of(const CatalogueEntry& entry);
/// Path of the patch beside it, for people.
std::string source_patch_of(const CatalogueEntry& entry);

/// Name of the source on a mirror: "sources/570.211.01-0e943687150e", with .tar.gz, .json and .patch.
std::string mirrored_source(const CatalogueEntry& entry);

/// Writes the source of `entry` to source_of(), record and patch beside it; all of them, or none. Takes them from
/// `mirror` if it has that tree, else makes them. Why a patch does not apply is kept as the log of a failed build.
Result<void> stage_source(Host& host, const Catalogue& all, const CatalogueEntry& entry,
                          const std::vector<std::string>& mirrors, const MirrorPlace& mirror = {});

/// Id of the tree at source_of(), if it is what was staged of these pins. not_found: nothing is there;
/// invalid: something else is.
Result<std::string> check_source(const Host& host, const CatalogueEntry& entry);

}  // namespace p2pd
