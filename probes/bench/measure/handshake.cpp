// SPDX-License-Identifier: MIT
// Handshakes: running kernels on two GPUs signal readiness to each other by flags, like NCCL's kernels. The waiting
// kernel checks the payload itself. One direction, the other direction, then both at once.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "probes/bench/figure.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr int kPingPongs = 3;

struct Test {
  std::string_view name;
  Protocol protocol;
  u64 rounds;
  u64 full_rounds;
  bool nvlink_only;
};
constexpr Test kTests[] = {
    {"handshake-push", kPush, 500, 10'000, false},
    {"handshake-pull", kPull, 250, 10'000, false},
    {"handshake-ll", kLl, 250, 10'000, false},
    {"handshake-ll128", kLl128, 250, 10'000, true},  // NCCL relies on complete 128-byte lines over NVLink only
};

/// One direction of a handshake under way.
struct Shaking {
  Transfer transfer;
  u64 rounds = 0;
  u32 sender_seen = 0;
  u32 receiver_seen = 0;
};

/// Clears both mailboxes, then starts both kernels; `side`: on the second streams.
class Handshake {
 public:
  Handshake(Bench& bench, std::string_view test, Protocol protocol, u64 rounds)
      : bench_(bench), test_(test), protocol_(protocol), rounds_(rounds) {}

  Result<std::vector<Shaking>> run(const std::vector<std::pair<int, int>>& ordered) {
    for (const auto& [from, to] : ordered) TRY(empty(from, to));
    TRY(bench_.finish());  // no kernel may spin for one that waits behind another
    std::vector<Shaking> all;
    for (const auto& [from, to] : ordered) all.push_back(TRY(start(from, to)));
    TRY(bench_.finish());
    return all;
  }

 private:
  Result<void> empty(int from, int to) {
    OpenGpu& a = bench_.gpu(from);
    OpenGpu& b = bench_.gpu(to);
    TRY(a.use());
    CU(bench_.driver, cuMemsetD32Async(a.mail(to, 1), 0, sizeof(Mailbox) / 4, a.stream()));
    TRY(b.use());
    CU(bench_.driver, cuMemsetD32Async(b.mail(from, 0), 0, sizeof(Mailbox) / 4, b.stream()));
    return {};
  }

  Result<Shaking> start(int from, int to) {
    OpenGpu& a = bench_.gpu(from);
    OpenGpu& b = bench_.gpu(to);
    Shaking one;
    Slots slots{1, 0, {}};
    slots.slot[0] = {kMailBytes, rounds_ * kMailBytes};  // rounds count from 1
    one.transfer = bench_.keys.next(test_, from, to, slots);
    one.transfer.poison = 0;
    one.rounds = rounds_;
    one.sender_seen = TRY(a.new_seen());
    one.receiver_seen = TRY(b.new_seen());
    const CUstream sends = from < to ? a.stream() : a.side();
    const CUstream receives = from < to ? b.stream() : b.side();
    TRY(a.launch(Kernel::handshake, {1, 1, kLanes}, sends, a.mail(to, 1), b.mail(from, 0), u32{1}, u32{protocol_},
                 rounds_, one.transfer.key, kWaitLimitNs, a.seen_at(one.sender_seen), a.timing(0)));
    TRY(b.launch(Kernel::handshake, {1, 1, kLanes}, receives, b.mail(from, 0), a.mail(to, 1), u32{0}, u32{protocol_},
                 rounds_, one.transfer.key, kWaitLimitNs, b.seen_at(one.receiver_seen), b.timing(1)));
    return one;
  }

  Bench& bench_;
  std::string_view test_;
  Protocol protocol_;
  u64 rounds_;
};

/// Records the result of a direction.
void judge_bytes(Bench& bench, const Shaking& one, const std::vector<std::vector<Seen>>& seen) {
  const Transfer& t = one.transfer;
  const Seen& receiver = seen[static_cast<std::size_t>(t.to)][one.receiver_seen];
  const Seen& sender = seen[static_cast<std::size_t>(t.from)][one.sender_seen];
  if (receiver.wrong > 0) {
    Wrong wrong = explain(t, receiver, bench.keys.known());
    if (wrong.kind == WrongKind::alias) wrong.kind = WrongKind::stale;  // another offset is another round
    wrong.detail += fmt::format("{}in round {}", wrong.detail.empty() ? "" : ", ", wrong.offset / kMailBytes + 1);
    bench.found.wrong.push_back(std::move(wrong));
  } else if (receiver.timeouts > 0 || sender.timeouts > 0) {
    Wrong wrong;
    wrong.test = t.test;
    wrong.from = t.from;
    wrong.to = t.to;
    wrong.bytes = one.rounds * kMailBytes;
    wrong.offset = receiver.right;
    wrong.kind = WrongKind::lost;
    wrong.detail = fmt::format("{} of round {} did not arrive within {} ms",
                               receiver.timeouts > 0 ? "the flag" : "the acknowledgement",
                               receiver.right / kMailBytes + 1, kWaitLimitNs / 1'000'000);
    bench.found.wrong.push_back(std::move(wrong));
  } else {
    bench.pair(t.from, t.to).verified_bytes[std::string(t.test)] += receiver.right;
  }
}

Result<void> judge_all(Bench& bench, const std::vector<Shaking>& all) {
  std::vector<std::vector<Seen>> seen;
  for (OpenGpu& gpu : bench.gpus) seen.push_back(TRY(gpu.seen()));
  for (const Shaking& one : all) judge_bytes(bench, one, seen);
  return {};
}

/// Measures half of a round trip, by the clock of the GPU that sends.
Result<void> ping_pong(Bench& bench, const std::vector<std::pair<int, int>>& ordered) {
  constexpr u64 kRounds = 500;
  std::map<std::pair<int, int>, std::vector<double>> times;
  for (int repetition = 0; repetition < kPingPongs; ++repetition) {
    for (const Shaking& one : TRY(Handshake(bench, "ping-pong", kFlag, kRounds).run(ordered))) {
      Timing timing{};
      TRY(bench.gpu(one.transfer.from).use());
      CU(bench.driver, cuMemcpyDtoH(&timing, bench.gpu(one.transfer.from).timing(0), sizeof(timing)));
      if (timing.rounds == kRounds)  // the first round is before the start time
        times[{one.transfer.from, one.transfer.to}].push_back(static_cast<double>(timing.end_ns - timing.start_ns) /
                                                              (2.0 * static_cast<double>(kRounds - 1)));
    }
  }
  for (auto& [pair, values] : times) bench.pair(pair.first, pair.second).ping_pong_ns = figure(std::move(values));
  return {};
}

}  // namespace

Result<void> shake_hands(Bench& bench) {
  for (const Round& round : rounds_of(bench.found)) {
    TRY(bench.connect(round));
    for (OpenGpu& gpu : bench.gpus) TRY(gpu.forget());
    std::vector<std::pair<int, int>> up;
    std::vector<std::pair<int, int>> down;
    const auto both = bench.both_ways(round);
    for (const auto& [from, to] : both) (from < to ? up : down).emplace_back(from, to);
    std::vector<Shaking> all;
    const auto shake = [&](const Test& test, u64 rounds, std::vector<std::pair<int, int>> ordered) -> Result<void> {
      if (test.nvlink_only)
        std::erase_if(ordered, [&](const auto& p) { return bench.path(p.first, p.second).kind != PathKind::nvlink; });
      const auto run = [&](const Ordered& some) -> Result<void> {
        for (const Shaking& one : TRY(Handshake(bench, test.name, test.protocol, rounds).run(some))) all.push_back(one);
        return {};
      };
      TRY_IN(test.name, bench.each(test.name, ordered, run));
      return {};
    };
    for (const Test& test : kTests) {
      const u64 rounds = bench.asked.full ? test.full_rounds : bench.asked.quick ? test.rounds / 4 : test.rounds;
      if (test.protocol == kPush) {
        TRY(shake(test, rounds, up));
        TRY(shake(test, rounds, down));
      }
      TRY(shake(test, rounds, both));
    }
    TRY(judge_all(bench, all));
    if (bench.asked.quick) continue;
    for (const Ordered& ordered : {up, down})
      TRY(bench.each("ping-pong", ordered, [&](const Ordered& some) { return ping_pong(bench, some); }));
  }
  return {};
}

}  // namespace p2pd::bench
