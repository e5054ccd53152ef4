// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// What a capture brought home.
struct Capture {
  std::size_t files = 0;
  std::size_t commands = 0;
  std::vector<std::string> unreadable;  ///< there, but not readable (root would) or larger than a record wants
};

/// Writes a machine record of `host` (tests/machines/README.md) into `directory`, which must be absent or empty.
///
/// It holds what checks read (base/record/record_files.hpp), so that each of them says the same of the record. Serial
/// numbers, UUIDs, MAC addresses, process names, passwords and the host name are left out. machine.json is written last:
/// a directory without it is not a whole record.
Result<Capture> record_machine(const Host& host, const std::filesystem::path& directory);

}  // namespace p2pd
