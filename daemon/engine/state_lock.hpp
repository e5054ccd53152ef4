// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// STATE/lock, held while this lives: one worker at a time for a tree.
class StateLock {
 public:
  /// Makes the state directory where there is none. `named`: another than state_directory(root); empty: that.
  /// `holder` ("p2pctl apply") is told to whoever finds the lock taken; `patience`: for somebody else who is at work.
  ///
  /// ErrorCode::busy names the process that holds it, as the kernel knows it, and what it does where that is a worker.
  static Result<StateLock> take(const std::filesystem::path& root, const std::filesystem::path& named, const std::string& holder,
                                std::chrono::seconds patience = {});

  const std::filesystem::path& state() const { return state_; }

  /// Keeps the state to root and the service p2pd, which reads it: every reader could hold its locks. Closes what an older
  /// version left open to all.
  void close_to_others() const;

 private:
  StateLock() = default;
  Failure refuse(const std::string& path) const;

  std::filesystem::path state_;
  bool own_ = false;  ///< the directory is p2pd's, not one that somebody named
  Descriptor file_;
};

}  // namespace p2pd
