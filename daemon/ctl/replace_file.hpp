// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace p2pd::ctl {

/// Writes `text` into the file `name` so that whoever reads it sees the old one or the new one, whole. A link is
/// replaced, not followed. Its directory must be there.
Result<void> replace_file(const std::string& name, std::string text, mode_t mode);

}  // namespace p2pd::ctl
