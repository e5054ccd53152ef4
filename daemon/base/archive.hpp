// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// Files, links and directories of a host that go into an archive with owner, mode, times and extended attributes.
struct ArchivePaths {
  std::vector<std::string> paths;  ///< directories without what is in them
  std::vector<std::string> trees;  ///< directories with all that is in them
};

/// Packs them into the file `tar`; none is an archive, too.
Result<void> pack(Host& host, const ArchivePaths& what, const std::string& tar);

/// Puts each back at its place; what is there is replaced.
Result<void> unpack(Host& host, const std::string& tar);

}  // namespace p2pd
