// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
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

/// Everything a walk needs, opened: the lock, the journal, what undo needs, the host. One at a time for a tree.
class Worker {
 public:
  struct Options {
    std::filesystem::path root = "/";
    std::filesystem::path state;        ///< empty: state_directory(root)
    std::string holder;                 ///< "p2pctl apply": named to whoever finds the lock taken
    bool accept_state_loss = false;     ///< go on without a state database that is unusable
    std::chrono::seconds patience{0};   ///< for somebody else who is at work
  };

  /// What it hears from, asks and tells: each outlives the worker.
  struct Peers {
    CommandRunner& runner;
    Observer& observer;
    Requests& requests;
    Rebooter& rebooter;
  };

  static Result<Worker> open(const Options& options, const Registry& registry, const Peers& peers);
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
