// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>

#include "ctl/verb.hpp"
#include "engine/worker.hpp"

namespace p2pd::ctl {

/// SIGTERM and SIGINT become readable, so that what runs ends at a safe point; the descriptor.
int stop_signals();

/// Opens a worker, lets `work` walk, prints how the run stands; the exit code of the verb.
Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work);

/// Stands for the run of a tree that p2pd never worked on.
Run nothing_yet();

/// Prints a run as it stands, and what to do next; `changed`: the host, where this call could; `stopped`: by a signal, before it was through. The exit code.
int print_run(const Context& context, const Run& run, std::optional<bool> changed, bool stopped = false);

}  // namespace p2pd::ctl
