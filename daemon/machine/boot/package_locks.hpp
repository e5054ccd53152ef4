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
  std::string process;  ///< name of the process; empty if it cannot be read
};

/// Holders of package locks now, from /proc/locks and the inodes of the lock files: locks nothing and waits for
/// nothing. nullopt if a recorded host has no table of locks.
Result<std::optional<std::vector<PackageLock>>> package_locks(const Host& host);

/// Waits until no process holds one of them; after `patience`, ErrorCode::busy names the holder.
Result<void> wait_for_package_locks(const Host& host, std::chrono::seconds patience = std::chrono::seconds(120));

}  // namespace p2pd
