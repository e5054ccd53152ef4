// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/host.hpp"
#include "engine/journal.hpp"
#include "engine/seams.hpp"
#include "engine/undo.hpp"
#include "engine/walk.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Where the state of a tree lies: /var/lib/p2pd for the running system. For another root it lies beside the tree
/// ("DIR.p2pd"), because state of a machine must never travel in an image.
std::filesystem::path state_directory(const std::filesystem::path& root);

/// Everything a walk needs, opened: the lock, the journal, what undo needs, the host. One at a time for a tree.
class Worker {
 public:
  struct Options {
    std::filesystem::path root = "/";
    std::filesystem::path state;        ///< empty: state_directory(root)
    std::string holder;                 ///< "p2pctl apply": named to whoever finds the lock taken
    bool accept_state_loss = false;     ///< go on without a state database that is unusable
    int stop_fd = -1;                   ///< readable: end soon; the run stays open
    bool reboot = true;                 ///< false: reboots are somebody else's to make
  };

  static Result<Worker> open(const Options& options, const Vocabulary& vocabulary, CommandRunner& runner,
                             Observer& observer);
  ~Worker();
  Worker(Worker&&) noexcept;

  Walk& walk();
  /// Something of the host was changed since open().
  bool changed() const;

 private:
  struct Parts;
  explicit Worker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace p2pd
