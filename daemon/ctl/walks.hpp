// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "ctl/verb.hpp"
#include "engine/worker.hpp"

namespace p2pd::ctl {

/// Opens a worker, runs `work`, prints the state of the run. Returns the exit code of the verb.
Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work);

}  // namespace p2pd::ctl
