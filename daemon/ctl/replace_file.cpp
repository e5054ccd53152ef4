// SPDX-License-Identifier: MIT
#include "ctl/replace_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/root.hpp"

namespace p2pd::ctl {

Result<void> replace_file(const std::string& name, std::string text, mode_t mode) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(name, error).lexically_normal();
  if (error || !std::filesystem::is_directory(path.parent_path(), error))
    return fail(ErrorCode::not_found, fmt::format("{}: its directory does not exist", name));
  FileState file;
  file.kind = FileState::Kind::regular;
  file.content = std::move(text);
  file.mode = mode;
  file.uid = ::geteuid();
  file.gid = ::getegid();
  Root root = TRY(Root::open("/"));
  return root.put(path.string(), file);
}

}  // namespace p2pd::ctl
