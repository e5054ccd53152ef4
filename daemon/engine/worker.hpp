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

/// Open resources of a walk: the lock, the journal, the undo store, the host. One at a time for a tree.
class Worker {
 public:
  struct Options {
    std::filesystem::path root = "/";
    std::filesystem::path state;       ///< empty: state_directory(root)
    std::string holder;                ///< "p2pctl apply": reported to a process that finds the lock taken
    bool accept_state_loss = false;    ///< continue without an unusable state database
    std::chrono::seconds patience{0};  ///< longest wait for another worker
  };

  /// Interfaces of the worker; each must outlive it.
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
  /// True if the host was changed since open().
  bool changed() const;

 private:
  struct Parts;
  explicit Worker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace p2pd
