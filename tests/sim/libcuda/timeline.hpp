// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "tests/sim/libcuda/machine.hpp"

namespace p2pd::sim {

/// Cost of one operation: first a delay, then bytes over a link.
struct Cost {
  double delay_ns = 0;
  double bytes = 0;
  double gb_s = 0;
  double both_gb_s = 0;  ///< of this direction and the opposite one together; 0: they do not disturb each other
  int from = 0;          ///< equal to `to`: local work, which shares nothing
  int to = 0;
};

/// One operation in virtual time. All but `cost` and `after` belong to the timeline.
struct Step {
  Cost cost;
  std::shared_ptr<Step> after;  ///< of another stream; may be null
  bool done = false;
  double end_ns = 0;
};

/// Virtual time of all streams.
///
/// Steps are only noted when they are enqueued; their times are computed when a caller waits for one of them. By
/// then the host has enqueued whatever runs beside it, so results depend on the order of calls alone and never on the
/// speed of this machine. A step begins when the one before it in its stream and the one it waits for have ended, and
/// never before the last step that the host has waited for. All that leaves a GPU shares its rate, and so does all
/// that enters it; opposite directions of a pair get half of both_gb_s each while both are busy.
class Timeline {
 public:
  std::shared_ptr<Step> add(u64 stream, const Cost& cost, std::shared_ptr<Step> after = nullptr);
  /// Lets time pass until `step` has ended; returns that moment in nanoseconds.
  double finish(const std::shared_ptr<Step>& step);

 private:
  std::vector<Step*> running() const;
  bool end_waits();
  void advance();

  std::mutex mutex_;
  double now_ns_ = 0;
  std::map<u64, std::deque<std::shared_ptr<Step>>> streams_;
};

}  // namespace p2pd::sim
