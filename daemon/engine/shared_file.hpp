// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string_view>

#include "base/root.hpp"

namespace p2pd {

/// True for a file in which p2pd has a block, from a line "# BEGIN p2pd" to "# END p2pd", and others have the rest.
bool is_shared(std::string_view path);

/// Such a file as it is now, with the block that `old` has, or none: what others changed since stays, also its mode.
/// Absent if nothing is left of a file that p2pd made. Nothing: the block has lost its end, or one is no regular file.
std::optional<FileState> with_block_of(const FileState& old, const FileState& now);

}  // namespace p2pd
