// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/host.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// GPUs of `host` that a gate of `plan` shows to be in the way and that only a person can change, by address, with the
/// reason; none if no two others can be peers without them, or if the plan requires all.
std::map<std::string, std::string> alone_gpus(const Plan& plan, const Registry& registry, const Host& host);

/// Sets the GPUs of `host` between which `plan` wants P2P, as far as that is decided.
void take_gpus(Host& host, const Plan& plan);

/// Does the same, and decides in the plan which are alone, if it has not been.
void choose_gpus(Host& host, Plan& plan, const Registry& registry);

}  // namespace p2pd
