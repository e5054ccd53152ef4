// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Makes what was written to the file system of `directory` readable to programs that do not replay its journal, as GRUB.
///
/// syncfs(2) does for file systems without a journal, and for btrfs and f2fs, whose sync commits the tree that GRUB reads.
/// ext4's journal is written back (Linux 5.14), that of XFS and of ext4 before by freezing the file system for a moment.
/// The thaw does not depend on this process, nor on any one other; ErrorCode::timeout after a minute. Needs root.
Result<void> checkpoint_file_system(const Descriptor& directory, std::string_view path);

}  // namespace p2pd
