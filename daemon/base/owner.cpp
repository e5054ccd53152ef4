// SPDX-License-Identifier: MIT
#include "base/owner.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace p2pd {

namespace fs = std::filesystem;

Result<void> only_root_changes(const fs::path& file, const fs::path& top, uid_t owner) {
  for (fs::path part = file;; part = part.parent_path()) {
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0) return fail_errno(part.string());
    const bool guarded = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if (info.st_uid != 0 && info.st_uid != owner)
      return fail(ErrorCode::denied, fmt::format("{} is owned by user {}, not by root", part.string(), info.st_uid),
                  "sudo chown root " + part.string());
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !guarded)
      return fail(ErrorCode::denied, part.string() + " is writable by others than root",
                  "sudo chmod go-w " + part.string());
    if (part == top || part == part.parent_path()) return {};
  }
}

Result<void> only_root_changes(const RootReader& files, std::string_view path) {
  const fs::path top = TRY(files.real_path("/"));
  TRY(only_root_changes(TRY(files.real_path(path)), top, ::geteuid()));
  return only_root_changes(TRY(files.real_path(fs::path(path).parent_path().string())), top, ::geteuid());
}

}  // namespace p2pd
