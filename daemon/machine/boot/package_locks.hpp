// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// A lock file of dpkg or apt, and the process that holds it.
struct PackageLock {
  std::string file;
  std::int64_t pid = 0;
  std::string process;  ///< its name; empty where it cannot be read
};

/// Who installs now, from /proc/locks against the inodes of the lock files: nothing is locked or waited for. Nothing
/// where a recorded host has no table of locks.
Result<std::optional<std::vector<PackageLock>>> package_locks(const Host& host);

/// Returns once nobody holds one of them; after `patience`, ErrorCode::busy names who still does.
Result<void> wait_for_package_locks(const Host& host, std::chrono::seconds patience = std::chrono::seconds(120));

}  // namespace p2pd
