// SPDX-License-Identifier: MIT
#pragma once

#include "plan/plan.hpp"

namespace p2pd {

/// Serves the socket and walks: continues the open run, then handles requests, and ends after some seconds without
/// work. Returns the exit code.
int serve(const Registry& registry);

/// Run at each boot: `prove` checks again what was proven, `reassert` applies again the fixes that last for one boot
/// only. Exit code: 0 if it holds or there is nothing to do, 3 if it does not hold.
int prove(const Registry& registry);
int reassert(const Registry& registry);
/// Prepares a new kernel for the proven setup, unless a walk is running. Called by a hook of the kernel's packages.
int add_kernel(const Registry& registry);

}  // namespace p2pd
