// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "probes/bench/measure/channel.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

/// Second process with contexts of its own, which enables peers in descending order. It writes into memory of
/// the first through CUDA IPC, then reduces in CUDA graphs, contends with atomics and shares memory; each of
/// these may kill it.
class PeerProcess {
 public:
  /// Forks; must be called before this process has threads or has used CUDA.
  static Result<PeerProcess> start();
  ~PeerProcess();
  PeerProcess(PeerProcess&&) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;

  pid_t process() const { return process_; }
  /// Lets it open its contexts, while this process continues: the driver opens one at a time.
  void go();
  /// Tests "ipc-store", "ipc-copy" (legacy handles of the arena) and "ipc-vmm" (memory passed as a file descriptor), on
  /// every ordered pair: the other process writes from GPU `from` into this process's memory on GPU `to`, and `to`
  /// verifies here.
  Result<void> prove_ipc(Bench& bench);
  /// Test kGraphReduce on every pair: Measurement::all_reduces. If the other process ends, checks that the GPUs still
  /// work.
  Result<void> prove_all_reduce(Bench& bench);
  /// One size of it on one pair, `bytes` on each GPU, `replays` times. Returns true if all sums were right; else
  /// `bench.found` has the error, or the reason why it did not run.
  bool all_reduce(Bench& bench, int one, int other, u64 bytes, u64 replays);
  /// Fills Measurement::atomics for every ordered pair that claims native atomics; the others get a reason in not_run.
  Result<void> contend(Bench& bench);
  /// Tests kCompressible and kManaged on every ordered pair, unless untested_memory() has a reason against it; then
  /// checks that the GPUs still work. If the other process ends, the pair of the last request gets a Wrong.
  Result<void> prove_memory(Bench& bench);
  /// Forgets the process, which exits by itself: the caller exits, too, and does not wait for it.
  void leave() {
    process_ = -1;
    channel_.reset();
  }

 private:
  PeerProcess(pid_t process, Descriptor channel) : process_(process), channel_(std::move(channel)) {}
  /// Answer to a request; after an Error the process has ended. The Error has the reason: `timeout`, it did not answer.
  Result<nlohmann::json> ask(const nlohmann::json& request, const std::vector<int>& descriptors = {});
  /// Answer to the request of a test that may end the other process. If it does, the pair gets a Wrong.
  Result<nlohmann::json> try_pair(Bench& bench, const Pair& pair, const char* test, u64 bytes,
                                  const nlohmann::json& request);
  /// Ends it and waits briefly; returns how it ended, if that is known by then.
  std::string end();

  pid_t process_ = -1;  ///< -1: ended
  Descriptor channel_;
  std::string gone_;  ///< reason why it ended
};

/// Repeats copies, stores, loads and all-reduces over all pairs until Asked::soak_minutes are over, or something is
/// wrong. Measurement::soak has the last sample. An error: a GPU faulted; its message names those that do not answer.
Result<void> soak(Bench& bench, PeerProcess& other, const Host& host);

/// Error if a GPU no longer works for this process.
Result<void> still_working(const Bench& bench);

/// Reasons why kinds of memory are not tested in this run, by test.
std::map<std::string, std::string> untested_memory(const Asked& asked);

}  // namespace p2pd::bench
