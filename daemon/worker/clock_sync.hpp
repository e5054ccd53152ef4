// SPDX-License-Identifier: MIT
#pragma once

#include "worker/mailbox.hpp"
#include "worker/publisher.hpp"

namespace p2pd {

/// Waits early in a boot until the clock is set: before that no server's certificate is valid. Returns after a minute,
/// or when a request arrives.
void wait_for_clock(const Mailbox& mailbox, Publisher& publisher);

}  // namespace p2pd
