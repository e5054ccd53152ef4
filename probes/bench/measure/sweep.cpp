// SPDX-License-Identifier: MIT
// Detects windows onto a GPU's memory that cover only part of it, or wrap around, by a unique tag in every page:
// nearly all free memory of each GPU is allocated, its neighbour writes the tags, and no GPU reads before all of them
// are written. First by stores, then by copies; each time the owner and the neighbour read back.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/arrivals.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kPage = 2ULL << 20;  // bytes
constexpr u64 kTag = 16;           // bytes, at the start of a page
constexpr u64 kLeastChunk = 64ULL << 20;
constexpr u64 kHeadroom = 256ULL << 20;    // minimum for the driver
constexpr u64 kLeastWindow = 64ULL << 20;  // smallest plausible window
constexpr int kOwnerShift = 56;            // in the number of a tag: owner, chunk, then two words per page
constexpr int kChunkShift = 36;

/// Memory of one GPU that is swept.
struct Swept {
  int owner = 0;
  int peer = 0;  ///< GPU that writes
  std::vector<Mapped> chunks;
  bool owner_saw_wrong = false;  ///< in this pass: results of other readers add nothing then

  u64 bytes() const { return start_of(chunks.size()); }
  /// Offset of a chunk, counted over all of them.
  u64 start_of(std::size_t chunk) const {
    u64 sum = 0;
    for (std::size_t i = 0; i < chunk; ++i) sum += chunks[i].bytes();
    return sum;
  }
};

struct Pass {
  std::string_view how;
  u64 key;
};

u64 chunk_key(u64 key, int owner, std::size_t chunk) {
  return key ^ static_cast<u64>(owner) << kOwnerShift ^ static_cast<u64>(chunk) << kChunkShift;
}

class Sweep {
 public:
  explicit Sweep(Bench& bench) : bench_(bench) {}

  /// Allocates the free memory of every GPU; a GPU that is left out gets a reason.
  Result<void> take_all() {
    for (int owner = 0; owner < bench_.count(); ++owner) {
      const Gpu& gpu = bench_.found.gpus[static_cast<std::size_t>(owner)];
      TRY(gpu.in_use ? leave_out(owner, "others compute on it") : take(owner));
    }
    return {};
  }

  Result<void> run() {
    for (const std::string_view how : {"stores", "copies"}) {
      passes_.push_back({how, mix64(bench_.keys.nonce() ^ mix64(passes_.size() + 1))});
      for (const Swept& swept : swept_) TRY(passes_.size() == 1 ? store(swept) : copy(swept));
      TRY(bench_.finish());  // all writes before any read
      for (const bool remote : {false, true}) TRY(check(remote));
    }
    return {};
  }

 private:
  Result<void> leave_out(int owner, std::string_view why) {
    std::string& reasons = bench_.found.not_run["sweep"];
    reasons += fmt::format("{}GPU {}: {}", reasons.empty() ? "" : "; ", owner, why);
    return {};
  }

  /// Next GPU that reaches this one's memory, -1 without any.
  int peer_of(int owner) const {
    for (int step = 1; step < bench_.count(); ++step) {
      const int peer = (owner + step) % bench_.count();
      if (is_measured(bench_.found, peer, owner) && can_send(bench_.pair(peer, owner))) return peer;
    }
    return -1;
  }

  /// Allocates chunks as large as the driver provides and maps, until almost nothing is left.
  Result<void> take(int number) {
    const OpenGpu& owner = bench_.gpu(number);
    Swept swept{number, peer_of(number), {}};
    if (swept.peer < 0) return leave_out(number, "no other GPU reaches it");
    if (!device_has(bench_.driver, owner.device(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
      return leave_out(number, "it has no virtual memory management");
    TRY(owner.use());
    std::size_t free = 0;
    std::size_t total = 0;
    CU(bench_.driver, cuMemGetInfo(&free, &total));
    const u64 headroom = std::max<u64>(kHeadroom, total / 100);
    u64 room = free > headroom ? free - headroom : 0;
    const std::vector<CUdevice> both = {owner.device(), bench_.gpu(swept.peer).device()};
    std::string why = "too little of its memory is free";
    for (u64 size = room; size >= kLeastChunk && room >= kLeastChunk;) {
      size = std::min(size, room) / kPage * kPage;
      Result<Mapped> memory = Mapped::create(bench_.driver, memory_of(owner.device()), size, both);
      if (memory) {
        room -= std::min(room, memory->bytes());
        swept.chunks.push_back(std::move(*memory));
      } else {
        why = memory.error().message;
        size /= 2;
      }
    }
    if (swept.chunks.empty()) return leave_out(number, why);
    swept_.push_back(std::move(swept));
    return {};
  }

  Result<void> store(const Swept& swept) const {
    const OpenGpu& peer = bench_.gpu(swept.peer);
    for (std::size_t i = 0; i < swept.chunks.size(); ++i) {
      const u64 pages = swept.chunks[i].bytes() / kPage;
      TRY(peer.launch(Kernel::tag, peer.wide(), peer.stream(), swept.chunks[i].address(), pages, kPage,
                      chunk_key(passes_.back().key, swept.owner, i)));
    }
    return {};
  }

  /// Copies the tags, which are adjacent in the peer's memory, each to its page.
  Result<void> copy(const Swept& swept) const {
    const OpenGpu& peer = bench_.gpu(swept.peer);
    for (std::size_t i = 0; i < swept.chunks.size(); ++i) {
      const u64 key = chunk_key(passes_.back().key, swept.owner, i);
      const u64 pages = std::min(swept.chunks[i].bytes() / kPage, peer.half() / kTag);
      TRY(peer.launch(Kernel::tag, peer.wide(), peer.stream(), peer.out(), pages, kTag, key));
      for (u64 page = 0; page < pages; ++page)
        CU(bench_.driver,
           cuMemcpyAsync(swept.chunks[i].address() + page * kPage, peer.out() + page * kTag, kTag, peer.stream()));
    }
    return {};
  }

  /// Checks all tags, read by the owners or, remotely, by the GPUs that wrote them.
  Result<void> check(bool remote) {
    TRY(bench_.forget());
    std::vector<std::vector<u32>> places;
    for (const Swept& swept : swept_) {
      OpenGpu& reader = bench_.gpu(remote ? swept.peer : swept.owner);
      std::vector<u32>& here = places.emplace_back();
      for (std::size_t i = 0; i < swept.chunks.size(); ++i) {
        const Mapped& chunk = swept.chunks[i];
        here.push_back(TRY(reader.new_seen()));
        TRY(reader.launch(Kernel::check_tags, reader.wide(), reader.stream(), chunk.address(), chunk.bytes() / kPage,
                          kPage, chunk_key(passes_.back().key, swept.owner, i), reader.seen_at(here.back())));
      }
    }
    const AllSeen seen = TRY(bench_.seen());
    for (std::size_t i = 0; i < swept_.size(); ++i) {
      const auto reader = static_cast<std::size_t>(remote ? swept_[i].peer : swept_[i].owner);
      std::vector<Seen> of_chunks;
      for (const u32 place : places[i]) of_chunks.push_back(seen[reader][place]);
      note(swept_[i], remote, of_chunks);
    }
    return {};
  }

  /// Records one result for all chunks; memory counts as swept if each of the checks found it right.
  void note(Swept& swept, bool remote, const std::vector<Seen>& of_chunks) {
    u64 right = 0;
    u64 words = 0;
    std::optional<Wrong> wrong;
    for (std::size_t i = 0; i < of_chunks.size(); ++i) {
      right += of_chunks[i].right;
      words += of_chunks[i].wrong;
      if (of_chunks[i].wrong > 0 && !wrong) wrong = explain_tag(swept, i, of_chunks[i], remote);
    }
    const std::string& uuid = bench_.found.gpus[static_cast<std::size_t>(swept.owner)].uuid;
    const auto [sum, first] = bench_.found.swept_bytes.try_emplace(uuid, right);
    sum->second = std::min<std::uint64_t>(sum->second, right);
    if (!remote) swept.owner_saw_wrong = wrong.has_value();
    if (!wrong || (remote && swept.owner_saw_wrong)) return;
    wrong->words = words;
    bench_.found.wrong.push_back(std::move(*wrong));
  }

  Wrong explain_tag(const Swept& swept, std::size_t chunk, const Seen& seen, bool remote) const {
    const auto* const lowest = std::min_element(seen.at, seen.at + std::min(seen.samples, kSamples));
    const u64 value = seen.value[lowest - seen.at];
    const auto [from, to] = remote ? std::pair(swept.owner, swept.peer) : std::pair(swept.peer, swept.owner);
    Wrong wrong = wrong_of("sweep", from, to, swept.bytes(), WrongKind::garbled,
                           fmt::format("written by {}, read by GPU {}", passes_.back().how, to));
    wrong.offset = swept.start_of(chunk) + *lowest;
    wrong.seen = fmt::format("{:#018x}", value);
    wrong.wanted =
        fmt::format("{:#018x}", pattern(chunk_key(passes_.back().key, swept.owner, chunk), 2 * (*lowest / kPage)));
    if (value == 0) wrong.kind = WrongKind::dropped;
    if (value == ~0ULL) wrong.kind = WrongKind::unsupported_request;
    for (const Pass& pass : passes_) tell_origin(swept, pass, value, wrong);
    return wrong;
  }

  /// Reports the origin of a value that is a tag of this pass.
  void tell_origin(const Swept& here, const Pass& pass, u64 value, Wrong& wrong) const {
    const u64 number = unmix64(value) ^ pass.key;
    const std::size_t chunk = number >> kChunkShift & ((1ULL << (kOwnerShift - kChunkShift)) - 1);
    const u64 page = (number & ((1ULL << kChunkShift) - 1)) / 2;
    for (const Swept& swept : swept_) {
      if (number >> kOwnerShift != static_cast<u64>(swept.owner) || chunk >= swept.chunks.size()) continue;
      if (page >= swept.chunks[chunk].bytes() / kPage) continue;
      const u64 offset = swept.start_of(chunk) + page * kPage;
      const u64 apart = offset ^ wrong.offset;
      const u64 window = apart & (~apart + 1);  // the lowest bit: no wider window would map both to one place
      const bool own = swept.owner == here.owner;
      wrong.kind = !own ? WrongKind::misroute : pass.key != passes_.back().key ? WrongKind::stale : WrongKind::alias;
      wrong.detail += fmt::format("; offset {} MiB holds the tag of offset {} MiB", wrong.offset >> 20, offset >> 20);
      if (!own) wrong.detail += fmt::format(" of GPU {}", swept.owner);
      if (wrong.kind == WrongKind::alias && window >= kLeastWindow)
        wrong.detail += fmt::format(", as a window of {} MiB would make it", window >> 20);
    }
  }

  Bench& bench_;
  std::vector<Swept> swept_;
  std::vector<Pass> passes_;
};

}  // namespace

Result<void> sweep_memory(Bench& bench) {
  if (bench.count() < 2) {
    bench.found.not_run["sweep"] = "it takes two GPUs";
    return {};
  }
  Sweep sweep(bench);
  TRY(sweep.take_all());
  TRY_IN("sweep", sweep.run());
  return {};
}

}  // namespace p2pd::bench
