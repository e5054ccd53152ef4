// SPDX-License-Identifier: MIT
// Content and attributes of an inode, behind a descriptor that may be an O_PATH one; `path` names it in messages.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Name under which calls that refuse an O_PATH descriptor accept it; a symlink held by it is never followed.
std::string handle_name(const Descriptor& handle);

Result<struct stat> status_of(const Descriptor& handle, const std::string& path);

/// Kind in words: "a directory", "a named pipe", ...
std::string_view kind_name(mode_t mode);

/// Content of a regular file of at most `limit` bytes; opens no other kind, because opening a device can act.
Result<std::string> read_regular(const Descriptor& handle, const std::string& path, std::size_t limit);

Result<std::string> read_target(const Descriptor& link, const std::string& path);

Result<std::map<std::string, std::string>> xattrs_of(const Descriptor& handle, const std::string& path);

/// Sets the inode's owner, mode and extended attributes to those of `state`.
Result<void> dress(const Descriptor& handle, const std::string& path, const FileState& state);

/// Syncs a file. A failed fsync may have dropped the dirty pages: it is final, because a second one would claim
/// success.
Result<void> sync_file(int fd, const std::string& path);

/// Writes all of `bytes`.
Result<void> write_all(const Descriptor& file, std::string_view bytes, const std::string& path);

/// Removes `name`, a file or an empty directory; succeeds if it is not there.
Result<void> unlink_name(const Descriptor& parent, const std::string& name, const std::string& path);

/// Makes `name` in `parent`, complete and synced, as `state` says; `path` is for messages.
Result<void> make_inode(const Descriptor& parent, const std::string& name, const std::string& path,
                        const FileState& state);

/// Sets the attributes of the existing directory `name` to those of `state`; false if nothing is there.
Result<bool> dress_directory(const Descriptor& parent, const std::string& name, const std::string& path,
                             const FileState& state);

}  // namespace p2pd
