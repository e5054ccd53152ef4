// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/root.hpp"

namespace p2pd::test {

/// `directory` as the root of a running host ("/"), which takes a chroot there and back; nothing unless root.
inline std::optional<Root> live_root(const std::filesystem::path& directory) {
  const int outside = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int here = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::optional<Root> root;
  if (outside >= 0 && here >= 0 && ::chroot(directory.c_str()) == 0) {
    if (auto opened = Root::open("/")) root = std::move(*opened);
    if (::fchdir(outside) != 0 || ::chroot(".") != 0 || ::fchdir(here) != 0) std::abort();
  }
  ::close(outside);
  ::close(here);
  return root;
}

}  // namespace p2pd::test
