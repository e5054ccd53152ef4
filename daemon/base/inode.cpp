// SPDX-License-Identifier: MIT
#include "base/inode.hpp"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

namespace p2pd {
namespace {

Result<std::vector<std::string>> xattr_names(const Descriptor& handle, const std::string& path) {
  for (;;) {
    const ssize_t size = ::listxattr(handle_name(handle).c_str(), nullptr, 0);
    if (size < 0 && errno == ENOTSUP) return std::vector<std::string>{};
    if (size < 0) return fail_errno(path + ": extended attributes");
    std::string buffer(static_cast<std::size_t>(size), '\0');
    const ssize_t used = size == 0 ? 0 : ::listxattr(handle_name(handle).c_str(), buffer.data(), buffer.size());
    if (used < 0 && errno == ERANGE) continue;  // an attribute was added in between
    if (used < 0) return fail_errno(path + ": extended attributes");
    std::vector<std::string> names;
    for (std::size_t at = 0; at < static_cast<std::size_t>(used); at += names.back().size() + 1) {
      names.emplace_back(buffer.c_str() + at);
    }
    return names;
  }
}

/// Labels of security modules, which no file can lose; they are set but never removed.
bool label(std::string_view xattr) { return xattr.starts_with("security.") && xattr != "security.capability"; }

}  // namespace

std::string handle_name(const Descriptor& handle) { return "/proc/self/fd/" + std::to_string(handle.get()); }

Result<struct stat> status_of(const Descriptor& handle, const std::string& path) {
  struct stat info {};
  if (::fstat(handle.get(), &info) != 0) return fail_errno(path);
  return info;
}

std::string_view kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a regular file" : "a device";
}

Result<std::string> read_regular(const Descriptor& handle, const std::string& path, std::size_t limit) {
  const struct stat info = TRY(status_of(handle, path));
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::invalid, path + " is " + std::string(kind_name(info.st_mode)) + ", not a regular file");
  }
  const Descriptor file(::open(handle_name(handle).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return fail_errno(path);
  std::string content;
  if (info.st_size > 0) content.reserve(std::min(static_cast<std::size_t>(info.st_size), limit));
  std::array<char, 16384> buffer;  // st_size is meaningless in procfs and sysfs: read to the end
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(path);
    if (count == 0) return content;
    if (content.size() + static_cast<std::size_t>(count) > limit) {
      return fail(ErrorCode::invalid, path + " is larger than " + std::to_string(limit) + " bytes");
    }
    content.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

Result<std::string> read_target(const Descriptor& link, const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = ::readlinkat(link.get(), "", target.data(), target.size());
  if (size < 0) return fail_errno(path);
  return std::string(target.data(), static_cast<std::size_t>(size));
}

Result<std::map<std::string, std::string>> xattrs_of(const Descriptor& handle, const std::string& path) {
  std::map<std::string, std::string> xattrs;
  for (const std::string& name : TRY(xattr_names(handle, path))) {
    std::string value(XATTR_SIZE_MAX, '\0');
    const ssize_t size = ::getxattr(handle_name(handle).c_str(), name.c_str(), value.data(), value.size());
    if (size < 0 && errno == ENODATA) continue;
    if (size < 0) return fail_errno(path + ": extended attribute " + name);
    value.resize(static_cast<std::size_t>(size));
    xattrs.emplace(name, std::move(value));
  }
  return xattrs;
}

// Sets the owner first: a change of owner clears set-id bits and capabilities, and an ACL sets the group bits.
Result<void> dress(const Descriptor& handle, const std::string& path, const FileState& state) {
  const std::string name = handle_name(handle);
  const struct stat now = TRY(status_of(handle, path));
  if ((now.st_uid != state.uid || now.st_gid != state.gid) &&
      ::fchownat(handle.get(), "", state.uid, state.gid, AT_EMPTY_PATH) != 0) {
    return fail_errno(path + ": set owner");
  }
  const auto old = TRY(xattrs_of(handle, path));
  for (const auto& [key, value] : old) {
    if (!state.xattrs.contains(key) && !label(key) && ::removexattr(name.c_str(), key.c_str()) != 0 &&
        errno != ENODATA) {
      return fail_errno(path + ": remove extended attribute " + key);
    }
  }
  if (state.kind != FileState::Kind::symlink && ::chmod(name.c_str(), state.mode & 07777U) != 0) {
    return fail_errno(path + ": set mode");
  }
  for (const auto& [key, value] : state.xattrs) {
    const auto same = old.find(key);
    if (same != old.end() && same->second == value) continue;
    if (::setxattr(name.c_str(), key.c_str(), value.data(), value.size(), 0) != 0) {
      return fail_errno(path + ": set extended attribute " + key);
    }
  }
  return {};
}

Result<void> sync_file(int fd, const std::string& path) {
  if (::fsync(fd) != 0) return fail_errno(path + ": fsync");
  return {};
}

Result<void> write_all(const Descriptor& file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(path + ": write");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> unlink_name(const Descriptor& parent, const std::string& name, const std::string& path) {
  if (::unlinkat(parent.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno == EISDIR && ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) == 0) return {};
  const int error = errno;
  if (error == ENOTEMPTY) return fail(ErrorCode::busy, path + ": remove: the directory is not empty");
  struct stat info {};  // a read-only file system refuses before it looks
  if (error == EROFS && ::fstatat(parent.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
    return {};
  return fail_errno(path + ": remove", error);
}

Result<void> make_inode(const Descriptor& parent, const std::string& name, const std::string& path,
                        const FileState& state) {
  TRY(unlink_name(parent, name, path));
  Descriptor file;
  switch (state.kind) {
    case FileState::Kind::absent: return {};
    case FileState::Kind::regular:
      file =
          Descriptor(::openat(parent.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!file) return fail_errno(path + ": create");
      TRY(write_all(file, state.content, path));
      break;
    case FileState::Kind::symlink:
      if (::symlinkat(state.content.c_str(), parent.get(), name.c_str()) != 0)
        return fail_errno(path + ": create link");
      break;
    case FileState::Kind::directory:
      if (::mkdirat(parent.get(), name.c_str(), 0700) != 0) return fail_errno(path + ": create directory");
      file = Descriptor(::openat(parent.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!file) return fail_errno(path);
      break;
  }
  const Descriptor handle(::openat(parent.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return fail_errno(path);
  TRY(dress(handle, path, state));
  if (file)
    TRY(sync_file(file.get(), path));  // a symlink has no descriptor to sync: its directory's journal carries it
  return {};
}

Result<bool> dress_directory(const Descriptor& parent, const std::string& name, const std::string& path,
                             const FileState& state) {
  const Descriptor directory(::openat(parent.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return false;
  if (!directory) return fail_errno(path);
  TRY(dress(directory, path, state));
  TRY(sync_file(directory.get(), path));
  return true;
}

}  // namespace p2pd
