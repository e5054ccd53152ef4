// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/timeline.hpp"

#include <algorithm>

namespace p2pd::sim {

namespace {

constexpr double kNothing = 1e-6;  // of a nanosecond or a byte: remainder of rounding

bool crosses(const Step* step) { return step->cost.delay_ns <= kNothing && step->cost.from != step->cost.to; }

/// Bytes a nanosecond that `step` gets beside the others.
double rate(const Step* step, const std::vector<Step*>& all) {
  const Cost& cost = step->cost;
  if (!crosses(step)) return cost.gb_s;
  double leaving = 0;
  double entering = 0;
  bool opposed = false;
  for (const Step* other : all) {
    if (!crosses(other)) continue;
    leaving += other->cost.from == cost.from && cost.from >= 0 ? 1 : 0;  // the host has a link to each GPU
    entering += other->cost.to == cost.to && cost.to >= 0 ? 1 : 0;
    opposed |= other->cost.from == cost.to && other->cost.to == cost.from && other->cost.both_gb_s > 0;
  }
  const double alone = opposed && cost.both_gb_s > 0 ? std::min(cost.gb_s, cost.both_gb_s / 2) : cost.gb_s;
  return alone / std::max(leaving, entering);
}

}  // namespace

std::shared_ptr<Step> Timeline::add(u64 stream, const Cost& cost, std::shared_ptr<Step> after) {
  auto step = std::make_shared<Step>();
  step->cost = cost;
  step->after = std::move(after);
  const std::lock_guard lock(mutex_);
  streams_[stream].push_back(step);
  return step;
}

double Timeline::finish(const std::shared_ptr<Step>& step) {
  const std::lock_guard lock(mutex_);
  while (!step->done)
    if (!end_waits()) advance();
  return step->end_ns;
}

/// The first step of every stream whose turn has come.
std::vector<Step*> Timeline::running() const {
  std::vector<Step*> found;
  for (const auto& [stream, steps] : streams_)
    if (steps.front()->after == nullptr || steps.front()->after->done) found.push_back(steps.front().get());
  return found;
}

/// Ends all steps that take no more time; false if there were none.
bool Timeline::end_waits() {
  bool ended = false;
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    auto& steps = stream->second;
    while (!steps.empty() && (steps.front()->after == nullptr || steps.front()->after->done) &&
           steps.front()->cost.delay_ns <= kNothing && steps.front()->cost.bytes <= kNothing) {
      steps.front()->done = true;
      steps.front()->end_ns = now_ns_;
      steps.front()->after = nullptr;
      steps.pop_front();
      ended = true;
    }
    stream = steps.empty() ? streams_.erase(stream) : std::next(stream);
  }
  return ended;
}

/// Advances to the next moment at which a delay or the bytes of some step have ended. There is one: a step waits only
/// for steps that were enqueued before it.
void Timeline::advance() {
  const std::vector<Step*> all = running();
  std::vector<double> rates;
  double wait_ns = 1e300;
  for (const Step* step : all) {
    rates.push_back(rate(step, all));
    const bool delayed = step->cost.delay_ns > kNothing;
    wait_ns = std::min(wait_ns, delayed ? step->cost.delay_ns : step->cost.bytes / rates.back());
  }
  now_ns_ += wait_ns;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->cost.delay_ns > kNothing)
      all[i]->cost.delay_ns -= wait_ns;
    else
      all[i]->cost.bytes -= wait_ns * rates[i];
  }
}

}  // namespace p2pd::sim
