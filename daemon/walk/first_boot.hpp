// SPDX-License-Identifier: MIT
#pragma once

#include "walk/mailbox.hpp"
#include "walk/publisher.hpp"

namespace p2pd {

/// Early in a boot: returns once cloud-init has ended, nobody installs packages and the clock is set, or after some
/// minutes, or when somebody wants something.
void wait_for_first_boot(const Mailbox& mailbox, Publisher& publisher);

}  // namespace p2pd
