// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "base/host.hpp"
#include "engine/journal.hpp"
#include "engine/seams.hpp"
#include "engine/state_lock.hpp"
#include "engine/undo.hpp"
#include "engine/walk.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// State of a tree, opened for a walk: the lock, the journal, the undo store, the host. One at a time for a tree.
class OpenState {
 public:
  struct Options {
    std::filesystem::path root = "/";
    std::filesystem::path state;       ///< empty: state_directory(root)
    std::string holder;                ///< "p2pctl apply": reported to a process that finds the lock taken
    bool accept_state_loss = false;    ///< continue without an unusable state database
    std::chrono::seconds patience{0};  ///< longest wait for another holder
  };

  /// The process that walks; each must outlive the state.
  struct Peers {
    CommandRunner& runner;
    Observer& observer;
    Poll poll;
    Rebooter& rebooter;
  };

  static Result<std::unique_ptr<OpenState>> open(const Options& options, const Registry& registry, const Peers& peers);

  Walk& walk() { return walk_; }
  /// True if the host was changed since open().
  bool changed() const { return undo_.changed(); }

 private:
  OpenState(StateLock lock, Journal journal, UndoStore undo, const Root& root, const Registry& registry,
            const Peers& peers, std::string boot_id);

  StateLock lock_;
  Journal journal_;
  UndoStore undo_;
  Host host_;
  SystemClock clock_;
  Walk walk_;
};

}  // namespace p2pd
