// SPDX-License-Identifier: MIT
// Rates and latencies. Each is the median of consecutive timed repetitions, after warm-ups, so that enqueued operations
// run without a gap; pairs are timed at the same time only if their paths share nothing, and at last all pairs at once.
// The data of timed copies is verified, too.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

/// Ordered pairs up to which a quick run times each; with more it times each GPU's link once, both ways.
constexpr std::size_t kMostTimedAtBoot = 12;
constexpr int kInner = 2;           // copies between two events: the gap between them counts half
constexpr u64 kChaseLoads = 128;    // by one multiprocessor: reading the clock twice costs a tenth of one load
constexpr unsigned kChaseEach = 4;  // every fourth multiprocessor
constexpr u64 kChaseStride = 128;   // bytes: a line
constexpr double kFastGbS =
    100;                       // above it is NVLink: longer copies, so that the microsecond between two does not count
constexpr double kCopyMs = 4;  // length of one copy over PCIe

/// Length that takes a few milliseconds at this rate; `most` if that is too short over NVLink.
u64 adaptive_bytes(double gb_s, u64 most) {
  if (gb_s > kFastGbS) return most;
  const auto wanted = static_cast<u64>(gb_s * 1e6 * kCopyMs) & ~((1ULL << 20) - 1);
  return std::clamp(wanted, std::min(most, u64{1} << 20), most);
}

/// Largest size of one transfer between the two.
u64 most_bytes(const Bench& bench, int from, int to) { return std::min(bench.gpu(from).half(), bench.gpu(to).half()); }

/// Events of the driver; destroyed with the object.
class Events {
 public:
  explicit Events(const Driver& driver) : driver_(driver) {}
  ~Events() {
    for (const CUevent event : all_) (void)driver_->cuEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// New event of the GPU in use().
  Result<CUevent> make(unsigned flags) {
    CUevent event = nullptr;
    CU(driver_, cuEventCreate(&event, flags));
    all_.push_back(event);
    return event;
  }
  /// Records a new event on `stream`, whose GPU must be in use().
  Result<CUevent> record(CUstream stream) {
    const CUevent event = TRY(make(CU_EVENT_DEFAULT));
    CU(driver_, cuEventRecord(event, stream));
    return event;
  }
  Result<double> milliseconds(CUevent from, CUevent to) const {
    float time = 0;
    CU(driver_, cuEventElapsedTime(&time, from, to));
    return static_cast<double>(time);
  }

 private:
  const Driver& driver_;
  std::vector<CUevent> all_;
};

/// Repeated operation on the first stream of a GPU: Asked::iterations times `inner` operations between two events
/// each, after one to warm up.
struct Series {
  const OpenGpu* gpu = nullptr;
  u64 bytes = 0;                         ///< of one operation, for rates
  std::function<Result<void>()> once{};  ///< enqueues one operation
  int inner = 1;
};

/// Enqueues all series, and waits: times of one operation in nanoseconds, by series and repetition.
Result<std::vector<std::vector<double>>> times_ns(const Bench& bench, const std::vector<Series>& all) {
  Events events(bench.driver);
  std::vector<std::vector<CUevent>> marks;
  for (const Series& series : all) {
    std::vector<CUevent>& own = marks.emplace_back();
    TRY(series.once());
    TRY(series.gpu->use());
    own.push_back(TRY(events.record(series.gpu->stream())));
    for (int sample = 0; sample < bench.asked.iterations; ++sample) {
      for (int i = 0; i < series.inner; ++i) TRY(series.once());
      TRY(series.gpu->use());
      own.push_back(TRY(events.record(series.gpu->stream())));
    }
  }
  TRY(bench.finish());
  std::vector<std::vector<double>> times(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    TRY(all[i].gpu->use());
    for (std::size_t mark = 1; mark < marks[i].size(); ++mark)
      times[i].push_back(1e6 * TRY(events.milliseconds(marks[i][mark - 1], marks[i][mark])) / all[i].inner);
  }
  return times;
}

/// Rate in GB/s, bytes per nanosecond, from the times of one operation.
Figure rate(u64 bytes, std::vector<double> times_ns) {
  for (double& value : times_ns) value = static_cast<double>(bytes) / std::max(value, 1.0);
  return figure(std::move(times_ns));
}

/// Enqueues all series, and waits: the rate of each.
Result<std::vector<Figure>> rates(const Bench& bench, const std::vector<Series>& all) {
  std::vector<Figure> figures;
  for (std::vector<double>& times : TRY(times_ns(bench, all)))
    figures.push_back(rate(all[figures.size()].bytes, std::move(times)));
  return figures;
}

/// Timed transfers, whose data is checked afterwards by the GPU that received it.
class Timed {
 public:
  Timed(Bench& bench, std::string_view test) : bench_(bench), test_(test) {}

  /// Rates of a series for each ordered pair. `start` enqueues something right before them.
  Result<std::vector<Figure>> rates(const Ordered& ordered, const std::vector<Series>& all,
                                    const std::function<Result<void>()>& start = {}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [from, to] = ordered[i];
      const Transfer& sent = all_.emplace_back(bench_.keys.next(test_, from, to, whole(all[i].bytes)));
      TRY(bench_.gpu(from).fill(bench_.gpu(from).out(), all[i].bytes, sent.key));
      TRY(bench_.gpu(to).set(bench_.gpu(to).in(), all[i].bytes, sent.poison));
    }
    TRY(bench_.finish());
    if (start) TRY(start());
    return bench::rates(bench_, all);
  }

  Result<void> verify() {
    std::vector<u32> places;
    for (const Transfer& sent : all_) {
      OpenGpu& owner = bench_.gpu(sent.to);
      places.push_back(TRY(owner.verify(owner.in(), sent.slots, sent.key, sent.poison, kPlain)));
    }
    const AllSeen seen = TRY(bench_.seen());
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Seen& here = seen[static_cast<std::size_t>(all_[i].to)][places[i]];
      if (here.wrong > 0)
        bench_.found.wrong.push_back(explain(all_[i], here, bench_.keys.known()));
      else
        bench_.pair(all_[i].from, all_[i].to).verified_bytes[std::string(test_)] += here.right;
    }
    return {};
  }

 private:
  Bench& bench_;
  std::string_view test_;
  std::vector<Transfer> all_;
};

/// Rates in GB/s of short copies, from which the lengths of the timed transfers follow; by ordered pair.
using ShortRates = std::map<std::pair<int, int>, double>;

u64 length_of(const Bench& bench, const ShortRates& rates, int from, int to) {
  return adaptive_bytes(rates.at({from, to}), most_bytes(bench, from, to));
}

Series copies(const Bench& bench, int from, int to, u64 bytes, int inner) {
  const OpenGpu& a = bench.gpu(from);
  const OpenGpu& b = bench.gpu(to);
  const auto once = [&driver = bench.driver, &a, &b, bytes]() -> Result<void> {
    TRY(a.use());
    CU(driver, cuMemcpyAsync(b.in(), a.out(), bytes, a.stream()));
    return {};
  };
  return {&a, bytes, once, inner};
}

/// Times the copy engine, one way, after short copies.
Result<void> copy_one_way(Bench& bench, const Ordered& ordered, ShortRates& short_rates) {
  constexpr u64 kFirst = 32ULL << 20;
  std::vector<Series> all;
  for (const auto& [from, to] : ordered)
    all.push_back(copies(bench, from, to, std::min(kFirst, most_bytes(bench, from, to)), 1));
  const std::vector<Figure> first = TRY(rates(bench, all));
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto [from, to] = ordered[i];
    short_rates[ordered[i]] = first[i].median;
    all[i] = copies(bench, from, to, length_of(bench, short_rates, from, to), bench.asked.quick ? 1 : kInner);
  }
  if (!bench.asked.wants("copy-timed")) return {};
  Timed timed(bench, "copy-timed");
  const std::vector<Figure> figures = TRY(timed.rates(ordered, all));
  for (std::size_t i = 0; i < ordered.size(); ++i)
    bench.pair(ordered[i].first, ordered[i].second).copy_gb_s = figures[i];
  return timed.verify();
}

/// Times the copy engine, both ways at once: the second direction waits for the start of the first.
Result<void> copy_both_ways(Bench& bench, const Ordered& ordered, const ShortRates& rates) {
  std::vector<Series> all;
  for (const auto& [from, to] : ordered)
    all.push_back(copies(bench, from, to,
                         std::min(length_of(bench, rates, from, to), length_of(bench, rates, to, from)), kInner));
  const auto start = [&]() -> Result<void> {
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {  // the ordered pairs of one pair are adjacent
      OpenGpu& other = bench.gpu(ordered[i + 1].first);
      TRY(other.wait_for(other.stream(), *all[i].gpu, all[i].gpu->stream()));
    }
    return {};
  };
  Timed timed(bench, "copy-both-timed");
  const std::vector<Figure> figures = TRY(timed.rates(ordered, all, start));
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    const Figure& one = figures[i];
    const Figure& other = figures[i + 1];
    const Figure sum{one.median + other.median, one.low + other.low, one.high + other.high, one.repetitions};
    Pair& there = bench.pair(ordered[i].first, ordered[i].second);
    Pair& back = bench.pair(there.to, there.from);
    there.copy_both_gb_s = back.copy_both_gb_s = sum;
    if (bench.count() > 2) continue;  // with two GPUs these are all pairs at once
    there.busy_gb_s = one;
    back.busy_gb_s = other;
    bench.found.all_to_all_gb_s = sum;
  }
  return timed.verify();
}

/// Times SM stores by the sender, or SM loads by the receiver.
Result<void> by_kernels(Bench& bench, const Ordered& ordered, const ShortRates& rates, bool loads) {
  constexpr u64 kMost = 128ULL << 20;
  std::vector<Series> all;
  for (const auto& [from, to] : ordered) {
    const OpenGpu& a = bench.gpu(from);
    const OpenGpu& b = bench.gpu(to);
    const OpenGpu& runs = loads ? b : a;
    const u64 bytes = std::min(kMost, length_of(bench, rates, from, to));
    const auto once = [&runs, to = b.in(), source = a.out(), bytes] {
      return runs.launch(Kernel::copy, {4U * static_cast<unsigned>(runs.multiprocessors()), 1, 512}, runs.stream(), to,
                         source, bytes / 16);
    };
    all.push_back({&runs, bytes, once});
  }
  Timed timed(bench, loads ? "load-timed" : "store-timed");
  const std::vector<Figure> figures = TRY(timed.rates(ordered, all));
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    Pair& pair = bench.pair(ordered[i].first, ordered[i].second);
    (loads ? pair.load_gb_s : pair.store_gb_s) = figures[i];
  }
  return timed.verify();
}

/// Pairs with only correct bytes so far, both ways. A wrong word may be a pointer of the ring, for example from a dead
/// link, and a kernel that follows it faults: that would end the whole run, and lose its results.
Ordered with_right_bytes(Bench& bench, const Ordered& ordered) {
  Ordered right;
  for (const auto& [from, to] : ordered) {
    const bool wrong = std::ranges::any_of(bench.found.wrong, [&, a = from, b = to](const Wrong& w) {
      return (w.from == a && w.to == b) || (w.from == b && w.to == a);
    });
    if (wrong)
      bench.pair(from, to).not_run["chase"] = "it follows pointers, and bytes between these GPUs were wrong";
    else
      right.emplace_back(from, to);
  }
  return right;
}

/// Times dependent loads: `from` follows pointers through the memory of `to`, on one multiprocessor at a
/// time, because their distances from the link differ. An untimed pass before that brings the lines into the owner's
/// cache.
Result<void> chase(Bench& bench, const Ordered& ordered) {
  const auto launch = [&](const OpenGpu& a, const OpenGpu& b, unsigned blocks, unsigned target, CUdeviceptr out) {
    return a.launch(Kernel::chase, {blocks, 1, 1}, a.stream(), b.ring(), kChaseLoads, u32{target}, out);
  };
  for (const auto& [from, to] : ordered) TRY(launch(bench.gpu(from), bench.gpu(to), 1, 0, bench.gpu(from).scratch()));
  std::map<int, unsigned> blocks;
  for (const auto& [from, to] : ordered) blocks[from] = static_cast<unsigned>(bench.gpu(from).multiprocessors());
  const auto iterations = static_cast<std::size_t>(bench.asked.iterations);
  for (std::size_t run = 0; run < iterations; ++run)
    for (const auto& [from, to] : ordered)
      for (unsigned target = 0; target < blocks[from]; target += kChaseEach)
        TRY(launch(bench.gpu(from), bench.gpu(to), blocks[from], target,
                   bench.gpu(from).scratch() + run * blocks[from] * sizeof(u64)));
  TRY(bench.finish());
  for (const auto& [from, to] : ordered) {
    std::vector<u64> times(iterations * blocks[from]);
    TRY(bench.gpu(from).use());
    CU(bench.driver, cuMemcpyDtoH(times.data(), bench.gpu(from).scratch(), times.size() * sizeof(u64)));
    std::vector<double> runs;
    for (std::size_t run = 0; run < iterations; ++run) {
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

// ---- everything at once --------------------------------------------------------------------------------------------

/// Copies from one GPU to its peers, each on a stream of its own, between two events of its first stream.
class Outgoing {
 public:
  Outgoing(const Driver& driver, const OpenGpu& gpu, Events& events) : driver_(driver), gpu_(gpu), events_(events) {}

  Result<void> add(Pair& pair, CUdeviceptr to, CUdeviceptr from, u64 bytes) {
    TRY(gpu_.use());
    CUstream stream = nullptr;
    CU(driver_, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Cleanup destroy([&driver = driver_, stream] { driver->cuStreamDestroy(stream); });
    const CUevent done = TRY(events_.make(CU_EVENT_DISABLE_TIMING));
    lanes_.push_back({&pair, stream, done, to, from, bytes, std::move(destroy)});
    return {};
  }
  /// Enqueues `times` copies to each peer, in turn.
  Result<void> enqueue(int times) {
    TRY(gpu_.use());
    times_ = times;
    start_ = TRY(events_.record(gpu_.stream()));
    for (const Lane& lane : lanes_) CU(driver_, cuStreamWaitEvent(lane.stream, start_, 0));
    for (int i = 0; i < times; ++i)
      for (const Lane& lane : lanes_) CU(driver_, cuMemcpyAsync(lane.to, lane.from, lane.bytes, lane.stream));
    for (const Lane& lane : lanes_) {
      CU(driver_, cuEventRecord(lane.done, lane.stream));
      CU(driver_, cuStreamWaitEvent(gpu_.stream(), lane.done, 0));
    }
    end_ = TRY(events_.record(gpu_.stream()));
    return {};
  }
  /// Records each peer's share; returns the GPU's total rate.
  Result<double> rate() const {
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
    Cleanup destroy;
  };
  const Driver& driver_;
  const OpenGpu& gpu_;
  Events& events_;
  std::vector<Lane> lanes_;
  CUevent start_ = nullptr;
  CUevent end_ = nullptr;
  int times_ = 0;
};

/// Measures every ordered pair at once: the effect of shared hops.
Result<void> everything_at_once(Bench& bench, const ShortRates& rates) {
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
  Events events(bench.driver);
  std::vector<Outgoing> all;
  for (const OpenGpu& gpu : bench.gpus) all.emplace_back(bench.driver, gpu, events);
  double slowest = 1e9;
  u64 longest = 0;
  // GPU g sends to g+1 first, g-1 last: in each turn every GPU receives from one other
  for (int turn = 1; turn < bench.count(); ++turn)
    for (int from = 0; from < bench.count(); ++from) {
      if (!is_measured(bench.found, from, (from + turn) % bench.count())) continue;
      Pair& pair = bench.pair(from, (from + turn) % bench.count());
      const auto rate = rates.find({pair.from, pair.to});
      if (rate == rates.end()) continue;
      const u64 slice = most_bytes(bench, pair.from, pair.to) / peers & ~((1ULL << 20) - 1);
      const u64 bytes = std::min(slice, adaptive_bytes(rate->second, slice));
      const u64 from_place = place[static_cast<std::size_t>(pair.from)];
      const u64 offset = (pair.from > pair.to ? from_place - 1 : from_place) * slice;
      if (bytes == 0) continue;
      TRY(all[static_cast<std::size_t>(pair.from)].add(pair, bench.gpu(pair.to).in() + offset,
                                                       bench.gpu(pair.from).out() + offset, bytes));
      slowest = std::min(slowest, rate->second);
      longest = std::max(longest, bytes);
    }
  if (longest == 0) return {};
  TRY(bench.finish());
  const auto times = static_cast<int>(kWindowNs * slowest / static_cast<double>(peers * longest)) + 1;
  for (OpenGpu& gpu : bench.gpus)  // no GPU starts before all are ready
    if (&gpu != &bench.gpu(0)) TRY(gpu.wait_for(gpu.stream(), bench.gpu(0), bench.gpu(0).stream()));
  for (Outgoing& outgoing : all) TRY(outgoing.enqueue(times));
  TRY(bench.finish());
  double sum = 0;
  for (const Outgoing& outgoing : all) sum += TRY(outgoing.rate());
  bench.found.all_to_all_gb_s = figure({sum});
  return {};
}

}  // namespace

Result<void> staged(Bench& bench) {
  constexpr u64 kStagedBytes = 32ULL << 20;
  constexpr u64 kTinyBytes = 4;
  constexpr int kTiny = 20;
  for (const Round& round : rounds_of(bench.found)) {
    for (const auto& [one, other] : round) {  // one pair at a time: others would share the host's memory
      for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        const OpenGpu& a = bench.gpu(from);
        const OpenGpu& b = bench.gpu(to);
        const auto series = [&](u64 bytes, int inner) -> Series {
          const auto once = [&bench, &a, &b, bytes]() -> Result<void> {
            TRY(a.use());
            CU(bench.driver, cuMemcpyPeerAsync(b.in(), b.context(), a.out(), a.context(), bytes, a.stream()));
            return {};
          };
          return {&a, bytes, once, inner};
        };
        const u64 large = std::min(kStagedBytes, most_bytes(bench, from, to));
        const auto times = TRY(times_ns(bench, {series(large, 1), series(kTinyBytes, kTiny)}));
        bench.pair(from, to).staged_gb_s = rate(large, times[0]);
        bench.pair(from, to).staged_ns = figure(times[1]);
      }
    }
  }
  return {};
}

Result<void> measure_speed(Bench& bench) {
  constexpr std::string_view kRates[] = {"copy-timed", "copy-both-timed", "store-timed", "load-timed", "all-to-all"};
  const Asked& asked = bench.asked;
  const bool two = bench.count() == 2;  // both ways at once are then all pairs at once
  const bool copies = std::ranges::any_of(kRates, [&](std::string_view test) { return asked.wants(test); });
  ShortRates rates;
  for (const OpenGpu& gpu : bench.gpus)
    TRY(gpu.launch(Kernel::chain, gpu.wide(), gpu.stream(), gpu.ring(), kChaseStride, OpenGpu::kRing / kChaseStride));
  const bool all = !asked.quick || bench.found.pairs.size() <= kMostTimedAtBoot;
  for (const Round& round : apart(bench, all ? rounds_of(bench.found) : each_link(bench.found))) {
    TRY(bench.connect(round));
    TRY(bench.forget());
    const Ordered both = bench.both_ways(round);
    for (const bool up : {true, false}) {
      Ordered one;
      std::copy_if(both.begin(), both.end(), std::back_inserter(one),
                   [&](const auto& p) { return (p.first < p.second) == up; });
      const auto copy = [&](const Ordered& some) { return copy_one_way(bench, some, rates); };
      if (copies) TRY_IN("copy", bench.each("copy-timed", one, copy));
      if (asked.quick) continue;
      const auto kernels = [&](bool loads) {
        return [&, loads](const Ordered& some) { return by_kernels(bench, some, rates, loads); };
      };
      if (asked.wants("store-timed")) TRY_IN("stores", bench.each("store-timed", one, kernels(false)));
      if (asked.wants("load-timed")) TRY_IN("loads", bench.each("load-timed", one, kernels(true)));
      if (!asked.wants("chase")) continue;
      const Ordered right = with_right_bytes(bench, one);
      TRY_IN("chase", bench.each("chase", right, [&](const Ordered& some) { return chase(bench, some); }));
    }
    if (!asked.quick && !asked.alone && (asked.wants("copy-both-timed") || (two && asked.wants("all-to-all"))))
      TRY_IN("copy both ways", copy_both_ways(bench, both, rates));
  }
  if (!asked.quick && !asked.alone && !two && asked.wants("all-to-all"))
    TRY_IN("everything at once", everything_at_once(bench, rates));
  return {};
}

}  // namespace p2pd::bench
