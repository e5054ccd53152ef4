// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {

/// DKMS command that does `verb` with p2pd's package of `entry` for kernel `release`.
Command dkms_command(const CatalogueEntry& entry, std::string_view verb, const std::string& release);

/// Writes dkms_source() of `entry`, complete or not at all; removes another one from DKMS.
Result<void> lay_dkms_source(Host& host, const Catalogue& all, const CatalogueEntry& entry,
                             const std::vector<ModuleBuild>& builds);

/// Makes DKMS install `build`, whose source is written.
Result<void> install_by_dkms(Host& host, const CatalogueEntry& entry, const ModuleBuild& build);

}  // namespace p2pd
