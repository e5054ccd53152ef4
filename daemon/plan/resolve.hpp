// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// `plan` with its choices made for `host`:
/// - `entry: chosen` is the entry that p2pd installed, as long as it fits; else the one that the solver takes, or "none"
///   where the driver that runs gives P2P already;
/// - `userspace: chosen` is keep where the installed packages are of that entry's version, else runfile;
/// - kernel argument `pci=disable_acs_redir=chosen` names the ports at which ACS redirects traffic between GPUs.
/// - of an image, steps whose check is skip_on_image are left to its first boot: they are not in the plan.
/// Where there is nothing to choose, or the machine cannot be read, the word stays: a check says why, and the next walk
/// chooses again.
Plan resolve(Plan plan, const Registry& registry, const Host& host);

}  // namespace p2pd
