// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "ctl/verb.hpp"
#include "engine/worker.hpp"

namespace p2pd::ctl {

/// SIGTERM and SIGINT become readable, so that what runs ends at a safe point; the descriptor.
int stop_signals();

/// Opens a worker, lets `work` walk, prints how the run stands; the exit code of the verb.
Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work);

}  // namespace p2pd::ctl
