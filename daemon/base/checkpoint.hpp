// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Makes data written to the file system of `directory` readable to programs that do not replay its journal, such as
/// GRUB.
///
/// syncfs(2) is enough for file systems without a journal, and for btrfs and f2fs, whose sync commits the tree that
/// GRUB reads. An ioctl writes back ext4's journal (Linux 5.14). A short freeze writes back that of XFS and of ext4
/// before Linux 5.14. The thaw does not depend on this process, nor on any other single one. ErrorCode::timeout after a
/// minute. Needs root.
Result<void> checkpoint_file_system(const Descriptor& directory, std::string_view path);

}  // namespace p2pd
