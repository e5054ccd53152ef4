// SPDX-License-Identifier: MIT
// One-shot all-reduce of two GPUs, both sides of the test, in a CUDA graph that is replayed thousands of times: each
// GPU tells the other by a flag that its data is there, spins on its own flag, loads the other's data and adds it to
// its own. Copies and stores may be right where this hangs or adds old data. It runs in the second process, which may
// be killed. Reference: vLLM, csrc/custom_all_reduce.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_process.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

// ---- second process -------------------------------------------------------------------------------------------------

constexpr u64 kTogether = 250;    // replays between two waits of the host
constexpr u64 kSeenPlace = 4096;  // in the scratch memory, after Reduce
static_assert(sizeof(Reduce) <= kSeenPlace && kSeenPlace + sizeof(Seen) <= OpenGpu::kScratch);

using Two = std::array<const OpenGpu*, 2>;

Result<Graph> capture_reduce(const Driver& driver, const OpenGpu& own, const OpenGpu& peer, u64 bytes, u64 key,
                             u64 peer_key) {
  TRY(own.set(own.scratch(), kSeenPlace + sizeof(Seen), 0));
  TRY(own.finish());
  return Graph::capture(driver, own, [&] {
    return own.launch(Kernel::all_reduce, {kReduceBlocks, 1, kReduceThreads}, own.stream(), peer.out(), peer.scratch(),
                      own.out(), own.scratch(), own.in(), bytes / 8, key, peer_key, kWaitLimitNs,
                      own.scratch() + kSeenPlace);
  });
}

/// Replays both graphs until all replays are done, or one GPU has stopped.
Result<std::array<Reduce, 2>> replay(const Driver& driver, const Two& gpus, const std::vector<Graph>& graphs,
                                     u64 replays) {
  std::array<Reduce, 2> states{};
  for (u64 done = 0; done < replays && states[0].stopped == 0 && states[1].stopped == 0; done += kTogether) {
    for (u64 i = 0; i < std::min(kTogether, replays - done); ++i)
      for (const Graph& graph : graphs) TRY(graph.launch());
    for (const OpenGpu* gpu : gpus) TRY(gpu->finish());
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      TRY(gpus[i]->use());
      CU(driver, cuMemcpyDtoH(&states[i], gpus[i]->scratch(), sizeof states[i]));
    }
  }
  return states;
}

// ---- requesting process ---------------------------------------------------------------------------------------------

struct ReduceSize {
  u64 bytes;
  u64 replays;
};
constexpr ReduceSize kReduceSizes[] = {{8ULL << 10, 2000}, {512ULL << 10, 100}};

/// Results of the GPU that receives `in`.
struct ReduceSide : Answer::Side {
  Transfer in;
};

/// Adds the replays to what earlier ones of this pair and size gave.
void add_row(Measurement& found, const ReduceSide& side, u64 bytes) {
  const auto is_it = [&](const AllReduce& r) {
    return r.from == side.in.from && r.to == side.in.to && r.bytes == bytes;
  };
  auto row = std::ranges::find_if(found.all_reduces, is_it);
  if (row == found.all_reduces.end())
    row = found.all_reduces.insert(row, AllReduce{side.in.from, side.in.to, bytes, 0, 0, 0});
  if (side.replays > 1) {
    const double mean_ns = static_cast<double>(side.total_ns) / static_cast<double>(side.replays - 1);
    const double share = static_cast<double>(side.replays) / static_cast<double>(row->replays + side.replays);
    row->time_ns += share * (mean_ns - row->time_ns);
  }
  row->replays += side.replays;
  row->wrong += side.seen.wrong;
}

/// Explains wrong sums by the data that seems to have been loaded.
Wrong wrong_sums(const Bench& bench, const ReduceSide& side, u64 bytes) {
  Wrong wrong = explain(side.in, side.seen, bench.keys.known());
  const std::string where = fmt::format("in replay {} of {}", wrong.offset / bytes + 1, size_name(bytes));
  if (wrong.kind == WrongKind::alias) {
    const u64 word = unmix64(std::stoull(wrong.seen, nullptr, 16)) ^ side.in.key;
    wrong.kind = WrongKind::stale;
    wrong.detail = fmt::format("holds the data of replay {}", 8 * word / bytes + 1);
  }
  wrong.detail = where + (wrong.detail.empty() ? "" : ": " + wrong.detail);
  wrong.offset %= bytes;
  return wrong;
}

Wrong no_flag(const ReduceSide& side, u64 bytes) {
  return wrong_of(kGraphReduce, side.in.from, side.in.to, bytes, WrongKind::lost,
                  fmt::format("the flag that {} replay {} did not arrive within {} ms",
                              side.stopped % 2 == 0 ? "begins" : "ends", side.stopped / 2, kWaitLimitNs / 1'000'000));
}

/// Records the results of one GPU. Returns false if the direction into it is wrong.
bool note_side(Bench& bench, const ReduceSide& side, const ReduceSide& other, u64 bytes) {
  add_row(bench.found, side, bytes);
  Pair& pair = bench.pair(side.in.from, side.in.to);
  const bool first = side.stopped != 0 && (other.stopped == 0 || side.stopped <= other.stopped);
  if (side.seen.wrong > 0) {
    bench.found.wrong.push_back(wrong_sums(bench, side, bytes));
  } else if (first) {  // the other GPU stops later, because this one does
    bench.found.wrong.push_back(no_flag(side, bytes));
  } else if (side.seen.right == payload_bytes(side.in.slots)) {
    pair.verified_bytes[kGraphReduce] += side.seen.right;
    return true;
  } else if (side.stopped == 0 && other.stopped == 0) {
    pair.not_run[kGraphReduce] = fmt::format("only {} bytes were looked at", side.seen.right);
  }
  return false;
}

}  // namespace

Result<Answer> reduce_in_graph(const Second& second, const Request& request) {
  TRY(second.usable(request.from, request.to));
  TRY(second.reaches(request.from, request.to));
  TRY(second.reaches(request.to, request.from));
  const Driver& driver = second.driver();
  const Two gpus{&second.gpu(request.from), &second.gpu(request.to)};
  const auto& keys = request.keys;
  std::vector<Graph> graphs;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    graphs.push_back(TRY(capture_reduce(driver, *gpus[i], *gpus[1 - i], request.bytes, keys[i], keys[1 - i])));
  const std::array<Reduce, 2> states = TRY(replay(driver, gpus, graphs, request.replays));
  Answer answer;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Answer::Side& side = answer.sides[i];
    TRY(gpus[i]->use());
    CU(driver, cuMemcpyDtoH(&side.seen, gpus[i]->scratch() + kSeenPlace, sizeof side.seen));
    side.replays = *std::ranges::min_element(states[i].replays);
    side.total_ns = states[i].total_ns;
    side.stopped = states[i].stopped;
  }
  return answer;
}

bool PeerProcess::all_reduce(Bench& bench, Pair& there, u64 bytes, u64 replays) {
  Pair& back = bench.pair(there.to, there.from);
  const auto not_run = [&](const Error& why) {
    there.not_run[kGraphReduce] = back.not_run[kGraphReduce] = why.message;
    return false;
  };
  for (const Pair* pair : {&there, &back})
    if (const Result<void> reached = can_send(*pair); !reached) return not_run(reached.error());
  const Slots slots = whole(bytes * replays);
  const Transfer out = bench.keys.next(kGraphReduce, there.from, there.to, slots);
  const Transfer in = bench.keys.next(kGraphReduce, there.to, there.from, slots);
  const Result<Answer> answer =
      try_pair(bench, there, kGraphReduce,
               {.task = Task::all_reduce, .bytes = bytes, .replays = replays, .keys = {out.key, in.key}});
  if (!answer) return answer.error().code == ErrorCode::busy && not_run(answer.error());
  const ReduceSide first{answer->sides[0], in};
  const ReduceSide second{answer->sides[1], out};
  const bool right = note_side(bench, second, first, bytes);
  return note_side(bench, first, second, bytes) && right;
}

Result<void> PeerProcess::prove_all_reduce(Bench& bench) {
  const bool before = gone_.empty();
  for (Pair& pair : bench.found.pairs) {
    if (pair.from > pair.to) continue;
    for (const ReduceSize& size : kReduceSizes)
      if (!all_reduce(bench, pair, size.bytes, size.replays)) break;
  }
  return before && !gone_.empty() ? still_working(bench) : Result<void>();
}

}  // namespace p2pd::bench
