// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {

/// The command of DKMS that does `verb` with our package of `entry` for kernel `release`.
Command dkms_command(const CatalogueEntry& entry, std::string_view verb, const std::string& release);

/// Lays dkms_source() of `entry` down, complete or not at all; DKMS forgets what it had of another one.
Result<void> lay_dkms_source(Host& host, const Catalogue& all, const CatalogueEntry& entry, const std::vector<ModuleBuild>& builds);

/// Has DKMS install `build`, whose source is laid down.
Result<void> install_by_dkms(Host& host, const CatalogueEntry& entry, const ModuleBuild& build);

}  // namespace p2pd
