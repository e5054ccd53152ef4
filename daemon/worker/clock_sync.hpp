// SPDX-License-Identifier: MIT
#pragma once

#include "worker/mailbox.hpp"
#include "worker/publisher.hpp"

namespace p2pd {

/// Early in a boot: returns once the clock is set, without which no server's certificate is valid; or after a minute, or
/// when somebody wants something.
void wait_for_clock(const Mailbox& mailbox, Publisher& publisher);

}  // namespace p2pd
