// SPDX-License-Identifier: MIT
#include "probes/bench/measure/timing.hpp"

#include <algorithm>

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr double kFastGbS =
    100;                       // above it is NVLink: longer copies, so that the microsecond between two does not count
constexpr double kCopyMs = 4;  // length of one copy over PCIe

}  // namespace

Events::~Events() {
  for (const CUevent event : all_) (void)driver_->cuEventDestroy(event);
}

Result<CUevent> Events::record(CUstream stream) {
  CUevent event = nullptr;
  CU(driver_, cuEventCreate(&event, CU_EVENT_DEFAULT));
  all_.push_back(event);
  CU(driver_, cuEventRecord(event, stream));
  return event;
}

Result<double> Events::milliseconds(CUevent from, CUevent to) {
  float time = 0;
  CU(driver_, cuEventElapsedTime(&time, from, to));
  return static_cast<double>(time);
}

Result<void> Stopwatch::enqueue(Series& series) {
  for (int i = 0; i < series.warm; ++i) TRY(series.once());
  TRY(series.gpu->use());
  series.marks.push_back(TRY(events_.record(series.stream)));
  for (int sample = 0; sample < series.samples; ++sample) {
    for (int i = 0; i < series.inner; ++i) TRY(series.once());
    TRY(series.gpu->use());
    series.marks.push_back(TRY(events_.record(series.stream)));
  }
  return {};
}

Result<std::vector<double>> Stopwatch::times_ns(const Series& series) {
  std::vector<double> times;
  TRY(series.gpu->use());
  for (std::size_t i = 1; i < series.marks.size(); ++i)
    times.push_back(1e6 * TRY(events_.milliseconds(series.marks[i - 1], series.marks[i])) / series.inner);
  return times;
}

Result<Figure> Stopwatch::rate(const Series& series) {
  std::vector<double> rates = TRY(times_ns(series));
  for (double& value : rates) value = series.amount / std::max(value, 1.0);
  return figure(std::move(rates));
}

Result<void> Timed::prepare(int from, int to, u64 bytes) {
  OpenGpu& a = bench_.gpu(from);
  OpenGpu& b = bench_.gpu(to);
  Slots slots{1, 0, {}};
  slots.slot[0] = {0, bytes};
  const Transfer t = bench_.keys.next(test_, from, to, slots);
  TRY(a.launch(Kernel::fill, a.wide(), a.stream(), a.out(), bytes / 8, t.key));
  TRY(b.use());
  CU(bench_.driver, cuMemsetD32Async(b.in(), static_cast<u32>(t.poison), bytes / 4, b.stream()));
  all_.push_back(t);
  return {};
}

Result<void> Timed::verify() {
  std::vector<u32> places;
  for (const Transfer& t : all_) {
    OpenGpu& b = bench_.gpu(t.to);
    places.push_back(TRY(b.new_seen()));
    TRY(b.launch(Kernel::verify, b.wide(), b.stream(), b.in(), t.slots, t.key, t.poison, u32{kPlain},
                 b.seen_at(places.back())));
  }
  TRY(bench_.finish());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Seen seen = TRY(bench_.gpu(all_[i].to).seen())[places[i]];
    if (seen.wrong > 0)
      bench_.found.wrong.push_back(explain(all_[i], seen, bench_.keys.known()));
    else
      bench_.pair(all_[i].from, all_[i].to).verified_bytes[std::string(test_)] += seen.right;
  }
  all_.clear();
  return {};
}

u64 adaptive_bytes(double gb_s, u64 most) {
  if (gb_s > kFastGbS) return most;
  const auto wanted = static_cast<u64>(gb_s * 1e6 * kCopyMs) & ~((1ULL << 20) - 1);
  return std::clamp(wanted, std::min(most, u64{1} << 20), most);
}

u64 most_bytes(const Bench& bench, int from, int to) { return std::min(bench.gpu(from).half(), bench.gpu(to).half()); }

}  // namespace p2pd::bench
