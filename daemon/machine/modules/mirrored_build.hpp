// SPDX-License-Identifier: MIT
#pragma once

#include "machine/catalogue/mirror.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {

/// Files of a build: its record and its five modules.
std::vector<std::string> files_of_build();

/// Path of a build on a mirror: "builds/570.211.01-0e943687150e-6.12.117+deb13-amd64-0123456789ab/".
std::string mirrored_build(const ModuleBuild& build);

/// Checks that `mirror` lists every file of `build`; not_found.
Result<void> require_mirrored(const Mirror& mirror, const ModuleBuild& build);

/// Makes the directory of `build` from what the mirror has: fetched beside it, compared with the manifest, with the
/// inputs of `build` and with its record, as check_build() does; all of it, or nothing. No compiler runs. The record
/// then names its origin.
Result<void> take_build(Host& host, const Mirror& mirror, const ModuleBuild& build);

/// Origin of a build from its record, for a person: "taken from MIRROR"; "mirror refused: REASON; built here"; empty:
/// built here, and no mirror was configured.
std::string origin_of(const nlohmann::json& record);

}  // namespace p2pd
