// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Numbers of a version, compared in order: {565, 57, 1} is before {565, 77}.
using Version = std::vector<std::uint32_t>;

/// "570.86.16" or "6.14": two to four decimal numbers with dots between, nothing else.
std::optional<Version> parse_version(std::string_view text);

/// What a kernel's headers may hold that a driver's source does not know.
struct CompatRule {
  std::string header;   ///< in the kernel's headers, "include/linux/pci.h"
  std::string pattern;  ///< text as it stands; the rule applies where the header holds it
  std::string include;  ///< compat header to force in; empty: there is none, and such a kernel cannot be built for
  std::string why;
};

/// One driver build: module source at a commit, and the runfile of the same version.
struct CatalogueEntry {
  std::string id;  ///< FORK/BRANCH
  bool enabled = false;
  std::string fork;
  std::string repository;
  std::vector<std::string> also_in;
  std::string branch;
  std::string commit;                                ///< 40 hexadecimal digits; empty: not known
  std::string commit_status;                         ///< verified_in_git, third_party_doc, abbreviated_only, unknown
  std::string base_version;                          ///< NVIDIA release that the source is built on
  std::string runfile_path;                          ///< the same on every host; empty: not known
  std::string runfile_sha256;                        ///< 64 hexadecimal digits; empty: not known
  std::uint64_t runfile_bytes = 0;                   ///< 0: not known
  std::map<std::string, std::string> architectures;  ///< to "reported" or "unknown"; what is absent is not supported
  std::optional<Version> kernel_min;
  std::optional<Version> kernel_below;  ///< first mainline version that it does not build on
  std::vector<int> gcc_tested;          ///< major versions that built it
  std::optional<int> gcc_min;
  std::optional<int> gcc_below;
  std::vector<std::string> compat;  ///< names of the rules that its source needs
  nlohmann::json module_options = nlohmann::json::object();
  nlohmann::json registry_dwords = nlohmann::json::object();
  nlohmann::json registry_dwords_forbidden = nlohmann::json::object();
  std::string source;  ///< the file it is from
};

struct Catalogue {
  std::vector<std::string> runfile_hosts;  ///< tried in order
  std::map<std::string, CompatRule> compat_rules;
  std::vector<CatalogueEntry> entries;
};

inline constexpr std::string_view kCatalogueDropIns = "/etc/p2pd/catalogue.d";

/// config/catalogue.yaml, compiled in, and the *.json of kCatalogueDropIns.
Result<Catalogue> catalogue(const Host& host);

/// `before` with the entries, rules and hosts of `text`; `source` names it in errors. Every key is checked, ids are
/// unique, and an enabled entry has everything that pins it: a commit verified in git, and the runfile's SHA-256.
Result<Catalogue> parse_catalogue(std::string_view text, std::string_view source, Catalogue before = {});

}  // namespace p2pd
