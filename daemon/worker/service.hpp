// SPDX-License-Identifier: MIT
#pragma once

#include "plan/plan.hpp"

namespace p2pd {

/// Serves the socket and walks: goes on with the open run, then does what is asked, and ends after some seconds without
/// work. The exit code.
int serve(const Registry& registry);

/// At each boot: `prove` looks again whether what was proven holds, `reassert` makes anew what lasts for one boot only.
/// The exit code: 0 where it holds or there is nothing to do, 3 where it does not hold.
int prove(const Registry& registry);
int reassert(const Registry& registry);
/// For a hook of the kernel's packages: makes what a new kernel needs of what was proven, where no walk is under way.
int add_kernel(const Registry& registry);

}  // namespace p2pd
