// SPDX-License-Identifier: MIT
// Device functions of kernels.cu: ordered loads and stores, wrong words, and the rounds of a handshake.
#pragma once

#include "probes/bench/device/pattern.hpp"

namespace p2pd::bench {

__device__ inline u64 clock_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ inline u64 load(const u64* from, u32 how) {
  u64 value;
  if (how == kRelaxedSystem)
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  else
    value = *from;
  return value;
}

__device__ inline u64 load_acquire(const u64* from) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline void store_release(u64* to, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline void note_wrong(Seen* seen, u64 at, u64 value) {
  atomicAdd(&seen->wrong, 1ULL);
  const u32 place = atomicAdd(&seen->samples, 1U);
  if (place < kSamples) {
    seen->at[place] = at;
    seen->value[place] = value;
  }
}

__device__ inline u64 thread_index() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline u64 thread_count() { return static_cast<u64>(gridDim.x) * blockDim.x; }

/// Waits until *flag reaches `round`; returns false after the time limit.
__device__ inline bool reaches(const u64* flag, u64 round, u64 limit_ns) {
  const u64 begin = clock_ns();
  for (u32 spin = 0; load_acquire(flag) < round; ++spin)
    if (spin % 64 == 63 && clock_ns() - begin > limit_ns) return false;
  return true;
}

__device__ inline void check(Seen* seen, u64 at, u64 value, u64 wanted) {
  if (value == wanted)
    atomicAdd(&seen->right, 8ULL);
  else
    note_wrong(seen, at, value);
}

__device__ inline void put_ll(u64* line, u64 data, u64 round) {
  const u32 flag = static_cast<u32>(round);
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(line), "r"(static_cast<u32>(data)), "r"(flag),
               "r"(static_cast<u32>(data >> 32)), "r"(flag)
               : "memory");
}

__device__ inline bool get_ll(const u64* line, u64 round, u64 limit_ns, u64* data) {
  const u32 wanted = static_cast<u32>(round);
  const u64 begin = clock_ns();
  u32 low, low_flag, high, high_flag;
  for (u32 spin = 0;; ++spin) {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(low), "=r"(low_flag), "=r"(high), "=r"(high_flag)
                 : "l"(line)
                 : "memory");
    if (low_flag == wanted && high_flag == wanted) break;
    if (spin % 64 == 63 && clock_ns() - begin > limit_ns) return false;
  }
  *data = static_cast<u64>(high) << 32 | low;
  return true;
}

__device__ inline void put_two(u64* line, u64 first, u64 second) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(line), "l"(first), "l"(second) : "memory");
}

__device__ inline void get_two(const u64* line, u64* first, u64* second) {
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(*first), "=l"(*second) : "l"(line) : "memory");
}

/// True in all lanes if `in_time` is. What a lane acquired before is then visible to all of them: a vote alone orders
/// no memory.
__device__ inline bool all_in_time(bool in_time) {
  const bool all = __all_sync(~0U, in_time);
  __syncwarp();
  return all;
}

/// Sends a round: `mine` receives the acknowledgements, `theirs` the data. Each lane has two words per round.
__device__ inline bool send_round(Mailbox* mine, Mailbox* theirs, u64 round, u32 protocol, u64 key, u64 limit_ns) {
  const u32 lane = threadIdx.x;
  const u64 first = pattern(key, round * 2 * kLanes + 2 * lane);
  const u64 second = pattern(key, round * 2 * kLanes + 2 * lane + 1);
  switch (protocol) {
    case kPush:
      theirs->payload[2 * lane] = first;
      theirs->payload[2 * lane + 1] = second;
      break;
    case kPull:  // the data stays here, rewritten; the other GPU reads it here
      mine->payload[2 * lane] = first;
      mine->payload[2 * lane + 1] = second;
      break;
    case kLl:
      put_ll(theirs->payload + 2 * lane, first, round);
      put_ll(theirs->payload + 2 * (kLanes + lane), second, round);
      break;
    case kLl128: put_two(theirs->payload + 2 * lane, first, lane % 8 == 7 ? round : second); break;
    default: break;
  }
  __syncwarp();
  if (lane == 0 && protocol != kLl && protocol != kLl128) store_release(&theirs->flag, round);
  return all_in_time(lane != 0 || reaches(&mine->acknowledge, round, limit_ns));
}

/// Waits for a round and checks its data, in this same kernel.
__device__ inline bool receive_round(Mailbox* mine, Mailbox* theirs, u64 round, u32 protocol, u64 key, u64 limit_ns,
                                     Seen* seen) {
  const u32 lane = threadIdx.x;
  const u64 at = round * 2 * kLanes + 2 * lane;
  u64 first = pattern(key, at);
  u64 second = pattern(key, at + 1);
  bool in_time = true;
  if (protocol == kLl) {
    in_time = get_ll(mine->payload + 2 * lane, round, limit_ns, &first) &&
              get_ll(mine->payload + 2 * (kLanes + lane), round, limit_ns, &second);
  } else if (protocol == kLl128) {
    const u64 begin = clock_ns();
    for (u32 spin = 0;; ++spin) {  // eight lanes share a line; its flag is the last word
      get_two(mine->payload + 2 * lane, &first, &second);
      if (__all_sync(~0U, lane % 8 != 7 || second == round)) break;
      in_time = spin % 64 != 63 || clock_ns() - begin <= limit_ns;
      if (!__all_sync(~0U, in_time)) break;
    }
    if (lane % 8 == 7) second = pattern(key, at + 1);
  } else {
    in_time = lane != 0 || reaches(&mine->flag, round, limit_ns);
  }
  if (!all_in_time(in_time)) return false;
  const Mailbox* owner = protocol == kPull ? theirs : mine;
  if (protocol == kPush || protocol == kPull) {
    first = owner->payload[2 * lane];
    second = owner->payload[2 * lane + 1];
  }
  if (protocol != kFlag) {
    check(seen, 8 * at, first, pattern(key, at));
    check(seen, 8 * at + 8, second, pattern(key, at + 1));
  }
  __syncwarp();
  if (lane == 0) store_release(&theirs->acknowledge, round);
  return true;
}

}  // namespace p2pd::bench
