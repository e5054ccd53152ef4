// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace p2pd::ctl {

/// Writes `text` into the file `name`; a reader sees the complete old or the complete new one. A link is
/// replaced, not followed. The directory must exist.
Result<void> replace_file(const std::string& name, std::string text, mode_t mode);

}  // namespace p2pd::ctl
