// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"
#include "machine/catalogue/kernel_table.hpp"

namespace p2pd {

/// Where a kernel's headers and a driver's source do not fit each other.
struct CompatRule {
  std::string header;   ///< in the kernel's headers, "include/linux/pci.h"
  std::string pattern;  ///< text as it stands; the rule applies where the header holds it
  std::string include;  ///< compat header; empty: there is none, and such a kernel cannot be built for
  std::string why;      ///< what changed, for a person
  bool gone = false;    ///< it applies where the header lacks the pattern

  /// The compat header stands for one that is gone as a whole: found where a source includes it, not forced in.
  bool replaces() const { return header == "include/" + include; }
};

/// How a hash is known, from weak to strong: one source has it; the full hash stands in two that are independent; this
/// project read it in git.
enum class Known { single_source, corroborated, verified };
std::string_view to_string(Known known);  ///< "single source", "corroborated", "verified"

/// What is known to break with a build.
struct Defect {
  std::string id;
  std::string text;                     ///< what happens, for a person
  std::string use;                      ///< what it breaks (base/p2p_use.hpp); empty: no one use
  std::set<std::string> architectures;  ///< of the GPUs that it was seen with; empty: any
  bool grave = false;                   ///< takes every GPU down, or the host, until a restart
};

/// Hashes that somebody allowed on this machine ("p2pctl catalogue allow"), for what one source has, or none.
struct Allowance {
  std::string base_commit;
  std::string commit;
  std::string runfile_sha256;
};

/// One driver build: a release of NVIDIA's open modules, a patch on it, and the runfile of the same version.
struct CatalogueEntry {
  std::string id;  ///< FORK/BRANCH; of a graft FORK/BRANCH-on-VERSION

  // NVIDIA's release
  std::string base_version;
  std::string base_commit;     ///< 40 hexadecimal digits; empty: not known
  std::string cuda;            ///< the newest that its libcuda runs, "12.8"; empty: not known
  std::string runfile_path;    ///< the same on every host; empty: not known
  std::string runfile_sha256;  ///< 64 hexadecimal digits; empty: not known
  std::uint64_t runfile_bytes = 0;  ///< 0: not known
  std::optional<Version> kernel_min;
  std::optional<int> gcc_min;
  std::optional<int> gcc_below;
  std::vector<std::string> compat;  ///< names of the rules that its source needs

  // the patch: what a fork's commit changed since the release it descends from, or a patch file
  std::string repository;  ///< empty: a patch file
  std::vector<std::string> also_in;
  std::string branch;
  std::string commit;      ///< 40 hexadecimal digits; of a patch file its SHA-256
  std::string patch_file;  ///< URL; empty: a commit
  std::string made_for;         ///< the release that it descends from; another than base_version: a graft
  std::string made_for_commit;  ///< as base_commit
  std::string tree;             ///< git's id of the patched source; empty: not known before it is made
  std::string diffstat;         ///< "6 files changed, ..." of the patch, as git diff --shortstat has it; empty: not known
  std::map<std::string, std::string> architectures;  ///< to "reported" or "unknown"; what is absent is not supported
  std::vector<std::string> reports;                  ///< who saw it work, and on what
  std::vector<Defect> defects;
  nlohmann::json module_options = nlohmann::json::object();
  nlohmann::json registry_dwords = nlohmann::json::object();
  nlohmann::json registry_dwords_forbidden = nlohmann::json::object();
  bool dynamic_bar1 = false;  ///< P2P where VRAM is larger than BAR1

  /// How the release, the patch and the runfile are known.
  Known base_known = Known::single_source, patch_known = Known::single_source, runfile_known = Known::single_source;
  std::string lacks;                   ///< pin that nobody has: "the SHA-256 of its runfile"; empty: none
  bool allowed = false;                ///< on this machine, with these hashes
  bool of_this_machine = false;        ///< from a drop-in: such a build comes before those of p2pd
  std::string source;                  ///< the file it is from

  bool is_graft() const { return made_for != base_version; }
  Known known() const { return std::min({base_known, patch_known, runfile_known}); }
  /// Every part is pinned, and either known well enough or allowed.
  bool usable() const { return lacks.empty() && (known() != Known::single_source || allowed); }
};

struct Catalogue {
  std::vector<std::string> runfile_hosts;  ///< tried in order
  std::string releases_at;                 ///< NVIDIA's repository
  std::map<std::string, CompatRule> compat_rules;
  std::vector<CatalogueEntry> entries;  ///< oldest release first
  std::vector<std::string> notes;       ///< what of the drop-ins does not count, and why
  KernelTable kernels;
};

inline constexpr std::string_view kCatalogueDropIns = "/etc/p2pd/catalogue.d";

/// A file of the catalogue, and how errors name it.
struct CatalogueFile {
  std::string source;
  nlohmann::json tables;
};

/// config/catalogue.yaml, compiled in, the *.yaml of kCatalogueDropIns, and `more`.
Result<Catalogue> catalogue(const Host& host, const std::vector<CatalogueFile>& more = {});

/// The catalogue that these files make together. Every key is checked. A later file adds; of a row that an earlier one has
/// too the earlier counts, and both must agree on every pin (commits, trees, sums). What the first file has is p2pd's, the
/// rest of this machine.
Result<Catalogue> parse_catalogue(const std::vector<CatalogueFile>& files);
CatalogueFile shipped_catalogue();
Result<CatalogueFile> catalogue_file(std::string source, std::string_view yaml);

}  // namespace p2pd
