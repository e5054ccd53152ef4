// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Lock STATE/lock, held for the lifetime of the object: one worker at a time for a tree.
class StateLock {
 public:
  /// Makes the state directory if there is none. `named`: a directory in place of state_directory(root); empty: that
  /// one. `holder` ("p2pctl apply") is reported to a process that finds the lock taken. `patience`: longest wait for
  /// another holder.
  ///
  /// ErrorCode::busy names the process that holds the lock, as the kernel lists it, and the command of a worker.
  static Result<StateLock> take(const std::filesystem::path& root, const std::filesystem::path& named,
                                const std::string& holder, std::chrono::seconds patience = {});

  const std::filesystem::path& state() const { return state_; }

  /// Restricts the state to root and the group p2pd, for the service: every reader could hold its locks. Also corrects
  /// the permissions that an older version left open to all.
  void close_to_others() const;

 private:
  StateLock() = default;
  Failure refuse(const std::string& path) const;

  std::filesystem::path state_;
  bool own_ = false;  ///< the directory is state_directory(root), not a named one
  Descriptor file_;
};

}  // namespace p2pd
