// SPDX-License-Identifier: MIT
// Kernels of p2p-bench. Checked in as PTX (kernels.ptx, made by make-ptx), so that neither building nor running
// needs a toolkit. On the host, gpu.cpp names them; pattern.hpp has the definitions that both sides share.
#include "probes/bench/device/exchange.cuh"

namespace p2pd::bench {

/// Writes the pattern of `key` into `words` words of local memory.
extern "C" __global__ void fill(u64* to, u64 words, u64 key) {
  for (u64 i = thread_index(); i < words; i += thread_count()) to[i] = pattern(key, i);
}

/// Compares every word of every slot and its guard bands with the expected value. blockIdx.y is the slot.
/// `base` may be peer memory: then this is a test of loads.
extern "C" __global__ void verify(const u64* base, Slots slots, u64 key, u64 poison, u32 how, Seen* seen) {
  const Slot slot = slots.slot[blockIdx.y];
  const u64 end = slot.begin + slot.bytes;
  const u64 first = (slot.begin - slots.guard) / 8;
  const u64 last = (end + slots.guard + 7) / 8;
  u64 right = 0;
  for (u64 i = first + thread_index(); i < last; i += thread_count()) {
    const u64 bits = payload_bits(8 * i, slot.begin, end);
    if (slots.guard == 0 && bits == 0) continue;
    const u64 care = slots.guard == 0 ? bits : ~0ULL;
    const u64 value = load(base + i, how);
    const u64 wanted = (pattern(key, i) & bits) | (poison & ~bits);
    if ((value ^ wanted) & care)
      note_wrong(seen, 8 * i, value);
    else
      right += __popcll(bits) / 8;
  }
  for (u32 lane = 16; lane > 0; lane /= 2) right += __shfl_down_sync(~0U, right, lane);
  if (threadIdx.x % 32 == 0 && right > 0) atomicAdd(&seen->right, right);
}

/// Stores the payload of every slot, `width` bytes (1, 2, 4, 8, 16) at a time: the test of stores to peer memory.
extern "C" __global__ void store(char* base, Slots slots, u64 key, u32 width, StoreFault fault) {
  const Slot slot = slots.slot[blockIdx.y];
  for (u64 unit = thread_index(); unit < slot.bytes / width; unit += thread_count()) {
    const u64 at = slot.begin + unit * width;
    if (at == fault.skip_at) continue;
    const u64 word = pattern(key, (at / 8) & fault.wrap);
    const u64 value = word >> (8 * (at % 8));
    char* to = base + at;
    switch (width) {
      case 1: *reinterpret_cast<volatile unsigned char*>(to) = static_cast<unsigned char>(value); break;
      case 2: *reinterpret_cast<volatile unsigned short*>(to) = static_cast<unsigned short>(value); break;
      case 4: *reinterpret_cast<volatile u32*>(to) = static_cast<u32>(value); break;
      case 8: *reinterpret_cast<volatile u64*>(to) = word; break;
      default:
        asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(word),
                     "l"(pattern(key, (at / 8 + 1) & fault.wrap))
                     : "memory");
    }
  }
  __threadfence_system();
}

/// Copies 16-byte words: with `to` in peer memory a test of store rate, with `from` there one of load rate.
extern "C" __global__ void copy(uint4* to, const uint4* from, u64 count) {
  constexpr u32 kDeep = 4;  // independent loads in flight
  const u64 step = thread_count();
  u64 i = thread_index();
  for (; i + (kDeep - 1) * step < count; i += kDeep * step) {
    uint4 value[kDeep];
#pragma unroll
    for (u32 k = 0; k < kDeep; ++k) value[k] = from[i + k * step];
#pragma unroll
    for (u32 k = 0; k < kDeep; ++k) to[i + k * step] = value[k];
  }
  for (; i < count; i += step) to[i] = from[i];
}

/// Makes a ring of pointers in local memory, `stride` bytes apart, each to the next.
extern "C" __global__ void chain(char* base, u64 stride, u64 count) {
  for (u64 i = thread_index(); i < count; i += thread_count())
    *reinterpret_cast<char**>(base + i * stride) = base + ((i + 1) % count) * stride;
}

/// Follows the ring: each load waits for the one before it. One thread per block; of all blocks, which spread over the
/// multiprocessors, only `target` runs, so that no other traffic disturbs it. out[target] is nanoseconds.
extern "C" __global__ void chase(char* const* start, u64 loads, u32 target, u64* out) {
  if (blockIdx.x != target) return;
  char* const* at = start;
  const u64 begin = clock_ns();
  for (u64 i = 0; i < loads; ++i) {
    char* next;
    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    at = reinterpret_cast<char* const*>(next);
  }
  out[blockIdx.x] = clock_ns() - begin + (at == nullptr ? 1 : 0);
}

// ---- handshakes ----------------------------------------------------------------------------------------------------

/// One warp of a handshake; the other GPU runs its counterpart at the same time. `sends`: this GPU sends.
extern "C" __global__ void handshake(Mailbox* mine, Mailbox* theirs, u32 sends, u32 protocol, u64 rounds, u64 key,
                                     u64 limit_ns, Seen* seen, Timing* timing) {
  u64 begin = 0;
  u64 round = 1;
  for (; round <= rounds; ++round) {
    const bool in_time = sends != 0 ? send_round(mine, theirs, round, protocol, key, limit_ns)
                                    : receive_round(mine, theirs, round, protocol, key, limit_ns, seen);
    if (!in_time) break;
    if (round == 1) begin = clock_ns();  // the first round waits for the other kernel to start
  }
  if (threadIdx.x != 0) return;
  *timing = {begin, clock_ns(), round - 1};
  if (round <= rounds) atomicAdd(&seen->timeouts, 1U);
}

// ---- one-shot all-reduce -------------------------------------------------------------------------------------------

/// Tells the peer's block that this one has got here, and waits for it: all threads of the block. False after the time
/// limit, in every thread.
__device__ inline bool meet(u64* theirs, const u64* mine, u64 replay, u64 limit_ns, bool* met) {
  __syncthreads();
  if (threadIdx.x == 0) {
    store_release(theirs, replay);
    *met = reaches(mine, replay, limit_ns);
  }
  __syncthreads();
  return *met;
}

/// Checks the sums of a replay, which all threads have completed. Seen::at counts from the first replay; Seen::value is
/// what the peer's word seems to be.
__device__ inline void check_sums(const ulonglong2* sum, u64 words, u64 replay, u64 key, u64 peer_key, Seen* seen) {
  u64 right = 0;
  for (u64 i = thread_index(); i < words / 2; i += thread_count()) {
    const ulonglong2 pair = sum[i];
    for (u32 half = 0; half < 2; ++half) {
      const u64 at = 2 * i + half;
      const u64 theirs = (half == 0 ? pair.x : pair.y) - reduce_word(key, replay, words, at);
      if (theirs == reduce_word(peer_key, replay, words, at))
        right += 8;
      else
        note_wrong(seen, 8 * ((replay - 1) * words + at), theirs);
    }
  }
  for (u32 lane = 16; lane > 0; lane /= 2) right += __shfl_down_sync(~0U, right, lane);
  if (threadIdx.x % 32 == 0 && right > 0) atomicAdd(&seen->right, right);
}

/// One all-reduce of two GPUs; the other GPU runs its counterpart at the same time. The replay counter is in `here`, so
/// that a CUDA graph can repeat the launch: each replay has other data. After a wait that reached the time limit, later
/// replays do nothing.
extern "C" __global__ void all_reduce(const ulonglong2* theirs, Reduce* there, ulonglong2* mine, Reduce* here,
                                      ulonglong2* sum, u64 words, u64 key, u64 peer_key, u64 limit_ns, Seen* seen) {
  __shared__ bool going;
  const u32 block = blockIdx.x;
  const u64 replay = here->replays[block] + 1;
  if (threadIdx.x == 0) going = *reinterpret_cast<volatile u64*>(&here->stopped) == 0;
  __syncthreads();
  if (!going) return;
  for (u64 i = thread_index(); i < words / 2; i += thread_count())
    mine[i] = {reduce_word(key, replay, words, 2 * i), reduce_word(key, replay, words, 2 * i + 1)};
  const u64 begin = clock_ns();
  const bool begun = meet(&there->begun[block], &here->begun[block], replay, limit_ns, &going);
  if (begun) {
    for (u64 i = thread_index(); i < words / 2; i += thread_count()) {
      const ulonglong2 a = mine[i];
      const ulonglong2 b = theirs[i];
      sum[i] = {a.x + b.x, a.y + b.y};
    }
    meet(&there->loaded[block], &here->loaded[block], replay, limit_ns, &going);
  }
  const u64 taken = clock_ns() - begin;
  if (!going) {
    if (threadIdx.x == 0) atomicCAS(&here->stopped, 0ULL, stopped_at(replay, begun));
    return;
  }
  check_sums(sum, words, replay, key, peer_key, seen);
  if (threadIdx.x != 0) return;
  here->replays[block] = replay;
  if (block == 0 && replay > 1) here->total_ns += taken;  // the first waits for the other kernel to start
}

// ---- all memory, and atomics ----------------------------------------------------------------------------------------

/// Writes a unique tag into the start of every page.
extern "C" __global__ void tag(char* base, u64 pages, u64 page_bytes, u64 key) {
  for (u64 i = thread_index(); i < pages; i += thread_count()) {
    u64* to = reinterpret_cast<u64*>(base + i * page_bytes);
    put_two(to, pattern(key, 2 * i), pattern(key, 2 * i + 1));
  }
  __threadfence_system();
}

/// Compares the tags. Seen::at is the byte offset of the page.
extern "C" __global__ void check_tags(const char* base, u64 pages, u64 page_bytes, u64 key, Seen* seen) {
  for (u64 i = thread_index(); i < pages; i += thread_count()) {
    u64 first, second;
    get_two(reinterpret_cast<const u64*>(base + i * page_bytes), &first, &second);
    if (first == pattern(key, 2 * i) && second == pattern(key, 2 * i + 1))
      atomicAdd(&seen->right, page_bytes);
    else
      note_wrong(seen, i * page_bytes, first != pattern(key, 2 * i) ? first : second);
  }
}

/// Adds to a sum by compare-and-swap and draws tickets by addition, both in one owner's memory; tickets are kept
/// locally.
extern "C" __global__ void contend(u64* sum, u64* next_ticket, u64* tickets, u64 each) {
  for (u64 i = 0; i < each; ++i) {
    tickets[thread_index() * each + i] = atomicAdd_system(next_ticket, 1ULL);
    u64 old = *reinterpret_cast<volatile u64*>(sum);
    for (u64 assumed = ~old; assumed != old;) {
      assumed = old;
      old = atomicCAS_system(sum, assumed, assumed + i + 1);
    }
  }
}

}  // namespace p2pd::bench
