// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

// What the undo of an action needs beyond files that the engine keeps: each run has a directory of its own below `place`,
// so that undoing one run brings back what the run before it made.

/// Directory of the present change; made, and `place` recorded, before anything is changed.
Result<std::string> begin_kept(Host& host, std::string_view place);

/// Directory of the change that is undone. It is `place` itself where an older p2pd, which had only that one, kept it.
std::string kept_for_undo(const Host& host, std::string_view place);

/// Removes what is in that directory, and `place` once nothing is kept there. Until then the directory stays, empty: an
/// undo that was killed and is run again sees that all is done.
Result<void> clear_kept(Host& host, std::string_view place);

}  // namespace p2pd
