// SPDX-License-Identifier: MIT
// Tests of bytes. They differ in the executing GPU: a push or a store runs on the GPU that sends, a pull or a load on
// the one that receives. The receiver verifies in a new kernel, and the host checks samples that the receiver's copy
// engine fetched. Everything is enqueued before any wait, so all pairs of a round work at once.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

enum class How { push, pull, store, load, load_plain };

struct Test {
  std::string_view name;
  How how;
};
constexpr Test kTests[] = {{"copy-push", How::push},
                           {"copy-pull", How::pull},
                           {"store", How::store},
                           {"load", How::load},
                           {"load-plain", How::load_plain}};
constexpr std::string_view kWriterReads = "store-writer-reads";

bool loads(const Test& test) { return test.how == How::load || test.how == How::load_plain; }

constexpr u32 kGuard = 64;        // bytes
constexpr u64 kHeadBytes = 8192;  // checked by the host: every small transfer is there
constexpr u64 kTailBytes = 64;

/// Rounds up to which transfers of every pair are as large as the arena. With more only those that use each GPU once
/// are: a window that is too small is the owner's, whoever the peer is, and 240 pairs must not take minutes. The timed
/// transfers, except in a quick run, are large and verified for every pair.
constexpr std::size_t kFewRounds = 3;
constexpr u64 kMostLater = 64 << 10;

/// Transfers of 4 bytes to 256 MiB, as many as fit into `half` bytes, with guard bands between them.
Slots ladder(u64 half, bool whole) {
  constexpr u64 kSizes[] = {4, 8, 16, 61, 62, 1000, 4096, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
  Slots slots{0, kGuard, {}};
  u64 at = kGuard;
  for (const u64 bytes : kSizes) {
    if (at + bytes + kGuard > half || (!whole && bytes > kMostLater)) break;
    slots.slot[slots.count++] = {at, bytes};
    at = (at + bytes + u64{2} * kGuard + 15) / 16 * 16;
  }
  return slots;
}

u64 strip_bytes(const Slots& slots) {
  const Slot& last = slots.slot[slots.count - 1];
  return (last.begin + last.bytes + slots.guard + 7) / 8 * 8;
}

/// Widest store that divides the slot's length.
u32 width_of(const Slot& slot) {
  for (const u32 width : {16U, 8U, 4U, 2U})
    if (slot.bytes % width == 0) return width;
  return 1;
}

/// Transfer under way, with the places of its results.
struct Sent {
  Transfer transfer;
  u64 key = 0;                     ///< key of the data that is sent: the transfer's, unless a fault is seeded
  u32 seen = 0;                    ///< number of the Seen on `to`
  std::optional<u32> writer_seen;  ///< number of the Seen on `from`, for stores
  std::uint8_t* head = nullptr;    ///< kHeadBytes from the start of the strip, then kTailBytes from its end
};

/// Enqueues one round of one test, both directions of every pair.
class RoundOfTest {
 public:
  RoundOfTest(Bench& bench, const Test& test, bool whole) : bench_(bench), test_(test), whole_(whole) {}

  Result<void> run(const Ordered& ordered, std::vector<Sent>& sent) {
    const std::size_t first = sent.size();
    for (const auto& [from, to] : ordered) sent.push_back(TRY(prepare(from, to)));
    for (std::size_t i = first; i < sent.size(); ++i) TRY(send(sent[i]));
    for (std::size_t i = first; i < sent.size(); ++i) TRY(check(sent[i]));
    return {};
  }

 private:
  /// Fills the source, poisons the destination.
  Result<Sent> prepare(int from, int to) {
    OpenGpu& a = bench_.gpu(from);
    OpenGpu& b = bench_.gpu(to);
    Slots slots = ladder(std::min(a.half(), b.half()), whole_);
    if (loads(test_)) slots.guard = 0;  // the source is compared in place: nothing around it is poisoned
    Sent sent;
    sent.key = bench_.seeded("old-nonce", from, to) ? bench_.keys.next(test_.name, from, to, slots).key : 0;
    sent.transfer = bench_.keys.next(test_.name, from, to, slots);
    if (sent.key == 0) sent.key = sent.transfer.key;
    TRY(a.fill(a.out(), strip_bytes(slots), sent.key));
    if (!loads(test_)) TRY(b.set(b.in(), strip_bytes(slots), sent.transfer.poison));
    return sent;
  }

  /// Sends the bytes, executed by the GPU that the test selects.
  Result<void> send(const Sent& sent) {
    const auto& [from, to] = std::pair(sent.transfer.from, sent.transfer.to);
    OpenGpu& a = bench_.gpu(from);
    OpenGpu& b = bench_.gpu(to);
    const bool pulls = test_.how == How::pull || loads(test_);
    TRY(a.wait_for(a.stream(), b, b.stream()));
    if (pulls) TRY(b.wait_for(b.stream(), a, a.stream()));
    if (loads(test_) || bench_.seeded("dead-direction", from, to)) return {};
    const CUdeviceptr target = bench_.seeded("own-buffer", from, to) ? a.in() : b.in();
    if (test_.how == How::store) return store(sent, a, target);
    const OpenGpu& runs = pulls ? b : a;
    TRY(runs.use());
    for (u32 i = 0; i < sent.transfer.slots.count; ++i) {
      const Slot& slot = sent.transfer.slots.slot[i];
      CU(bench_.driver, cuMemcpyAsync(target + slot.begin, a.out() + slot.begin, slot.bytes, runs.stream()));
    }
    return {};
  }

  Result<void> store(const Sent& sent, const OpenGpu& a, CUdeviceptr target) {
    const Transfer& transfer = sent.transfer;
    StoreFault fault{~0ULL, ~0ULL};
    const Slot& last = transfer.slots.slot[transfer.slots.count - 1];
    if (bench_.seeded("skip-store", transfer.from, transfer.to)) fault.skip_at = last.begin + last.bytes / 2 / 16 * 16;
    if (bench_.seeded("wrap-offset", transfer.from, transfer.to)) fault.wrap = std::bit_ceil(last.bytes) / 16 - 1;
    for (const u32 width : {1U, 2U, 4U, 8U, 16U}) {
      Slots slots{0, kGuard, {}};
      for (u32 i = 0; i < transfer.slots.count; ++i)
        if (width_of(transfer.slots.slot[i]) == width) slots.slot[slots.count++] = transfer.slots.slot[i];
      if (slots.count == 0) continue;
      TRY(a.launch(Kernel::store, a.wide(slots.count), a.stream(), target, slots, sent.key, width, fault));
    }
    return {};
  }

  /// Verifies on the receiver, in a new kernel; then its copy engine fetches samples for the host.
  Result<void> check(Sent& sent) {
    const Transfer& t = sent.transfer;
    OpenGpu& a = bench_.gpu(t.from);
    OpenGpu& b = bench_.gpu(t.to);
    TRY(b.wait_for(b.stream(), a, a.stream()));
    const Load how = test_.how == How::load_plain ? kPlain : kRelaxedSystem;
    sent.seen = TRY(b.verify(loads(test_) ? a.out() : b.in(), t.slots, t.key, t.poison, how));
    if (loads(test_)) return a.wait_for(a.stream(), b, b.stream());  // the source stays until it is read
    if (test_.how == How::store) {
      TRY(bench_.part(kWriterReads, t.to, t.from));  // the data is read back
      // checking the writer's own stores needs no gigabyte over the link
      Slots small = t.slots;
      while (small.count > 1 && small.slot[small.count - 1].bytes > (1 << 20)) --small.count;
      sent.writer_seen = TRY(a.verify(b.in(), small, t.key, t.poison, kRelaxedSystem));
      TRY(b.wait_for(b.stream(), a, a.stream()));
    }
    const u64 strip = strip_bytes(t.slots);
    sent.head = TRY(b.host_bytes(kHeadBytes + kTailBytes));
    TRY(b.use());
    CU(bench_.driver, cuMemcpyDtoHAsync(sent.head, b.in(), std::min(kHeadBytes, strip), b.stream()));
    CU(bench_.driver, cuMemcpyDtoHAsync(sent.head + kHeadBytes, b.in() + strip - kTailBytes, kTailBytes, b.stream()));
    return a.wait_for(a.stream(), b, b.stream());  // b.in, too, stays until it is read
  }

  Bench& bench_;
  const Test& test_;
  bool whole_;
};

/// Fault of one transfer; nothing if every byte was right.
std::optional<Wrong> outcome(Bench& bench, const Sent& sent, const AllSeen& seen) {
  const Transfer& t = sent.transfer;
  const auto& known = bench.keys.known();
  const Seen& owner = seen[static_cast<std::size_t>(t.to)][sent.seen];
  const Seen* writer = sent.writer_seen ? &seen[static_cast<std::size_t>(t.from)][*sent.writer_seen] : nullptr;
  auto& verified = bench.pair(t.from, t.to).verified_bytes;
  if (writer != nullptr && writer->wrong == 0) verified[std::string(kWriterReads)] += writer->right;
  if (owner.wrong > 0) {
    Wrong wrong = explain(t, owner, known);
    if (wrong.kind == WrongKind::lost && owner.right == 0 && writer != nullptr && writer->wrong == 0) {
      wrong.kind = WrongKind::mirror;
      wrong.detail = "the writer reads back what it wrote, the owner of the memory never sees it";
    }
    return wrong;
  }
  if (sent.head != nullptr) {
    const u64 strip = strip_bytes(t.slots);
    const u64 head = std::min(kHeadBytes, strip);
    auto bad = first_wrong(t, 0, sent.head, head);
    if (!bad) bad = first_wrong(t, strip - kTailBytes, sent.head + kHeadBytes, kTailBytes);
    if (bad) {
      Wrong wrong = explain(t, bad->first, bad->second, known);
      wrong.detail += "; seen by the owner's copy engine only";
      return wrong;
    }
  }
  if (const u64 bytes = payload_bytes(t.slots); owner.right != bytes)  // a kernel that did not run proves nothing
    return wrong_of(t.test, t.from, t.to, bytes, WrongKind::garbled,
                    fmt::format("only {} of {} bytes were compared", owner.right, bytes));
  verified[std::string(t.test)] += owner.right;
  return std::nullopt;
}

/// Repeats a wrong transfer alone, and verifies again after 10 ms: detects late data, and faults that need other
/// traffic.
Result<void> try_alone(Bench& bench, const Test& test, Wrong& wrong) {
  TRY(bench.forget());
  std::vector<Sent> sent;
  TRY(bench.connect({{wrong.from, wrong.to}}));
  TRY(RoundOfTest(bench, test, true).run({{wrong.from, wrong.to}}, sent));
  const AllSeen seen = TRY(bench.seen());
  const Transfer& t = sent.front().transfer;
  const std::optional<Wrong> again = outcome(bench, sent.front(), seen);
  if (!again) {
    wrong.detail += (wrong.detail.empty() ? "" : "; ") +
                    std::string("right when tried again, alone: wrong at times, or while other pairs work");
    bench.pair(wrong.from, wrong.to).verified_bytes.erase(wrong.test);
    return {};
  }
  if (seen[static_cast<std::size_t>(wrong.to)][sent.front().seen].wrong == 0) return {};
  wrong = *again;
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  OpenGpu& b = bench.gpu(wrong.to);
  const CUdeviceptr where = loads(test) ? bench.gpu(wrong.from).out() : b.in();
  if (TRY(look(b, where, t.slots, t.key, t.poison, kRelaxedSystem)).wrong == 0) {
    wrong.kind = WrongKind::late;
    wrong.detail = "right 10 ms after it was reported complete";
  }
  return {};
}

}  // namespace

Result<void> prove_bytes(Bench& bench, const std::vector<Round>& rounds) {
  constexpr std::size_t kMostAlone = 32;  // each costs a few milliseconds; a dead bus must not cost minutes
  std::size_t alone = 0;
  for (const Test& test : kTests) {
    if (!bench.asked.wants(test.name)) continue;
    TRY(bench.forget());
    std::vector<Sent> sent;
    const std::size_t whole = rounds.size() <= kFewRounds ? rounds.size() : each_link(bench.found).size();
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      TRY(bench.connect(rounds[i]));
      const auto run = [&](const Ordered& some) { return RoundOfTest(bench, test, i < whole).run(some, sent); };
      TRY_IN(test.name, bench.each(test.name, bench.both_ways(rounds[i]), run));
    }
    const AllSeen seen = TRY_IN(test.name, bench.seen());
    for (const Sent& one : sent) {
      std::optional<Wrong> wrong = outcome(bench, one, seen);
      if (!wrong) continue;
      if (alone++ < kMostAlone) TRY_IN(test.name, try_alone(bench, test, *wrong));
      bench.found.wrong.push_back(std::move(*wrong));
    }
  }
  return {};
}

}  // namespace p2pd::bench
