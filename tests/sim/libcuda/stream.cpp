// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/stream.hpp"

namespace p2pd::sim {

std::shared_ptr<Mark> Event::mark() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void Event::record(std::shared_ptr<Mark> mark) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(mark);
}

Stream::Stream(Simulation& simulation, Timeline& timeline, Context& context, u64 number)
    : simulation_(simulation), timeline_(timeline), context_(context), number_(number), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::submit(const Cost& cost, Work work, Grid grid) {
  if (capturing != nullptr) {
    capturing->nodes.push_back({cost, std::move(work), grid});
    return;
  }
  enqueue(cost, nullptr, nullptr,
          [this, grid, work = std::move(work), now = Clock::now()] { perform(work, grid, now); });
}

std::shared_ptr<Mark> Stream::mark() {
  auto mark = std::make_shared<Mark>();
  mark->context = &context_;
  enqueue({}, nullptr, mark, [mark] {
    mark->reached = true;
    mark->reached.notify_all();
  });
  return mark;
}

void Stream::wait_for(std::shared_ptr<Mark> mark) {
  enqueue({}, mark->step, nullptr, [mark] { mark->reached.wait(false); });
}

/// One lock over both, so that virtual time has the order in which the jobs run.
void Stream::enqueue(const Cost& cost, std::shared_ptr<Step> after, std::shared_ptr<Mark> mark,
                     std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    last_ = timeline_.add(number_, cost, std::move(after));
    if (mark != nullptr) mark->step = last_;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
  if (last_ != nullptr) timeline_.finish(last_);
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || quit_; });
    if (jobs_.empty()) return;
    auto& job = jobs_.front();  // a deque keeps its elements in place
    lock.unlock();
    job();
    lock.lock();
    jobs_.pop_front();
    if (jobs_.empty()) changed_.notify_all();
  }
}

void Stream::perform(const Work& work, Grid grid, Clock::time_point enqueued) {
  if (context_.error != bench::cuda::CUDA_SUCCESS || simulation_.stopping) return;
  try {
    Operation operation(simulation_, context_, grid, enqueued);
    work(operation);
  } catch (const Trap& trap) {
    auto none = bench::cuda::CUDA_SUCCESS;
    context_.error.compare_exchange_strong(none, trap.error);
  }
}

}  // namespace p2pd::sim
