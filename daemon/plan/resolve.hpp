// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/host.hpp"
#include "plan/plan.hpp"

// Choices that a plan leaves to the machine that it is for.
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

/// GPUs of `host` that a gate of `plan` shows to be in the way and that only a person can change, by address, with the
/// reason; none if no two others can be peers without them, or if the plan requires all.
std::map<std::string, std::string> alone_gpus(const Plan& plan, const Registry& registry, const Host& host);

/// Sets the GPUs of `host` between which `plan` wants P2P, as far as that is decided.
void take_gpus(Host& host, const Plan& plan);

/// Does the same, and decides in the plan which are alone, if it has not been.
void choose_gpus(Host& host, Plan& plan, const Registry& registry);

}  // namespace p2pd
