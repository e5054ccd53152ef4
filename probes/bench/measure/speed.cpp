// SPDX-License-Identifier: MIT
// Rates and latencies. Each is the median of timed repetitions in a row, after warm-ups, so that what is enqueued runs
// without a gap; pairs are timed at the same time only where their paths share nothing. What timed copies brought is
// verified, too.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>

#include "probes/bench/figure.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr int kRepetitions = 3;
constexpr double kFastGbS =
    100;                       // above it is NVLink: longer copies, so that the microsecond between two does not count
constexpr double kCopyMs = 4;  // of one copy over PCIe
constexpr u64 kChaseLoads = 128;    // by one multiprocessor: reading the clock twice costs a tenth of one load
constexpr unsigned kChaseEach = 4;  // every fourth multiprocessor
constexpr u64 kChaseStride = 128;   // bytes: a line

using Ordered = std::vector<std::pair<int, int>>;

/// Events of one GPU, made when first needed.
class Events {
 public:
  explicit Events(const Driver& driver) : driver_(driver) {}
  ~Events() {
    for (const CUevent event : all_) (void)driver_->cuEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Records a new event on `stream`, whose GPU must be in use().
  Result<CUevent> record(CUstream stream) {
    CUevent event = nullptr;
    CU(driver_, cuEventCreate(&event, CU_EVENT_DEFAULT));
    all_.push_back(event);
    CU(driver_, cuEventRecord(event, stream));
    return event;
  }
  Result<double> milliseconds(CUevent from, CUevent to) {
    float time = 0;
    CU(driver_, cuEventElapsedTime(&time, from, to));
    return static_cast<double>(time);
  }

 private:
  const Driver& driver_;
  std::vector<CUevent> all_;
};

/// Something repeated on one stream: `samples` times `inner` operations between two events each, after warm-ups.
struct Series {
  const OpenGpu* gpu = nullptr;
  CUstream stream = nullptr;
  int warm = 1;
  int samples = kRepetitions;
  int inner = 1;
  double amount = 0;                     ///< bytes of one operation, for rates
  std::function<Result<void>()> once{};  ///< enqueues one operation
  std::vector<CUevent> marks{};
};

class Stopwatch {
 public:
  explicit Stopwatch(const Bench& bench) : events_(bench.driver) {}

  Result<void> enqueue(Series& series) {
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
  /// Time of one operation in nanoseconds, by sample; after everything has finished.
  Result<std::vector<double>> times_ns(const Series& series) {
    std::vector<double> times;
    TRY(series.gpu->use());
    for (std::size_t i = 1; i < series.marks.size(); ++i)
      times.push_back(1e6 * TRY(events_.milliseconds(series.marks[i - 1], series.marks[i])) / series.inner);
    return times;
  }
  /// GB/s: bytes in a nanosecond.
  Result<Figure> rate(const Series& series) {
    std::vector<double> rates = TRY(times_ns(series));
    for (double& value : rates) value = series.amount / std::max(value, 1.0);
    return figure(std::move(rates));
  }

 private:
  Events events_;
};

/// A length that takes about kCopyMs at this rate; everything there is where NVLink makes that too short.
u64 adaptive_bytes(double gb_s, u64 most) {
  if (gb_s > kFastGbS) return most;
  const auto wanted = static_cast<u64>(gb_s * 1e6 * kCopyMs) & ~((1ULL << 20) - 1);
  return std::clamp(wanted, std::min(most, u64{1} << 20), most);
}

/// Data of its own for a timed transfer, checked afterwards by the GPU that received it.
class Timed {
 public:
  Timed(Bench& bench, std::string_view test) : bench_(bench), test_(test) {}

  Result<void> prepare(int from, int to, u64 bytes) {
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
  Result<void> verify() {
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

 private:
  Bench& bench_;
  std::string_view test_;
  std::vector<Transfer> all_;
};

u64 most_bytes(const Bench& bench, int from, int to) { return std::min(bench.gpu(from).half(), bench.gpu(to).half()); }

Series copies(const Bench& bench, int from, int to, u64 bytes) {
  const OpenGpu& a = bench.gpu(from);
  const OpenGpu& b = bench.gpu(to);
  Series series;
  series.gpu = &a;
  series.stream = a.stream();
  series.amount = static_cast<double>(bytes);
  series.once = [&driver = bench.driver, &a, &b, bytes]() -> Result<void> {
    TRY(a.use());
    CU(driver, cuMemcpyAsync(b.in(), a.out(), bytes, a.stream()));
    return {};
  };
  return series;
}

/// Copy engine, one way; first a short one tells how long the timed ones shall be.
Result<void> copy_one_way(Bench& bench, const Ordered& ordered, std::map<std::pair<int, int>, u64>& lengths) {
  constexpr u64 kFirst = 32ULL << 20;
  Stopwatch first(bench);
  std::vector<Series> all;
  for (const auto& [from, to] : ordered)
    all.push_back(copies(bench, from, to, std::min(kFirst, most_bytes(bench, from, to))));
  for (Series& series : all) TRY(first.enqueue(series));
  TRY(bench.finish());
  Timed timed(bench, "copy-timed");
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto [from, to] = ordered[i];
    const u64 bytes = adaptive_bytes(TRY(first.rate(all[i])).median, most_bytes(bench, from, to));
    lengths[ordered[i]] = bytes;
    TRY(timed.prepare(from, to, bytes));
    all[i] = copies(bench, from, to, bytes);
    all[i].warm = 2;
    all[i].inner = bench.asked.quick ? 1 : 4;
  }
  TRY(bench.finish());
  Stopwatch watch(bench);
  for (Series& series : all) TRY(watch.enqueue(series));
  TRY(bench.finish());
  for (std::size_t i = 0; i < ordered.size(); ++i)
    bench.pair(ordered[i].first, ordered[i].second).copy_gb_s = TRY(watch.rate(all[i]));
  return timed.verify();
}

/// Copy engine, both ways at once: the second direction waits for the start of the first.
Result<void> copy_both_ways(Bench& bench, const Ordered& ordered, const std::map<std::pair<int, int>, u64>& lengths) {
  Stopwatch watch(bench);
  Timed timed(bench, "copy-both-timed");
  std::vector<Series> all;
  for (const auto& [from, to] : ordered) {
    const u64 bytes = std::min(lengths.at({from, to}), lengths.at({to, from}));
    TRY(timed.prepare(from, to, bytes));
    all.push_back(copies(bench, from, to, bytes));
    all.back().warm = 2;
    all.back().inner = 4;
  }
  TRY(bench.finish());
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {  // ordered pairs of one pair stand together
    OpenGpu& other = bench.gpu(ordered[i + 1].first);
    TRY(other.wait_for(other.stream(), *all[i].gpu, all[i].stream));
  }
  for (Series& series : all) TRY(watch.enqueue(series));
  TRY(bench.finish());
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    const Figure one = TRY(watch.rate(all[i]));
    const Figure other = TRY(watch.rate(all[i + 1]));
    const Figure sum{one.median + other.median, one.low + other.low, one.high + other.high, one.repetitions};
    bench.pair(ordered[i].first, ordered[i].second).copy_both_gb_s = sum;
    bench.pair(ordered[i].second, ordered[i].first).copy_both_gb_s = sum;
  }
  return timed.verify();
}

/// SM stores by the sender, or SM loads by the receiver.
Result<void> by_kernels(Bench& bench, const Ordered& ordered, bool loads) {
  constexpr u64 kMost = 128ULL << 20;
  Stopwatch watch(bench);
  Timed timed(bench, loads ? "load-timed" : "store-timed");
  std::vector<Series> all;
  for (const auto& [from, to] : ordered) {
    const OpenGpu& a = bench.gpu(from);
    const OpenGpu& b = bench.gpu(to);
    const OpenGpu& runs = loads ? b : a;
    const double rate = bench.pair(from, to).copy_gb_s ? bench.pair(from, to).copy_gb_s->median : 0;
    const u64 bytes = std::min(kMost, adaptive_bytes(rate, most_bytes(bench, from, to)));
    TRY(timed.prepare(from, to, bytes));
    Series series;
    series.gpu = &runs;
    series.stream = runs.stream();
    series.amount = static_cast<double>(bytes);
    series.once = [&runs, to = b.in(), source = a.out(), bytes] {
      return runs.launch(Kernel::copy, {4U * static_cast<unsigned>(runs.multiprocessors()), 1, 512}, runs.stream(), to,
                         source, bytes / 16);
    };
    all.push_back(std::move(series));
  }
  TRY(bench.finish());
  for (Series& series : all) TRY(watch.enqueue(series));
  TRY(bench.finish());
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    Pair& pair = bench.pair(ordered[i].first, ordered[i].second);
    (loads ? pair.load_gb_s : pair.store_gb_s) = TRY(watch.rate(all[i]));
  }
  return timed.verify();
}

/// One dependent load after the other: `from` follows pointers through the memory of `to`, one multiprocessor at a
/// time, because how far each is from the link differs. Before that, once in vain: the lines are then in the owner's
/// cache.
Result<void> chase(Bench& bench, const Ordered& ordered) {
  const auto launch = [&](const OpenGpu& a, const OpenGpu& b, unsigned blocks, unsigned target, CUdeviceptr out) {
    return a.launch(Kernel::chase, {blocks, 1, 1}, a.stream(), b.ring(), kChaseLoads, u32{target}, out);
  };
  for (const auto& [from, to] : ordered) TRY(launch(bench.gpu(from), bench.gpu(to), 1, 0, bench.gpu(from).scratch()));
  std::map<int, unsigned> blocks;
  for (const auto& [from, to] : ordered) blocks[from] = static_cast<unsigned>(bench.gpu(from).multiprocessors());
  for (unsigned run = 0; run < kRepetitions; ++run)
    for (const auto& [from, to] : ordered)
      for (unsigned target = 0; target < blocks[from]; target += kChaseEach)
        TRY(launch(bench.gpu(from), bench.gpu(to), blocks[from], target,
                   bench.gpu(from).scratch() + run * blocks[from] * sizeof(u64)));
  TRY(bench.finish());
  for (const auto& [from, to] : ordered) {
    std::vector<u64> times(kRepetitions * blocks[from]);
    TRY(bench.gpu(from).use());
    CU(bench.driver, cuMemcpyDtoH(times.data(), bench.gpu(from).scratch(), times.size() * sizeof(u64)));
    std::vector<double> runs;
    for (std::size_t run = 0; run < kRepetitions; ++run) {
      double sum = 0;
      unsigned chased = 0;
      for (unsigned target = 0; target < blocks[from]; target += kChaseEach, ++chased)
        sum += static_cast<double>(times[run * blocks[from] + target]);
      runs.push_back(sum / static_cast<double>(chased * kChaseLoads));
    }
    bench.pair(from, to).chase_ns = figure(std::move(runs));
  }
  return {};
}

/// All copies of one GPU to its peers, each on a stream of its own, between two events of its first stream.
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
  /// `times` copies to each peer, in turn.
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
  /// Notes each peer's share; the GPU's whole rate.
  Result<double> rate() {
    TRY(gpu_.use());
    const double ns = 1e6 * TRY(events_.milliseconds(start_, end_));
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

/// Every ordered pair at once: what the shared hops leave of it.
Result<void> everything_at_once(Bench& bench) {
  constexpr double kWindowNs = 12e6;  // long against the microseconds by which the GPUs do not start together
  if (bench.few_peers) {
    bench.found.not_run["all-to-all"] = "CUDA allows fewer peers at once than there are GPUs";
    return {};
  }
  const auto peers = static_cast<u64>(bench.count() - 1);
  std::vector<std::unique_ptr<Outgoing>> all;
  for (const OpenGpu& gpu : bench.gpus) all.push_back(std::make_unique<Outgoing>(bench, gpu));
  double slowest = 1e9;
  u64 longest = 0;
  // GPU g sends to g+1 first, g-1 last: in each turn every GPU receives from one other
  for (int turn = 1; turn < bench.count(); ++turn)
    for (int from = 0; from < bench.count(); ++from) {
      Pair& pair = bench.pair(from, (from + turn) % bench.count());
      if (!pair.copy_gb_s) continue;
      const u64 slice = most_bytes(bench, pair.from, pair.to) / peers & ~((1ULL << 20) - 1);
      const u64 bytes = std::min(slice, adaptive_bytes(pair.copy_gb_s->median, slice));
      const u64 offset = static_cast<u64>(pair.from > pair.to ? pair.from - 1 : pair.from) * slice;
      if (bytes == 0) continue;
      TRY(all[static_cast<std::size_t>(pair.from)]->add(pair, bench.gpu(pair.to).in() + offset,
                                                        bench.gpu(pair.from).out() + offset, bytes));
      slowest = std::min(slowest, pair.copy_gb_s->median);
      longest = std::max(longest, bytes);
    }
  if (longest == 0) return {};
  TRY(bench.finish());
  const auto times = static_cast<int>(kWindowNs * slowest / static_cast<double>(peers * longest)) + 1;
  for (OpenGpu& gpu : bench.gpus)  // nobody starts before everybody can
    if (&gpu != &bench.gpu(0)) TRY(gpu.wait_for(gpu.stream(), bench.gpu(0), bench.gpu(0).stream()));
  for (const auto& outgoing : all) TRY(outgoing->enqueue(times));
  TRY(bench.finish());
  double sum = 0;
  for (const auto& outgoing : all) sum += TRY(outgoing->rate());
  bench.found.all_to_all_gb_s = figure({sum});
  return {};
}

}  // namespace

Result<void> staged(Bench& bench) {
  constexpr u64 kBytes = 32ULL << 20;
  constexpr int kTiny = 20;
  for (const Round& round : tournament(bench.count())) {
    for (const auto& [one, other] : round) {  // one pair at a time: they would share the host's memory
      for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        const OpenGpu& a = bench.gpu(from);
        const OpenGpu& b = bench.gpu(to);
        Stopwatch watch(bench);
        const auto series = [&](u64 bytes, int inner) {
          Series s;
          s.gpu = &a;
          s.stream = a.stream();
          s.inner = inner;
          s.amount = static_cast<double>(bytes);
          s.once = [&bench, &a, &b, bytes]() -> Result<void> {
            TRY(a.use());
            CU(bench.driver, cuMemcpyPeerAsync(b.in(), b.context(), a.out(), a.context(), bytes, a.stream()));
            return {};
          };
          return s;
        };
        Series large = series(std::min(kBytes, most_bytes(bench, from, to)), 1);
        Series tiny = series(4, kTiny);
        TRY(watch.enqueue(large));
        TRY(watch.enqueue(tiny));
        TRY(a.finish());
        bench.pair(from, to).staged_gb_s = TRY(watch.rate(large));
        bench.pair(from, to).staged_ns = figure(TRY(watch.times_ns(tiny)));
      }
    }
  }
  return {};
}

Result<void> measure_speed(Bench& bench) {
  std::map<std::pair<int, int>, u64> lengths;
  for (const OpenGpu& gpu : bench.gpus)
    TRY(gpu.launch(Kernel::chain, gpu.wide(), gpu.stream(), gpu.ring(), kChaseStride, OpenGpu::kRing / kChaseStride));
  for (const Round& round : apart(bench)) {
    TRY(bench.connect(round));
    for (OpenGpu& gpu : bench.gpus) TRY(gpu.forget());
    const Ordered both = bench.both_ways(round);
    for (const bool up : {true, false}) {
      Ordered one;
      std::copy_if(both.begin(), both.end(), std::back_inserter(one),
                   [&](const auto& p) { return (p.first < p.second) == up; });
      TRY_IN("copy", copy_one_way(bench, one, lengths));
      if (bench.asked.quick) continue;
      TRY_IN("stores", by_kernels(bench, one, false));
      TRY_IN("loads", by_kernels(bench, one, true));
      TRY_IN("chase", chase(bench, one));
    }
    if (!bench.asked.quick) TRY_IN("copy both ways", copy_both_ways(bench, both, lengths));
  }
  if (!bench.asked.quick) TRY_IN("everything at once", everything_at_once(bench));
  return {};
}

}  // namespace p2pd::bench
