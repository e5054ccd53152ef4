// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/mirror.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {

/// Text of compat header `name` ("pci-resize-exclude-bars.h"): a file of /etc/p2pd/compat, or one of config/compat,
/// which are compiled in. not_found names both.
Result<std::string> compat_header(const Host& host, std::string_view name);

/// Checks that `rule` applies to the headers of `target`.
Result<bool> applies(const Host& host, const BuildTarget& target, const CompatRule& rule);

/// Modules of one catalogue entry for one kernel: their inputs, and their directory.
struct ModuleBuild {
  BuildTarget target;
  std::vector<std::string> rules;  ///< compat rules that apply
  nlohmann::json
      made_of;  ///< release, commit, kernel, its headers, compiler, compat headers: equal inputs are the same build
  std::string name;       ///< build_name()
  std::string directory;  ///< "/var/cache/p2pd/builds/VERSION-COMMIT12-KERNEL-DIGEST12"

  std::string module_file(std::string_view module) const { return directory + "/" + std::string(module) + ".ko"; }
};

/// Builds for every kernel that this host can boot or runs and that has headers, oldest first.
///
/// An Error: there is none, the running or the newest one is not among them, its compiler is not known, or the entry
/// cannot be built for one of them: a header is not readable, or has a change that no compat header compensates.
Result<std::vector<ModuleBuild>> wanted_builds(const Host& host, const Catalogue& all, const CatalogueEntry& entry);

/// Checks a build, and returns its record: {"made_of", "compiler_version", "modules": {NAME: {"srcversion", "sha256",
/// "build_id"}}}. A record of an older p2pd has no build ids, and neither has one of a kernel that is built without.
///
/// An Error: not_found, it was never made; invalid, a module of it is missing, damaged, or of another kernel.
Result<nlohmann::json> check_build(const Host& host, const ModuleBuild& build);

/// Origin of a build from its record, for a person: "taken from MIRROR"; "mirror refused: REASON; built here"; empty:
/// built here, and no mirror was configured.
std::string origin_of(const nlohmann::json& record);

/// Builds the modules of `entry`, whose source is staged, for every kernel of wanted_builds() that has none yet: a copy
/// of the source in a scratch directory, the kernel's own compiler, compat headers included if its headers need them.
/// A build gets its name only with five modules of the right kernel; the output of a failed one stays in kLogs.
///
/// What `mirror` has is taken from there, and nothing is compiled: fetched beside the build's directory, compared with
/// the manifest, with the inputs of the build and with its record, as check_build() does; all of it, or nothing. What
/// is refused is built here, and its record says why.
Result<void> make_builds(Host& host, const Catalogue& all, const CatalogueEntry& entry, const MirrorPlace& mirror = {});

/// Estimated time of one build on this machine.
std::chrono::minutes time_of_build(const Host& host);

/// Command that builds one of them.
Command make_of(const Host& host, const Catalogue& all, const ModuleBuild& build);

/// Path of a build on a mirror: "builds/570.211.01-0e943687150e-6.12.117+deb13-amd64-0123456789ab/".
std::string mirrored_build(const ModuleBuild& build);

/// Checks that `mirror` lists every file of `build`; not_found.
Result<void> require_mirrored(const Mirror& mirror, const ModuleBuild& build);

/// Variables of make that replace options of the kernel, as of one built without them:
/// BTF: scripts/gen-btf.sh of Linux 7.2 splits the awk program that NVIDIA's Makefile sets PAHOLE to;
/// OBJTOOL_WERROR: objtool warns of NVIDIA's prebuilt part (open-gpu-kernel-modules#1077); WERROR: so may a compiler.
inline constexpr std::array<std::string_view, 3> kMakeVariables = {
    "CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_OBJTOOL_WERROR=", "CONFIG_WERROR="};

inline constexpr std::string_view kBuildRecord = "/build.json";  ///< file in the directory of a build
inline constexpr std::size_t kBuildRecordLimit = 1U << 20;       ///< bytes

}  // namespace p2pd
