// SPDX-License-Identifier: MIT
// What an inode holds, behind a descriptor of it that may be an O_PATH one; `path` names it in messages.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/root.hpp"

namespace p2pd {

/// The name under which an O_PATH descriptor takes the calls that refuse one; it never follows a symlink held by it.
std::string handle_name(const Descriptor& handle);

Result<struct stat> status_of(const Descriptor& handle, const std::string& path);

/// "a directory", "a named pipe", ...
std::string_view kind_name(mode_t mode);

/// Content of a regular file of at most `limit` bytes; opens nothing else, because opening a device can act.
Result<std::string> read_regular(const Descriptor& handle, const std::string& path, std::size_t limit);

Result<std::string> read_target(const Descriptor& link, const std::string& path);

Result<std::map<std::string, std::string>> xattrs_of(const Descriptor& handle, const std::string& path);

/// Gives the inode the owner, mode and extended attributes of `state`.
Result<void> dress(const Descriptor& handle, const std::string& path, const FileState& state);

}  // namespace p2pd
