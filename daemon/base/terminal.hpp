// SPDX-License-Identifier: MIT
#pragma once

namespace p2pd {

/// True if `fd` is a terminal that obeys escape sequences, which TERM=dumb denies.
bool obeys_escapes(int fd);

/// True if text on `fd` may have colours: a terminal that obeys escape sequences, and NO_COLOR is not set.
bool has_colours(int fd);

}  // namespace p2pd
