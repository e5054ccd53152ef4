// SPDX-License-Identifier: MIT
// The second process of a full proof, and the requests to it. Both processes are one program, so a message is the bytes
// of a struct; one with memory has a file descriptor beside it.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

/// Task of the second process.
enum class Task : u32 {
  open,       ///< first request, without an answer: opens every GPU
  memory,     ///< takes `bytes` of memory of the first process on GPU `to`, whose descriptor is beside the request
  ipc_store,  ///< these three: GPU `from` writes a strip of `bytes` into memory of the first process on GPU `to`
  ipc_copy,
  ipc_vmm,
  close,         ///< without an answer: closes all memory of the first process
  all_reduce,    ///< `replays` times, `bytes` on each GPU. Answer: the sides of `from` and of `to`
  contend,       ///< Answer: the error found; empty: exact
  compressible,  ///< these two: GPU `from` fills `bytes` of such memory. Answer: up to two looks of `to`
  managed,
};

struct Request {
  Task task = Task::open;
  int from = 0;
  int to = 0;
  u64 bytes = 0;
  u64 replays = 0;
  std::array<u64, 2> keys{};      ///< of the data of `from`, and of `to`
  cuda::CUipcMemHandle handle{};  ///< of the arena to write into; for ipc_vmm the memory is that of Task::memory
  u64 at = 0;                     ///< byte of that memory where the strip begins
};

struct Answer {
  enum class Kind : u32 {
    done,
    not_run,  ///< it could not be tried
    faulted,  ///< a GPU faulted at this write
    error,    ///< a CUDA error: the process exits, as its contexts are unusable
  };
  /// Results of one GPU; after `seen`, those of an all-reduce, as in Reduce.
  struct Side {
    Seen seen;
    u64 replays;
    u64 total_ns;
    u64 stopped;
  };
  Kind kind = Kind::done;
  u32 looks = 0;  ///< number of `sides` that have a look
  std::array<Side, 2> sides{};
  std::array<char, 1000> text{};  ///< reason, unless it is done
};
/// Answer with this text, shortened if it is long.
Answer answer_of(Answer::Kind kind, std::string_view text);

/// Sends a message, with a file descriptor unless it is -1. Never waits: if the reader is blocked, returns an Error.
Result<void> send_message(int socket, const void* message, std::size_t size, int descriptor = -1);
/// Waits for a message of this size, as long as the socket's SO_RCVTIMEO; returns its descriptor, if it has one.
/// not_found: the other end is closed.
Result<Descriptor> receive_message(int socket, void* message, std::size_t size);

/// Limit for an answer.
constexpr int kAnswerSeconds = 10;

// ---- second process -------------------------------------------------------------------------------------------------

/// CUDA state of the second process; peers are enabled in descending order.
class Second {
 public:
  explicit Second(const Driver& driver) : driver_(driver) {}
  Result<void> open();

  const Driver& driver() const { return driver_; }
  std::size_t count() const { return gpus_.size(); }
  const OpenGpu& gpu(int number) const { return gpus_[static_cast<std::size_t>(number)].gpu; }
  /// Error, `busy`, with the reason why one of these GPUs is unusable here.
  Result<void> usable(int from, int to) const;
  /// Error, `busy`, with the reason why `from` does not reach the memory of `to`.
  Result<void> reaches(int from, int to) const;

 private:
  struct Gpu {
    OpenGpu gpu;
    std::string problem;  ///< reason why it could not be opened; empty: it is open
  };
  std::string enable_peer(const OpenGpu& from, const OpenGpu& to) const;

  const Driver& driver_;
  Kernels kernels_;
  std::vector<Gpu> gpus_;
  std::map<std::pair<int, int>, std::string> refused_;
};

/// Memory of the first process, opened here; closed with the object.
struct IpcMemory {
  struct Opened {
    cuda::CUdeviceptr address;
    Cleanup close;
  };
  std::map<int, Result<Mapped>> shared;          ///< by owner
  std::map<std::pair<int, int>, Opened> opened;  ///< by from, to
};

// Tasks. An Error other than `io`: it could not be tried.

/// Writes into memory of the first process.
Result<Answer> write_memory(const Second& second, IpcMemory& memory, const Request& request);
/// Replays an all-reduce of two GPUs in a CUDA graph of each.
Result<Answer> reduce_in_graph(const Second& second, const Request& request);
/// Lets two GPUs at once add to a sum and draw tickets in the memory of `to`.
Result<Answer> contend(const Second& second, const Request& request);
/// Fills memory on `from` and verifies it on `to`.
Result<Answer> share_memory(const Second& second, const Request& request);

/// Operations of each thread of a contention, and number of threads on each GPU.
constexpr u64 kContendEach = 16;
constexpr unsigned kContendBlocks = 2;
constexpr unsigned kContendThreads = 32;

/// Error in the sum and the tickets of both GPUs; empty: exact. Pure.
std::string contention_problem(u64 sum, u64 next_ticket, std::vector<u64> tickets);

// ---- requesting process ---------------------------------------------------------------------------------------------

/// Second process with contexts of its own, which enables peers in descending order. It writes into memory of
/// the first through CUDA IPC, then reduces in CUDA graphs, contends with atomics and shares memory; each of
/// these may kill it.
class PeerProcess {
 public:
  /// Forks; must be called before this process has threads or has used CUDA.
  static Result<PeerProcess> start();
  ~PeerProcess() { end(); }  // while it is still dying, it would count as another user of the GPUs
  PeerProcess(PeerProcess&&) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;

  pid_t process() const { return process_; }
  /// Lets it open its contexts, while this process continues: the driver opens one at a time.
  void go() { tell(Task::open); }
  /// Tests "ipc-store", "ipc-copy" (legacy handles of the arena) and "ipc-vmm" (memory passed as a file descriptor), on
  /// every ordered pair: the other process writes from GPU `from` into this process's memory on GPU `to`, and `to`
  /// verifies here.
  Result<void> prove_ipc(Bench& bench);
  /// Test kGraphReduce on every pair: Measurement::all_reduces. If the other process ends, checks that the GPUs still
  /// work.
  Result<void> prove_all_reduce(Bench& bench);
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
  /// Makes a request that has no answer. If the process has ended, the next ask() finds out.
  void tell(Task task);
  /// Answer to a request. Errors: `busy`, it was not tried; others: the process has ended, `timeout` since it did not
  /// answer.
  Result<Answer> ask(const Request& request, int descriptor = -1);
  /// Answer to a request about this pair.
  Result<Answer> ask_about(Bench& bench, const Pair& pair, Request request);
  /// Answer to the request of a test that may end the other process. If it does, the pair gets a Wrong.
  Result<Answer> try_pair(Bench& bench, const Pair& pair, const char* test, const Request& request);
  /// One size of the all-reduce on one pair, `bytes` on each GPU, `replays` times. Returns true if all sums were right;
  /// else `bench.found` has the error, or the reason why it did not run.
  bool all_reduce(Bench& bench, Pair& there, u64 bytes, u64 replays);
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
