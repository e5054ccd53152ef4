// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"

namespace p2pd {

// Data that an action's undo needs beyond the files that the engine keeps. Each run has a directory of its own below
// `place`, so that undoing one run restores what the run before it made.

/// Directory of the present change; is made, and `place` recorded, before anything is changed.
Result<std::string> begin_kept(Host& host, std::string_view place);

/// Directory of the change that is undone; `place` itself if an older p2pd, which had only that one, kept it.
std::string kept_for_undo(const Host& host, std::string_view place);

/// Empties that directory, which shows a repeated undo that all is done; once no run keeps anything, removes `place`.
Result<void> clear_kept(Host& host, std::string_view place);

}  // namespace p2pd
