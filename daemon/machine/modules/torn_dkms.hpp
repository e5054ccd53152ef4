// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Removes the remains of a killed "dkms remove": DKMS does not know a module without its link "source", and fails on
/// it.
Result<void> forget_torn_dkms(Host& host);

/// Names of the modules ("nvidia-current-uvm") that DKMS built from sources whose dkms.conf is among `paths`.
std::vector<std::string> built_by_dkms(const Host& host, const std::set<std::string>& paths);

/// Removes the files of `modules` that a killed "dkms install" left in DKMS's directories, for any kernel: DKMS records
/// an installation only at its end, so it does not remove them with their package. Files of a package stay.
Result<void> discard_torn_modules(Host& host, const std::vector<std::string>& modules);

}  // namespace p2pd
