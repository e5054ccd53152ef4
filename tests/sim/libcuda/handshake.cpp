// SPDX-License-Identifier: MIT
// The kernels whose counterpart runs at the same time on another GPU.
#include "tests/sim/libcuda/kernels.hpp"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace p2pd::sim {

using namespace bench;
using namespace bench::cuda;

namespace {

constexpr u64 kFlagAt = offsetof(Mailbox, flag);
constexpr u64 kAcknowledgeAt = offsetof(Mailbox, acknowledge);
constexpr u32 kTurns = 32;
constexpr u64 kHalves = 0xffffffff00000000ULL;

constexpr u64 payload_at(u64 index) { return offsetof(Mailbox, payload) + 8 * index; }
constexpr bool holds_flag(u32 lane) { return lane % 8 == 7; }  // of LL128: eight lanes share a line

/// Waits until `reached`; false after the limit, in real time. Spins, then yields the processor to the other side: if
/// both share one, that takes a fifth of the time of a wakeup. Then sleeps.
template <class Condition>
bool wait_until(Operation& gpu, u64 limit_ns, Condition reached) {
  if (reached()) return true;
  const auto end = Clock::now() + std::chrono::nanoseconds(limit_ns);
  for (u32 spin = 1; !reached(); ++spin) {
    if (spin % 64 != 0) continue;
    if (Clock::now() > end || gpu.stopping()) return false;
    if (spin <= kTurns * 64)
      sched_yield();
    else
      gpu.doorbell().wait(reached);
  }
  return true;
}

/// One side of a handshake.
struct Side {
  Operation& gpu;
  Window& mine;
  Window& theirs;
  u32 protocol;
  u64 key;
  u64 limit_ns;

  u64 first_at(u64 round, u32 lane) const { return round * 2 * kLanes + 2 * lane; }

  template <class Condition>
  bool wait(Condition reached) const {
    return wait_until(gpu, limit_ns, reached);
  }
  bool reaches(u64 at, u64 round) const {
    return wait([&] { return mine.load(at) >= round; });
  }

  bool send(u64 round) const;
  bool receive(u64 round, Seen& seen) const;
  bool arrived(u64 round) const;
};

bool Side::send(u64 round) const {
  const u64 flag = round << 32;  // of LL: the upper half of each word
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u64 first = pattern(key, first_at(round, lane));
    const u64 second = pattern(key, first_at(round, lane) + 1);
    Window& target = protocol == kPull ? mine : theirs;
    switch (protocol) {
      case kPush:
      case kPull:
        target.store(payload_at(2 * lane), first);
        target.store(payload_at(2 * lane + 1), second);
        break;
      case kLl:
        target.store(payload_at(2 * lane), (first & ~kHalves) | flag);
        target.store(payload_at(2 * lane + 1), (first >> 32) | flag);
        target.store(payload_at(2 * (kLanes + lane)), (second & ~kHalves) | flag);
        target.store(payload_at(2 * (kLanes + lane) + 1), (second >> 32) | flag);
        break;
      case kLl128:
        target.store(payload_at(2 * lane), first);
        target.store(payload_at(2 * lane + 1), holds_flag(lane) ? round : second);
        break;
      default: break;
    }
  }
  if (protocol != kLl && protocol != kLl128) theirs.store(kFlagAt, round);
  gpu.doorbell().ring();
  return reaches(kAcknowledgeAt, round);
}

/// Waits until the flags of a round have arrived; false if they do not.
bool Side::arrived(u64 round) const {
  if (protocol == kLl) {
    const u64 flag = round << 32;
    for (u64 i = 0; i < 4 * kLanes; ++i)
      if (!wait([&] { return (mine.load(payload_at(i)) & kHalves) == flag; })) return false;
    return true;
  }
  if (protocol == kLl128) {
    for (u32 lane = 0; lane < kLanes; ++lane)
      if (holds_flag(lane) && !wait([&] { return mine.load(payload_at(2 * lane + 1)) == round; })) return false;
    return true;
  }
  return reaches(kFlagAt, round);
}

void check(Seen& seen, u64 at, u64 value, u64 wanted) {
  if (value == wanted)
    std::atomic_ref(seen.right) += 8;
  else
    note_wrong(seen, at, value);
}

bool Side::receive(u64 round, Seen& seen) const {
  if (!arrived(round)) return false;
  const Window& owner = protocol == kPull ? theirs : mine;
  for (u32 lane = 0; lane < kLanes && protocol != kFlag; ++lane) {
    const u64 at = first_at(round, lane);
    u64 first = 0;
    u64 second = pattern(key, at + 1);
    if (protocol == kLl) {
      first = (owner.load(payload_at(2 * lane)) & ~kHalves) | owner.load(payload_at(2 * lane + 1)) << 32;
      const u64 low = payload_at(2 * (kLanes + lane));
      second = (owner.load(low) & ~kHalves) | owner.load(low + 8) << 32;
    } else {
      first = owner.load(payload_at(2 * lane));
      if (protocol != kLl128 || !holds_flag(lane)) second = owner.load(payload_at(2 * lane + 1));
    }
    check(seen, 8 * at, first, pattern(key, at));
    check(seen, 8 * at + 8, second, pattern(key, at + 1));
  }
  theirs.store(kAcknowledgeAt, round);
  gpu.doorbell().ring();
  return true;
}

/// One side of an all-reduce: what every block does, done for all of them.
struct Reducing {
  Operation& gpu;
  Window here;
  Window there;
  u64 replay;
  u64 limit_ns;

  /// `flags`: where the flags of all blocks are in Reduce.
  bool meet(u64 flags) {
    for (u64 block = 0; block < kReduceBlocks; ++block) there.store(flags + 8 * block, replay);
    gpu.doorbell().ring();
    for (u64 block = 0; block < kReduceBlocks; ++block)
      if (!wait_until(gpu, limit_ns, [&] { return here.load(flags + 8 * block) >= replay; })) return false;
    return true;
  }
};

}  // namespace

void all_reduce(Operation& gpu, u64 theirs_at, u64 there_at, u64 mine_at, u64 here_at, u64 sum_at, u64 words, u64 key,
                u64 peer_key, u64 limit_ns, u64 seen_at) {
  Reduce& state = *gpu.object<Reduce>(here_at);
  if (state.stopped != 0) return;
  const u64 replay = state.replays[0] + 1;
  std::vector<u64> own(words);
  for (u64 i = 0; i < words; ++i) own[i] = reduce_word(key, replay, words, i);
  gpu.open(mine_at, 8 * words, Use::both).write(0, own.data(), 8 * words);
  Reducing side{gpu, gpu.open(here_at, sizeof(Reduce), Use::both), gpu.open(there_at, sizeof(Reduce), Use::store),
                replay, gpu.patience() * limit_ns};
  const bool begun = side.meet(offsetof(Reduce, begun));
  Window sum = gpu.open(sum_at, 8 * words, Use::both);
  std::vector<u64> added(words);
  int peer = gpu.device();
  if (begun) {
    const Window theirs = gpu.open(theirs_at, 8 * words, Use::load);
    peer = theirs.device();
    theirs.read(0, added.data(), 8 * words);
    std::ranges::transform(added, own, added.begin(), std::plus());
    sum.write(0, added.data(), 8 * words);
  }
  if (!begun || !side.meet(offsetof(Reduce, loaded))) {
    state.stopped = stopped_at(replay, begun);
    return;
  }
  Seen& seen = *gpu.object<Seen>(seen_at);
  for (u64 i = 0; i < words; ++i) {
    const u64 value = added[i] - own[i];
    if (value != reduce_word(peer_key, replay, words, i))
      note_wrong(seen, 8 * ((replay - 1) * words + i), value);
    else
      seen.right += 8;
  }
  std::ranges::fill(state.replays, replay);
  const Link& link = gpu.link(peer, gpu.device());
  const double taken_ns = 2 * gpu.link(gpu.device(), peer).latency_ns + 8 * static_cast<double>(words) / link.load_gb_s;
  if (replay > 1) state.total_ns += static_cast<u64>(taken_ns);
}

void note_wrong(Seen& seen, u64 at, u64 value) {
  ++std::atomic_ref(seen.wrong);
  const u32 place = std::atomic_ref(seen.samples).fetch_add(1);
  if (place >= kSamples) return;
  seen.at[place] = at;
  seen.value[place] = value;
}

void handshake(Operation& gpu, u64 mine_at, u64 theirs_at, u32 sends, u32 protocol, u64 rounds, u64 key, u64 limit_ns,
               u64 seen_at, u64 timing_at) {
  Window mine = gpu.open(mine_at, sizeof(Mailbox), Use::both);
  const bool reads = protocol == kPull && sends == 0;
  Window theirs = gpu.open(theirs_at, sizeof(Mailbox), reads ? Use::both : Use::store);
  Seen& seen = *gpu.object<Seen>(seen_at);
  const Side side{gpu, mine, theirs, protocol, key, gpu.patience() * limit_ns};
  u64 round = 1;
  while (round <= rounds && (sends != 0 ? side.send(round) : side.receive(round, seen))) ++round;
  const int peer = theirs.device();
  const bool local = peer == gpu.device() || peer == kHost;
  const double round_ns =
      local ? 2 * kLocalLatencyNs : gpu.link(gpu.device(), peer).latency_ns + gpu.link(peer, gpu.device()).latency_ns;
  // as on a GPU, the clock starts when the first round has ended
  constexpr u64 kStart = 1'000'000'000;
  const u64 timed = std::max<u64>(round, 2) - 2;
  *gpu.object<Timing>(timing_at) = {round > 1 ? kStart : 0,
                                    kStart + static_cast<u64>(round_ns * static_cast<double>(timed)), round - 1};
  if (round <= rounds) ++std::atomic_ref(seen.timeouts);
}

}  // namespace p2pd::sim
