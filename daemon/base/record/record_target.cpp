// SPDX-License-Identifier: MIT
#include "base/record/record_target.hpp"

#include <cerrno>
#include <fstream>

namespace p2pd {

namespace fs = std::filesystem;

Result<void> RecordTarget::prepare() const {
  std::error_code error;
  fs::create_directories(directory_, error);
  const bool empty = !error && fs::is_empty(directory_, error);
  if (error) return fail_errno(directory_.string(), error.value());
  if (!empty)
    return fail(ErrorCode::state, directory_.string() + " is not empty", "Name a new directory for the record.");
  return {};
}

Result<void> RecordTarget::file(std::string_view path, std::string_view content) const {
  const fs::path name = TRY(place(path));
  std::ofstream out(name, std::ios::binary | std::ios::trunc);
  const bool text = content.find('\0') == std::string_view::npos;
  const std::string shown = text ? without_private_words(std::string(content), identity_) : std::string(content);
  out.write(shown.data(), static_cast<std::streamsize>(shown.size()));
  out.close();
  if (!out) return fail_errno(name.string(), errno != 0 ? errno : EIO);
  ++capture_->files;
  return {};
}

Result<void> RecordTarget::stand_in(std::string_view path, bool executable) const {
  TRY(file(path, ""));
  if (!executable) return {};
  const fs::path name = TRY(place(path));
  std::error_code error;
  fs::permissions(name, fs::perms(0755), error);
  if (error) return fail_errno(name.string(), error.value());
  return {};
}

Result<void> RecordTarget::link(std::string_view path, const std::string& target) const {
  const fs::path name = TRY(place(path));
  std::error_code error;
  fs::create_symlink(target, name, error);
  if (error) return fail_errno(name.string(), error.value());
  ++capture_->files;
  return {};
}

Result<fs::path> RecordTarget::place(std::string_view path) const {
  fs::path name = directory_ / fs::path(path).relative_path();
  std::error_code error;
  fs::create_directories(name.parent_path(), error);
  if (error) return fail_errno(name.parent_path().string(), error.value());
  errno = 0;
  return name;
}

}  // namespace p2pd
