// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace p2pd {

class Descriptor;

/// State of a path, complete enough to restore it: kind, content, mode, owner, extended attributes.
struct FileState {
  enum class Kind { absent, regular, symlink, directory };
  Kind kind = Kind::absent;
  std::string content;  ///< bytes of a regular file, target of a symlink
  mode_t mode = 0;      ///< permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  std::map<std::string, std::string> xattrs;

  bool operator==(const FileState&) const = default;
};

std::string_view to_string(FileState::Kind kind);

/// Word in brackets of an attribute that lists its choices, "always [madvise] never"; nothing if there is none.
std::optional<std::string_view> choice_in_force(std::string_view content);
/// Value of an attribute of procfs or sysfs as it is written: its choice in force, or all of it without the final
/// newline.
std::string_view attribute_value(std::string_view content);

/// Contents of files to come, by path; nullopt: the file is gone by then.
using PendingFiles = std::map<std::string, std::optional<std::string>>;

/// A directory tree as a whole file system, read-only: every path, and every symlink on the way, resolves inside it.
///
/// Paths are absolute ("/etc/fstab"); ".." stops at the root. In a tree other than that of this process, file systems
/// of the running kernel (proc, sysfs, efivarfs mounted there) are absent. Other roots than / need openat2(2),
/// Linux 5.6.
class RootReader {
 public:
  static constexpr std::size_t kReadLimit = 64U << 20;  ///< limit in bytes; a larger file is an error

  const std::filesystem::path& directory() const { return directory_; }
  bool live() const { return directory_ == "/"; }

  Result<std::string> read(std::string_view path, std::size_t limit = kReadLimit) const;
  bool exists(std::string_view path) const;
  Result<struct stat> stat(std::string_view path) const;
  /// Free space of the file system of `path` for an ordinary process, in bytes.
  Result<std::uint64_t> free_bytes(std::string_view path) const;
  /// Names in a directory, sorted, without "." and "..".
  Result<std::vector<std::string>> list(std::string_view path) const;
  Result<std::string> read_link(std::string_view path) const;
  /// State of `path` now, symlinks not followed; devices, sockets and pipes are an error.
  Result<FileState> capture(std::string_view path) const;
  /// Path of an existing file or directory as the process sees it, for libraries that need a name.
  Result<std::filesystem::path> real_path(std::string_view path) const;
  /// Directories above `path` that do not exist yet, outermost first.
  Result<std::vector<std::string>> missing_parents(std::string_view path) const;

  /// Syncs the file systems of the system's own directories: few programs sync what they write.
  Result<void> make_durable() const;
  /// Makes written files readable to programs that do not replay the journal, such as GRUB: without it a power cut
  /// right after a write shows GRUB the old file. See checkpoint_file_system(); a sync for an image.
  Result<void> checkpoint(std::string_view directory) const;

 protected:
  RootReader(std::filesystem::path directory, std::shared_ptr<Descriptor> fd)
      : directory_(std::move(directory)), fd_(std::move(fd)) {}
  Result<Descriptor> open_at(std::string_view path, std::uint64_t flags) const;

 private:
  Result<std::vector<std::string>> list_now(std::string_view path) const;

  friend class Host;  // sets pending_ in a snapshot
  std::filesystem::path directory_;
  std::shared_ptr<Descriptor> fd_;
  PendingFiles pending_;  ///< seen in place of those in the tree
};

/// The same tree, writable. A RootReader cannot be turned into one.
class Root : public RootReader {
 public:
  static Result<Root> open(const std::filesystem::path& directory);

  /// Replaces `path` durably: writes beside it, syncs, renames, syncs the directory. Creates parent directories (0755).
  /// Replaces a symlink, never follows it; neither replaces a directory nor makes one in place of another kind.
  Result<void> put(std::string_view path, const FileState& state);
  /// Writes to an existing attribute of procfs or sysfs by one write(2), as a shell's redirection does: nothing is
  /// synced.
  Result<void> write_attribute(std::string_view path, std::string_view value);
  /// Removes a file, symlink or empty directory, durably; succeeds if it is absent.
  /// A directory that is not empty is ErrorCode::busy.
  Result<void> remove(std::string_view path);
  /// Removes what a killed put() of `path` left beside it, and makes the file at `path` durable.
  Result<void> settle(std::string_view path);
  /// Removes a file, symlink or directory with all its content; succeeds if it is absent.
  Result<void> remove_tree(std::string_view path);
  /// Renames `from` to `to` on the same file system, durably: syncs all of it before. A directory replaces only an
  /// empty one.
  Result<void> move(std::string_view from, std::string_view to);

 private:
  using RootReader::RootReader;
  Result<Descriptor> open_parent(const std::string& path, bool create);
};

}  // namespace p2pd
