// SPDX-License-Identifier: MIT
// Handshakes: running kernels on two GPUs signal readiness to each other by flags, like NCCL's kernels. The waiting
// kernel checks the payload itself. One direction, the other direction, then both at once.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

struct Handshake {
  std::string_view name;
  Protocol protocol;
  u64 rounds;
  u64 full_rounds;
  bool nvlink_only;
};
constexpr Handshake kHandshakes[] = {
    {"handshake-push", kPush, 500, 10'000, false},
    {"handshake-pull", kPull, 250, 10'000, false},
    {"handshake-ll", kLl, 250, 10'000, false},
    {"handshake-ll128", kLl128, 250, 10'000, true},  // NCCL relies on complete 128-byte lines over NVLink only
};

constexpr Handshake kPingPong = {"ping-pong", kFlag, 500, 500, false};

/// One direction of a handshake under way.
struct Shaking {
  Transfer transfer;
  u64 rounds = 0;
  u32 sender_seen = 0;
  u32 receiver_seen = 0;
};

/// Starts both kernels of one direction; those of two directions are on different streams.
Result<Shaking> start(Bench& bench, const Handshake& test, int from, int to) {
  OpenGpu& a = bench.gpu(from);
  OpenGpu& b = bench.gpu(to);
  Shaking one;
  one.rounds = bench.asked.full ? test.full_rounds : bench.asked.quick ? test.rounds / 4 : test.rounds;
  Slots slots{1, 0, {}};
  slots.slot[0] = {kMailBytes, one.rounds * kMailBytes};  // rounds count from 1
  one.transfer = bench.keys.next(test.name, from, to, slots);
  one.transfer.poison = 0;
  one.sender_seen = TRY(a.new_seen());
  one.receiver_seen = TRY(b.new_seen());
  const CUstream sends = from < to ? a.stream() : a.side();
  const CUstream receives = from < to ? b.stream() : b.side();
  TRY(a.launch(Kernel::handshake, {1, 1, kLanes}, sends, a.mail(to, 1), b.mail(from, 0), u32{1}, u32{test.protocol},
               one.rounds, one.transfer.key, kWaitLimitNs, a.seen_at(one.sender_seen), a.timing(0)));
  TRY(b.launch(Kernel::handshake, {1, 1, kLanes}, receives, b.mail(from, 0), a.mail(to, 1), u32{0}, u32{test.protocol},
               one.rounds, one.transfer.key, kWaitLimitNs, b.seen_at(one.receiver_seen), b.timing(1)));
  return one;
}

/// Clears all mailboxes, then shakes hands in these directions at once.
Result<std::vector<Shaking>> shake(Bench& bench, const Handshake& test, const Ordered& ordered) {
  for (const auto& [from, to] : ordered) {
    TRY(bench.gpu(from).set(bench.gpu(from).mail(to, 1), sizeof(Mailbox), 0));
    TRY(bench.gpu(to).set(bench.gpu(to).mail(from, 0), sizeof(Mailbox), 0));
  }
  TRY(bench.finish());  // no kernel may spin for one that waits behind another
  std::vector<Shaking> all;
  for (const auto& [from, to] : ordered) all.push_back(TRY(start(bench, test, from, to)));
  TRY(bench.finish());
  return all;
}

/// Records the result of a direction.
void judge_bytes(Bench& bench, const Shaking& one, const AllSeen& seen) {
  const Transfer& t = one.transfer;
  const Seen& receiver = seen[static_cast<std::size_t>(t.to)][one.receiver_seen];
  const Seen& sender = seen[static_cast<std::size_t>(t.from)][one.sender_seen];
  if (receiver.wrong > 0) {
    Wrong wrong = explain(t, receiver, bench.keys.known());
    if (wrong.kind == WrongKind::alias) wrong.kind = WrongKind::stale;  // another offset is another round
    wrong.detail += fmt::format("{}in round {}", wrong.detail.empty() ? "" : ", ", wrong.offset / kMailBytes + 1);
    bench.found.wrong.push_back(std::move(wrong));
  } else if (receiver.timeouts > 0 || sender.timeouts > 0) {
    const std::string_view lost = receiver.timeouts > 0 ? "the flag" : "the acknowledgement";
    Wrong wrong = wrong_of(t.test, t.from, t.to, one.rounds * kMailBytes, WrongKind::lost,
                           fmt::format("{} of round {} did not arrive within {} ms", lost,
                                       receiver.right / kMailBytes + 1, kWaitLimitNs / 1'000'000));
    wrong.offset = receiver.right;
    bench.found.wrong.push_back(std::move(wrong));
  } else {
    bench.pair(t.from, t.to).verified_bytes[std::string(t.test)] += receiver.right;
  }
}

/// Measures half of a round trip, by the clock of the GPU that sends.
Result<void> ping_pong(Bench& bench, const Ordered& ordered) {
  std::map<std::pair<int, int>, std::vector<double>> times;
  for (int repetition = 0; repetition < bench.asked.iterations; ++repetition) {
    for (const Shaking& one : TRY(shake(bench, kPingPong, ordered))) {
      Timing timing{};
      TRY(bench.gpu(one.transfer.from).use());
      CU(bench.driver, cuMemcpyDtoH(&timing, bench.gpu(one.transfer.from).timing(0), sizeof(timing)));
      if (timing.rounds == one.rounds)  // the first round is before the start time
        times[{one.transfer.from, one.transfer.to}].push_back(static_cast<double>(timing.end_ns - timing.start_ns) /
                                                              (2.0 * static_cast<double>(one.rounds - 1)));
    }
  }
  for (auto& [pair, values] : times) bench.pair(pair.first, pair.second).ping_pong_ns = figure(std::move(values));
  return {};
}

}  // namespace

Result<void> shake_hands(Bench& bench) {
  for (const Round& round : rounds_of(bench.found)) {
    TRY(bench.connect(round));
    TRY(bench.forget());
    Ordered up;
    Ordered down;
    const Ordered both = bench.both_ways(round);
    for (const auto& [from, to] : both) (from < to ? up : down).emplace_back(from, to);
    std::vector<Shaking> all;
    for (const Handshake& test : kHandshakes) {
      if (!bench.asked.wants(test.name)) continue;
      const auto run = [&](const Ordered& some) -> Result<void> {
        for (const Shaking& one : TRY(shake(bench, test, some))) all.push_back(one);
        return {};
      };
      const std::vector<Ordered> ways =
          test.protocol == kPush ? std::vector<Ordered>{up, down, both} : std::vector<Ordered>{both};
      for (Ordered ordered : ways) {
        if (test.nvlink_only)
          std::erase_if(ordered, [&](const auto& p) { return bench.path(p.first, p.second).kind != PathKind::nvlink; });
        TRY_IN(test.name, bench.each(test.name, ordered, run));
      }
    }
    const AllSeen seen = TRY(bench.seen());
    for (const Shaking& one : all) judge_bytes(bench, one, seen);
    if (bench.asked.quick || !bench.asked.wants(kPingPong.name)) continue;
    for (const Ordered& ordered : {up, down})
      TRY(bench.each(kPingPong.name, ordered, [&](const Ordered& some) { return ping_pong(bench, some); }));
  }
  return {};
}

}  // namespace p2pd::bench
