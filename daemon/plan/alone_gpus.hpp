// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "base/host.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Sets the GPUs of `host` between which `plan` wants P2P: without those that it names, and, unless it requires all of
/// the others, without those that a gate shows to be in the way and that only a person can change, as long as two
/// others can be peers. Returns a snapshot of the host with that choice.
std::unique_ptr<const Host> choose_gpus(Host& host, const Plan& plan, const Registry& registry);

}  // namespace p2pd
