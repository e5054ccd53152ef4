// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/sim/libcuda/traffic.hpp"

namespace p2pd::sim {

using Work = std::function<void(Operation&)>;

/// A moment in a stream that others wait for.
struct Mark {
  std::atomic<bool> reached = false;
  Context* context = nullptr;  ///< context whose error a waiter gets
  std::shared_ptr<Step> step;
};

struct Event {
  explicit Event(bool with_timing) : timing(with_timing) {}
  const bool timing;
  std::shared_ptr<Mark> mark() const;
  void record(std::shared_ptr<Mark> mark);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Mark> last_;
};

/// Captured operations, in order.
struct Graph {
  struct Node {
    Cost cost;
    Work work;
    Grid grid;
  };
  std::vector<Node> nodes;
};

/// Operations that run one after the other, on a thread of their own.
class Stream {
 public:
  Stream(Simulation& simulation, Timeline& timeline, Context& context, u64 number);
  ~Stream();  ///< enqueued work still runs
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Enqueues `work`; it is skipped once the context has failed.
  void submit(const Cost& cost, Work work, Grid grid = {});
  std::shared_ptr<Mark> mark();
  void wait_for(std::shared_ptr<Mark> mark);
  /// Waits until all enqueued work is done; advances virtual time to that point.
  void drain();

  Context& context() const { return context_; }

  std::shared_ptr<Graph> capturing;  ///< null: not capturing; submitted work is only recorded there

 private:
  void enqueue(const Cost& cost, std::shared_ptr<Step> after, std::shared_ptr<Mark> mark, std::function<void()> job);
  void run();
  void perform(const Work& work, Grid grid, Clock::time_point enqueued);

  Simulation& simulation_;
  Timeline& timeline_;
  Context& context_;
  const u64 number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  ///< the first is the one that runs
  std::shared_ptr<Step> last_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace p2pd::sim
