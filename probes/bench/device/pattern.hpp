// SPDX-License-Identifier: MIT
// Definitions that kernels and host share: the pattern of test data, and the types of kernel parameters. Plain C++ that
// nvcc compiles too, without includes that a GPU lacks.
#pragma once

#ifdef __CUDACC__
#define P2PD_BOTH __host__ __device__ inline
#else
#define P2PD_BOTH inline
#endif

namespace p2pd::bench {

using u64 = unsigned long long;  // 64 bits in CUDA, and on the host
using u32 = unsigned int;

/// Bijection of 64-bit words (splitmix64's finalizer): a wrong word reveals where it belongs.
P2PD_BOTH u64 mix64(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Inverse of mix64.
P2PD_BOTH u64 unmix64(u64 x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3ULL;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ULL;
  return x ^ (x >> 30) ^ (x >> 60);
}

/// Data word at `index` (8-byte words from the start of a strip) of the transfer with this key.
P2PD_BOTH u64 pattern(u64 key, u64 index) { return mix64(key ^ index); }

/// Bits of the word at byte `word` that are in the payload [begin, end).
P2PD_BOTH u64 payload_bits(u64 word, u64 begin, u64 end) {
  u64 bits = ~0ULL;
  if (word + 8 <= begin || word >= end) return 0;
  if (word < begin) bits &= ~0ULL << (8 * (begin - word));
  if (word + 8 > end) bits &= ~0ULL >> (8 * (word + 8 - end));
  return bits;
}

/// One transfer inside a strip: bytes [begin, begin + bytes).
struct Slot {
  u64 begin;
  u64 bytes;
};

constexpr u32 kMostSlots = 24;

/// Transfers of a strip, ascending, with guard bands of poison between them.
struct Slots {
  u32 count;
  u32 guard;  ///< bytes on each side of a slot that must keep their poison; a multiple of 8
  Slot slot[kMostSlots];
};

constexpr u32 kSamples = 16;

/// Result of a verifying kernel. Zeroed before.
struct Seen {
  u64 wrong;            ///< words that differ
  u64 right;            ///< payload bytes of correct words
  u32 samples;          ///< number of wrong words that asked for a place below; only kSamples are kept
  u32 timeouts;         ///< waits that reached their time limit
  u64 at[kSamples];     ///< byte offset of the word in the strip
  u64 value[kSamples];  ///< its value
};

/// Kind of load: the cached one of ordinary code, or one that must reach the owner.
enum Load : u32 { kPlain = 0, kRelaxedSystem = 1 };

/// Seeded fault in the store kernel, for tests: an omitted word, offsets that wrap.
struct StoreFault {
  u64 skip_at;  ///< byte offset of the omitted store; ~0: none
  u64 wrap;     ///< mask for the index of the data word that is stored; ~0: none
};

/// Protocols of handshakes between two kernels, one on each GPU.
enum Protocol : u32 {
  kFlag = 0,   ///< a flag in each direction: the latency of one store
  kPush = 1,   ///< data and flag into the other's memory, st.release.sys and ld.acquire.sys
  kPull = 2,   ///< data in the owner's memory, rewritten each round; the other GPU reads it there
  kLl = 3,     ///< NCCL's LL: 4 bytes of data and 4 of flag in each 8 bytes
  kLl128 = 4,  ///< NCCL's LL128: 120 bytes of data and 8 of flag in one line
};

constexpr u32 kLanes = 32;
constexpr u32 kMailBytes = 512;  ///< payload of one round: 16 bytes per lane

/// Destination of one direction of a handshake, in the memory of the GPU that waits; 128-byte lines apart.
struct Mailbox {
  u64 payload[2 * kMailBytes / 8];  ///< the second half has LL's flags
  u64 flag;
  u64 pad_flag[15];
  u64 acknowledge;
  u64 pad_acknowledge[15];
};

/// Duration of a handshake, by the clock of the GPU that ran it.
struct Timing {
  u64 start_ns;
  u64 end_ns;
  u64 rounds;  ///< completed rounds
};

constexpr u32 kReduceBlocks = 32;    ///< each waits for the peer's block of the same number alone
constexpr u32 kReduceThreads = 512;  ///< of a block

/// State of one GPU in an all-reduce of two, in its own memory; zeroed before the first replay. Replays count from 1.
struct Reduce {
  u64 begun[kReduceBlocks];    ///< by the peer's blocks: replay whose data the peer has written
  u64 loaded[kReduceBlocks];   ///< by the peer's blocks: replay whose data the peer has loaded
  u64 replays[kReduceBlocks];  ///< by the own blocks: completed replays
  u64 stopped;                 ///< 0, or stopped_at() of the first wait that reached its time limit
  u64 total_ns;                ///< time of all replays but the first, from the first flag to the last
};

/// Wait at which an all-reduce stopped: for the flag `begun` of a replay, or for its flag `loaded`. A higher one is
/// later.
P2PD_BOTH u64 stopped_at(u64 replay, bool loaded) { return 2 * replay + (loaded ? 1 : 0); }

/// Word at `index` of the data of a replay, in a buffer of `words`.
P2PD_BOTH u64 reduce_word(u64 key, u64 replay, u64 words, u64 index) {
  return pattern(key, (replay - 1) * words + index);
}

}  // namespace p2pd::bench
