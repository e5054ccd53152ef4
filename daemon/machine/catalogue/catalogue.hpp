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

/// A conflict between a kernel's headers and a driver's source.
struct CompatRule {
  std::string header;   ///< file in the kernel's headers, "include/linux/pci.h"
  std::string pattern;  ///< literal text; the rule applies if the header contains it
  std::string include;  ///< compat header; empty: there is none, and no build for such a kernel is possible
  std::string why;      ///< change in the kernel, for a person
  bool gone = false;    ///< the rule applies if the header lacks the pattern

  /// True if the compat header replaces a removed header: a source's include finds it, no option includes it.
  bool replaces() const { return header == "include/" + include; }
};

/// Evidence for a hash, from weak to strong: one source has it; two independent sources have the full hash; this
/// project read it in git.
enum class Known { single_source, corroborated, verified };
std::string_view to_string(Known known);  ///< "single source", "corroborated", "verified"

/// A known fault of a build.
struct Defect {
  std::string id;
  std::string text;  ///< effect, for a person
  std::string use;   ///< use of P2P that it breaks (machine/hardware/p2p_use.hpp); empty: no single use
  std::set<std::string> architectures;  ///< architectures of the GPUs that it was seen with; empty: any
  bool grave = false;  ///< takes every GPU down, or the host, until a restart; or no CUDA program starts
  std::set<std::string> together = {};  ///< it needs GPUs of all these architectures in one machine
  Version from = {};                    ///< first release that has it; empty: all that the patch is put on
};

/// Hashes that "p2pctl catalogue allow" allowed on this machine, although only one source, or none, has them.
struct Allowance {
  std::string base_commit;
  std::string commit;
  std::string runfile_sha256;  ///< empty: for packages that stay
};

/// One driver build: a release of NVIDIA's open modules, a patch on it, and the runfile of the same version.
struct CatalogueEntry {
  std::string id;  ///< FORK/BRANCH; for a graft FORK/BRANCH-on-VERSION

  // NVIDIA's release
  std::string base_version;
  std::string base_commit;          ///< 40 hexadecimal digits; empty: not known
  std::string cuda;                 ///< newest CUDA that its libcuda runs, "12.8"; empty: not known
  std::string runfile_path;         ///< path on every host; empty: there is none, for packages of the version only
  std::string runfile_sha256;       ///< 64 hexadecimal digits; empty: not known
  std::uint64_t runfile_bytes = 0;  ///< 0: not known
  std::optional<Version> kernel_min;
  std::optional<int> gcc_min;
  std::optional<int> gcc_below;
  std::vector<std::string> compat;  ///< names of the rules that its source needs

  // the patch: changes of a fork's commit since the release it descends from, or a patch file
  std::string repository;  ///< empty: a patch file
  std::vector<std::string> also_in;
  std::string branch;
  std::string commit;           ///< 40 hexadecimal digits; for a patch file its SHA-256
  std::string patch_file;       ///< URL; empty: a commit
  std::string made_for;         ///< release that it descends from; if not base_version: a graft
  std::string made_for_commit;  ///< like base_commit
  std::string tree;             ///< git's id of the patched source; empty: not known before it is made
  std::string diffstat;         ///< output of git diff --shortstat, "6 files changed, ..."; empty: not known
  std::map<std::string, std::string>
      architectures;                 ///< architectures with an evidence (below); absent ones are not supported
  std::vector<std::string> reports;  ///< people who saw it work, and their hardware
  std::vector<Defect> defects;
  nlohmann::json module_options = nlohmann::json::object();
  nlohmann::json registry_dwords = nlohmann::json::object();
  nlohmann::json registry_dwords_forbidden = nlohmann::json::object();
  std::string nvlink;         ///< "kept", "lost": bridged GPUs keep their NVLink with it, or do not; empty: not known
  bool dynamic_bar1 = false;  ///< P2P works if VRAM is larger than BAR1

  /// Evidence for the release, the patch and the runfile.
  Known base_known = Known::single_source, patch_known = Known::single_source, runfile_known = Known::single_source;
  std::string lacks;             ///< pin of its modules that no file has: "the commit of its patch"; empty: none
  bool allowed = false;          ///< modules of these hashes are allowed on this machine
  bool runfile_allowed = false;  ///< so is the runfile
  bool of_this_machine = false;  ///< from a drop-in: such a build precedes those of p2pd
  std::string source;            ///< file that it is from

  bool is_graft() const { return made_for != base_version; }
  bool has_runfile() const { return !runfile_path.empty(); }
  Known known() const {
    const Known modules = std::min(base_known, patch_known);
    return has_runfile() ? std::min(modules, runfile_known) : modules;
  }
  /// True if the modules are pinned, and either known well enough or allowed: all that a machine needs whose packages
  /// stay.
  bool modules_usable() const {
    return lacks.empty() && (std::min(base_known, patch_known) != Known::single_source || allowed);
  }
  /// The same of every part.
  bool usable() const {
    return modules_usable() &&
           (!has_runfile() || (!runfile_sha256.empty() && (runfile_known != Known::single_source || runfile_allowed)));
  }
  /// Reason why it is not: "the commit of its patch is not known".
  std::string why_not_usable() const;
};

struct Catalogue {
  std::vector<std::string> runfile_hosts;  ///< hosts, tried in order
  std::string releases_at;                 ///< NVIDIA's repository
  std::map<std::string, CompatRule> compat_rules;
  std::vector<CatalogueEntry> entries;  ///< oldest release first
  std::vector<std::string> notes;       ///< parts of the drop-ins that are ignored, and the reasons
  KernelTable kernels;
};

// Evidence that a build gives P2P between GPUs of an architecture.
inline constexpr std::string_view kReported = "reported";    ///< somebody moved data between such cards with it
inline constexpr std::string_view kInherited = "inherited";  ///< the same of its patch, on the release it was made for
inline constexpr std::string_view kNoReport = "unknown";     ///< nobody told

/// The build FORK/BRANCH-on-VERSION that no file lists, of a release of the branch that the patch was made for: nothing
/// of that release is pinned. nullopt: `id` is nothing of that kind.
std::optional<CatalogueEntry> unlisted_graft(const Catalogue& catalogue, std::string_view id);

/// Build with dynamic BAR1 for all of these architectures, the first that may be used, else one that may not; null:
/// none.
const CatalogueEntry* dynamic_bar1_build(const Catalogue& catalogue, const std::set<std::string>& architectures);

bool is_architecture(std::string_view text);  ///< architecture of GPUs that can be peers: "Ada"
bool is_id_part(std::string_view text);       ///< FORK or BRANCH of an entry's id
bool is_repository(std::string_view text);    ///< https://HOST/PATH or file:///PATH

inline constexpr std::string_view kCatalogueDropIns = "/etc/p2pd/catalogue.d";

/// A file of the catalogue, and its name in errors.
struct CatalogueFile {
  std::string source;
  nlohmann::json tables;
};

/// Reads config/catalogue.yaml, compiled in, the *.yaml of kCatalogueDropIns, and `more`.
Result<Catalogue> catalogue(const Host& host, const std::vector<CatalogueFile>& more = {});

/// Merges these files into one catalogue, and checks every key. A later file adds rows. If an earlier file has a row
/// too, the earlier one counts, and both must agree on every pin (commits, trees, sums). Rows of the first file are
/// p2pd's, the others this machine's.
Result<Catalogue> parse_catalogue(const std::vector<CatalogueFile>& files);
CatalogueFile shipped_catalogue();
Result<CatalogueFile> catalogue_file(std::string source, std::string_view yaml);

}  // namespace p2pd
