// SPDX-License-Identifier: MIT
// Copies from all GPUs to all others at the same time.
#include <algorithm>
#include <memory>

#include "probes/bench/measure/timing.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

/// Copies from one GPU to its peers, each on a stream of its own, between two events of its first stream.
class Outgoing {
 public:
  Outgoing(Bench& bench, const OpenGpu& gpu) : bench_(bench), gpu_(gpu), events_(bench.driver) {}
  ~Outgoing() {
    for (const Lane& lane : lanes_) {
      (void)bench_.driver->cuStreamDestroy(lane.stream);
      (void)bench_.driver->cuEventDestroy(lane.done);
    }
  }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  Result<void> add(Pair& pair, CUdeviceptr to, CUdeviceptr from, u64 bytes) {
    TRY(gpu_.use());
    Lane lane{&pair, nullptr, nullptr, to, from, bytes};
    CU(bench_.driver, cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING));
    lanes_.push_back(lane);
    CU(bench_.driver, cuEventCreate(&lanes_.back().done, CU_EVENT_DISABLE_TIMING));
    return {};
  }
  /// Enqueues `times` copies to each peer, in turn.
  Result<void> enqueue(int times) {
    TRY(gpu_.use());
    times_ = times;
    start_ = TRY(events_.record(gpu_.stream()));
    for (const Lane& lane : lanes_) CU(bench_.driver, cuStreamWaitEvent(lane.stream, start_, 0));
    for (int i = 0; i < times; ++i)
      for (const Lane& lane : lanes_) CU(bench_.driver, cuMemcpyAsync(lane.to, lane.from, lane.bytes, lane.stream));
    for (const Lane& lane : lanes_) {
      CU(bench_.driver, cuEventRecord(lane.done, lane.stream));
      CU(bench_.driver, cuStreamWaitEvent(gpu_.stream(), lane.done, 0));
    }
    end_ = TRY(events_.record(gpu_.stream()));
    return {};
  }
  /// Records each peer's share; returns the GPU's total rate.
  Result<double> rate() {
    TRY(gpu_.use());
    const double ns = std::max(1e6 * TRY(events_.milliseconds(start_, end_)), 1.0);  // no copies take no time
    double sum = 0;
    for (const Lane& lane : lanes_) {
      const double gb_s = static_cast<double>(lane.bytes) * times_ / ns;
      lane.pair->busy_gb_s = figure({gb_s});
      sum += gb_s;
    }
    return sum;
  }

 private:
  struct Lane {
    Pair* pair;
    CUstream stream;
    CUevent done;
    CUdeviceptr to;
    CUdeviceptr from;
    u64 bytes;
  };
  Bench& bench_;
  const OpenGpu& gpu_;
  Events events_;
  std::vector<Lane> lanes_;
  CUevent start_ = nullptr;
  CUevent end_ = nullptr;
  int times_ = 0;
};

}  // namespace

Result<void> everything_at_once(Bench& bench) {
  constexpr double kWindowNs = 12e6;  // long compared with the microseconds between the starts of the GPUs
  if (bench.few_peers) {
    bench.found.not_run["all-to-all"] = "CUDA allows fewer peers at once than there are GPUs";
    return {};
  }
  const auto groups = groups_of(bench.found);
  const u64 peers = groups.front().size() - 1;
  std::vector<u64> place(static_cast<std::size_t>(bench.count()));  // of each GPU in its group
  for (const std::vector<int>& group : groups)
    for (std::size_t i = 0; i < group.size(); ++i) place[static_cast<std::size_t>(group[i])] = i;
  std::vector<std::unique_ptr<Outgoing>> all;
  for (const OpenGpu& gpu : bench.gpus) all.push_back(std::make_unique<Outgoing>(bench, gpu));
  double slowest = 1e9;
  u64 longest = 0;
  // GPU g sends to g+1 first, g-1 last: in each turn every GPU receives from one other
  for (int turn = 1; turn < bench.count(); ++turn)
    for (int from = 0; from < bench.count(); ++from) {
      if (!is_measured(bench.found, from, (from + turn) % bench.count())) continue;
      Pair& pair = bench.pair(from, (from + turn) % bench.count());
      if (!pair.copy_gb_s) continue;
      const u64 slice = most_bytes(bench, pair.from, pair.to) / peers & ~((1ULL << 20) - 1);
      const u64 bytes = std::min(slice, adaptive_bytes(pair.copy_gb_s->median, slice));
      const u64 from_place = place[static_cast<std::size_t>(pair.from)];
      const u64 offset = (pair.from > pair.to ? from_place - 1 : from_place) * slice;
      if (bytes == 0) continue;
      TRY(all[static_cast<std::size_t>(pair.from)]->add(pair, bench.gpu(pair.to).in() + offset,
                                                        bench.gpu(pair.from).out() + offset, bytes));
      slowest = std::min(slowest, pair.copy_gb_s->median);
      longest = std::max(longest, bytes);
    }
  if (longest == 0) return {};
  TRY(bench.finish());
  const auto times = static_cast<int>(kWindowNs * slowest / static_cast<double>(peers * longest)) + 1;
  for (OpenGpu& gpu : bench.gpus)  // no GPU starts before all are ready
    if (&gpu != &bench.gpu(0)) TRY(gpu.wait_for(gpu.stream(), bench.gpu(0), bench.gpu(0).stream()));
  for (const auto& outgoing : all) TRY(outgoing->enqueue(times));
  TRY(bench.finish());
  double sum = 0;
  for (const auto& outgoing : all) sum += TRY(outgoing->rate());
  bench.found.all_to_all_gb_s = figure({sum});
  return {};
}

}  // namespace p2pd::bench
