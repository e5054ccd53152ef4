// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

#include "probes/bench/measure/channel.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

/// A second process with contexts of its own, whose peers are enabled in descending order: it writes into memory of
/// the first through CUDA IPC, then contends with atomics and shares managed memory, of both of which it may die.
class PeerProcess {
 public:
  /// Forks; to be called before this process has threads or has touched CUDA.
  static Result<PeerProcess> start();
  ~PeerProcess();
  PeerProcess(PeerProcess&&) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;

  pid_t process() const { return process_; }
  /// Lets it open its contexts, beside what this process goes on with: the driver opens one at a time.
  void go();
  /// Tests "ipc-store", "ipc-copy" (legacy handles of the arena) and "ipc-vmm" (memory passed as a file descriptor), on
  /// every ordered pair: the other process writes from GPU `from` into our memory on GPU `to`, and `to` verifies here.
  Result<void> prove_ipc(Bench& bench);
  /// Fills Measurement::atomics for every ordered pair that claims native atomics; the others get a reason in not_run.
  Result<void> contend(Bench& bench);
  /// Test kManaged on every ordered pair, where no_managed() has nothing against it; then tries whether the GPUs still work. An end
  /// of the other process is a Wrong of the pair that it was asked for last.
  Result<void> prove_managed(Bench& bench);
  /// It is on its way out by itself: nobody waits for it, and the caller leaves, too.
  void leave() {
    process_ = -1;
    channel_.reset();
  }

 private:
  PeerProcess(pid_t process, Descriptor channel) : process_(process), channel_(std::move(channel)) {}
  /// Its answer to a request; an Error, after which the process is no more, tells how it went: `timeout`, it did not answer.
  Result<nlohmann::json> ask(const nlohmann::json& request, const std::vector<int>& descriptors = {});
  /// Ends it and waits a little; how it ended, where that is known by then.
  std::string end();

  pid_t process_ = -1;  ///< -1: no more
  Descriptor channel_;
  std::string gone_;  ///< why it is no more
};

/// Why managed memory is not tested in this run; empty where it is.
std::string no_managed(const Asked& asked);

}  // namespace p2pd::bench
