// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// Files, links and directories of a host that go into an archive with owner, mode, times and extended attributes.
struct ArchivePaths {
  std::vector<std::string> paths;  ///< directories without their content
  std::vector<std::string> trees;  ///< directories with all their content
};

/// Packs them into the file `tar`; an empty list makes a valid archive.
Result<void> pack(Host& host, const ArchivePaths& what, const std::string& tar);

/// Size of an archive that can be read to its end, which its content needs at most; the Error names the file.
Result<std::uint64_t> archive_bytes(const Host& host, const std::string& tar);

/// Restores each at its path; replaces what is there.
Result<void> unpack(Host& host, const std::string& tar);

}  // namespace p2pd
