// SPDX-License-Identifier: MIT
// Rates and latencies. Each is the median of consecutive timed repetitions, after warm-ups, so that enqueued operations
// run without a gap; pairs are timed at the same time only if their paths share nothing. The data of timed copies is
// verified, too.
#include <algorithm>
#include <iterator>
#include <map>

#include "probes/bench/measure/timing.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

/// Ordered pairs up to which a quick run times each; with more it times each GPU's link once, both ways.
constexpr std::size_t kMostTimedAtBoot = 12;
constexpr int kInner = 2;           // copies between two events: the gap between them counts half
constexpr u64 kChaseLoads = 128;    // by one multiprocessor: reading the clock twice costs a tenth of one load
constexpr unsigned kChaseEach = 4;  // every fourth multiprocessor
constexpr u64 kChaseStride = 128;   // bytes: a line

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

/// Times the copy engine, one way; a short first copy determines the length of the timed ones.
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
    all[i].inner = bench.asked.quick ? 1 : kInner;
  }
  TRY(bench.finish());
  Stopwatch watch(bench);
  for (Series& series : all) TRY(watch.enqueue(series));
  TRY(bench.finish());
  for (std::size_t i = 0; i < ordered.size(); ++i)
    bench.pair(ordered[i].first, ordered[i].second).copy_gb_s = TRY(watch.rate(all[i]));
  return timed.verify();
}

/// Times the copy engine, both ways at once: the second direction waits for the start of the first.
Result<void> copy_both_ways(Bench& bench, const Ordered& ordered, const std::map<std::pair<int, int>, u64>& lengths) {
  Stopwatch watch(bench);
  Timed timed(bench, "copy-both-timed");
  std::vector<Series> all;
  for (const auto& [from, to] : ordered) {
    const u64 bytes = std::min(lengths.at({from, to}), lengths.at({to, from}));
    TRY(timed.prepare(from, to, bytes));
    all.push_back(copies(bench, from, to, bytes));
    all.back().inner = kInner;
  }
  TRY(bench.finish());
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {  // the ordered pairs of one pair are adjacent
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
    if (bench.count() > 2) continue;  // with two GPUs these are all pairs at once
    bench.pair(ordered[i].first, ordered[i].second).busy_gb_s = one;
    bench.pair(ordered[i].second, ordered[i].first).busy_gb_s = other;
    bench.found.all_to_all_gb_s = sum;
  }
  return timed.verify();
}

/// Times SM stores by the sender, or SM loads by the receiver.
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
  for (unsigned run = 0; run < kRepetitions; ++run)
    for (const auto& [from, to] : ordered)
      for (unsigned target = 0; target < blocks[from]; target += kChaseEach)
        TRY(launch(bench.gpu(from), bench.gpu(to), blocks[from], target,
                   bench.gpu(from).scratch() + std::size_t{run} * blocks[from] * sizeof(u64)));
  TRY(bench.finish());
  for (const auto& [from, to] : ordered) {
    std::vector<u64> times(std::size_t{kRepetitions} * blocks[from]);
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

}  // namespace

Result<void> staged(Bench& bench) {
  constexpr u64 kBytes = 32ULL << 20;
  constexpr int kTiny = 20;
  for (const Round& round : rounds_of(bench.found)) {
    for (const auto& [one, other] : round) {  // one pair at a time: others would share the host's memory
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
        TRY(bench.finish());
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
  const bool all = !bench.asked.quick || bench.found.pairs.size() <= kMostTimedAtBoot;
  for (const Round& round : apart(bench, all ? rounds_of(bench.found) : each_link(bench.found))) {
    TRY(bench.connect(round));
    for (OpenGpu& gpu : bench.gpus) TRY(gpu.forget());
    const Ordered both = bench.both_ways(round);
    for (const bool up : {true, false}) {
      Ordered one;
      std::copy_if(both.begin(), both.end(), std::back_inserter(one),
                   [&](const auto& p) { return (p.first < p.second) == up; });
      TRY_IN("copy",
             bench.each("copy-timed", one, [&](const Ordered& some) { return copy_one_way(bench, some, lengths); }));
      if (bench.asked.quick) continue;
      TRY_IN("stores",
             bench.each("store-timed", one, [&](const Ordered& some) { return by_kernels(bench, some, false); }));
      TRY_IN("loads",
             bench.each("load-timed", one, [&](const Ordered& some) { return by_kernels(bench, some, true); }));
      const Ordered right = with_right_bytes(bench, one);
      TRY_IN("chase", bench.each("chase", right, [&](const Ordered& some) { return chase(bench, some); }));
    }
    if (!bench.asked.quick && !bench.asked.alone) TRY_IN("copy both ways", copy_both_ways(bench, both, lengths));
  }
  if (!bench.asked.quick && !bench.asked.alone && bench.count() > 2)
    TRY_IN("everything at once", everything_at_once(bench));
  return {};
}

}  // namespace p2pd::bench
