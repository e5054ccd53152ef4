// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "base/root.hpp"

namespace p2pd {

/// Checks that nobody but root can change or replace `file`, a canonical path: it and the directories above it, up to
/// `top`, belong to root or `owner`, and no others can write there. In a sticky directory nobody replaces root's files.
///
/// ErrorCode::denied names the file or directory that others can change, and the command that ends this.
Result<void> only_root_changes(const std::filesystem::path& file, const std::filesystem::path& top = "/",
                               uid_t owner = 0);
/// Does the same for a path in a tree: for the target of a link, and for the directory that holds the link. Files of
/// this process's user are as good as root's.
Result<void> only_root_changes(const RootReader& files, std::string_view path);

}  // namespace p2pd
