// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// `plan` with its choices made for `host`:
/// - `entry: chosen` becomes the entry that p2pd installed, as long as it fits; else the solver's choice, or "none"
///   if the running driver gives P2P already;
/// - `userspace: chosen` becomes keep if the installed packages have that entry's version, else runfile;
/// - kernel argument `pci=disable_acs_redir=chosen` names the ports at which ACS redirects traffic between GPUs;
/// - `version: chosen` of a CUDA toolkit becomes the newest that the driver runs;
/// - steps whose check is skip_on_image are removed from the plan of an image: its first boot checks them.
/// If there is nothing to choose, or the machine cannot be read, the word stays: a check gives the reason, and the next
/// walk chooses again.
Plan resolve(Plan plan, const Registry& registry, const Host& host);

}  // namespace p2pd
