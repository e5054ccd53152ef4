// SPDX-License-Identifier: MIT
// Semantics of each kernel of probes/bench/device/kernels.cu, and its cost in virtual time. Threads of a grid that do
// not communicate are a loop here; a change of the kernels must be made in both places.
#include "tests/sim/libcuda/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "probes/bench/device/pattern.hpp"

namespace p2pd::sim {

using namespace bench;
using namespace bench::cuda;

namespace {

/// From the start of a strip to the end of its last slot and `guard` bytes more, in whole words.
u64 strip_bytes(const Slots& slots, u32 rows, u64 guard) {
  u64 end = 0;
  for (u32 row = 0; row < rows; ++row) end = std::max(end, slots.slot[row].begin + slots.slot[row].bytes + guard + 7);
  return end / 8 * 8;
}

u64 payload_bytes(const Slots& slots, u32 rows) {
  u64 bytes = 0;
  for (u32 row = 0; row < rows; ++row) bytes += slots.slot[row].bytes;
  return bytes;
}

u32 rows_of(const Grid& grid) {
  if (grid.rows > kMostSlots) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  return grid.rows;
}

void fill(Operation& gpu, u64 to, u64 words, u64 key) {
  Window window = gpu.open(to, 8 * words, Use::store);
  for (u64 i = 0; i < words; ++i) {
    const u64 value = pattern(key, i);
    window.write(8 * i, &value, sizeof(value));
  }
}
Cost fill_cost(const Prices& prices, u64 to, u64 words, u64) { return prices.touch(to, 8 * words, Engine::store); }

void verify(Operation& gpu, u64 base, Slots slots, u64 key, u64 poison, u32, u64 seen_at) {
  const u32 rows = rows_of(gpu.grid);
  const Window window = gpu.open(base, strip_bytes(slots, rows, slots.guard), Use::load);
  Seen* const seen = gpu.object<Seen>(seen_at);
  u64 right = 0;
  for (u32 row = 0; row < rows; ++row) {
    const Slot slot = slots.slot[row];
    const u64 end = slot.begin + slot.bytes;
    for (u64 i = (slot.begin - slots.guard) / 8; i < (end + slots.guard + 7) / 8; ++i) {
      const u64 bits = payload_bits(8 * i, slot.begin, end);
      if (slots.guard == 0 && bits == 0) continue;
      const u64 care = slots.guard == 0 ? bits : ~0ULL;
      u64 value = 0;
      window.read(8 * i, &value, sizeof(value));
      const u64 wanted = (pattern(key, i) & bits) | (poison & ~bits);
      if (((value ^ wanted) & care) != 0)
        note_wrong(*seen, 8 * i, value);
      else
        right += static_cast<u64>(std::popcount(bits)) / 8;
    }
  }
  std::atomic_ref(seen->right) += right;
}
Cost verify_cost(const Prices& prices, u64 base, Slots slots, u64, u64, u32, u64) {
  return prices.touch(base, payload_bytes(slots, std::min(prices.grid.rows, kMostSlots)), Engine::load);
}

void store(Operation& gpu, u64 base, Slots slots, u64 key, u32 width, StoreFault fault) {
  const u32 rows = rows_of(gpu.grid);
  if (width == 0 || width > 16) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  Window window = gpu.open(base, strip_bytes(slots, rows, 0), Use::store);
  for (u32 row = 0; row < rows; ++row) {
    const Slot slot = slots.slot[row];
    for (u64 unit = 0; unit < slot.bytes / width; ++unit) {
      const u64 at = slot.begin + unit * width;
      if (at == fault.skip_at) continue;
      const u64 word = pattern(key, (at / 8) & fault.wrap);
      const u64 line[2] = {width < 8 ? word >> (8 * (at % 8)) : word, pattern(key, (at / 8 + 1) & fault.wrap)};
      window.write(at, line, width);
    }
  }
}
Cost store_cost(const Prices& prices, u64 base, Slots slots, u64, u32, StoreFault) {
  return prices.touch(base, payload_bytes(slots, std::min(prices.grid.rows, kMostSlots)), Engine::store);
}

void copy(Operation& gpu, u64 to, u64 from, u64 count) {
  const u64 bytes = 16 * count;
  Window target = gpu.open(to, bytes, Use::store);
  const Window source = gpu.open(from, bytes, Use::load);
  std::vector<char> piece(std::min<u64>(bytes, 256U << 10));
  for (u64 at = 0; at < bytes; at += piece.size()) {
    const u64 part = std::min<u64>(piece.size(), bytes - at);
    source.read(at, piece.data(), part);
    target.write(at, piece.data(), part);
  }
}
Cost copy_cost(const Prices& prices, u64 to, u64 from, u64 count) {
  const bool stores = prices.owner(to) != prices.device;
  return prices.touch(stores ? to : from, 16 * count, stores ? Engine::store : Engine::load);
}

void chain(Operation& gpu, u64 base, u64 stride, u64 count) {
  Window window = gpu.open(base, count == 0 ? 0 : (count - 1) * stride + 8, Use::store);
  for (u64 i = 0; i < count; ++i) {
    const u64 next = base + ((i + 1) % count) * stride;
    window.write(i * stride, &next, sizeof(next));
  }
}
Cost chain_cost(const Prices& prices, u64 base, u64, u64 count) { return prices.touch(base, 8 * count, Engine::store); }

void chase(Operation& gpu, u64 start, u64 loads, u32 target, u64 out) {
  const Window window = gpu.open(start, sizeof(u64), Use::load);
  Window times = gpu.open(out, 8ULL * gpu.grid.blocks, Use::store);
  const u64 end = start + window.left();
  const auto follow = [&](u64& at) {
    if (at < start || at > end - sizeof(u64)) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
    window.read(at - start, &at, sizeof(at));
  };
  const int owner = window.device();
  const double latency_ns = owner == gpu.device() ? kLocalLatencyNs : gpu.link(owner, gpu.device()).latency_ns;
  if (target >= gpu.grid.blocks) return;
  u64 at = start;
  for (u64 i = 0; i < loads; ++i) follow(at);
  const u64 taken_ns = static_cast<u64>(latency_ns * static_cast<double>(loads));
  times.write(8ULL * target, &taken_ns, sizeof(taken_ns));
}
Cost chase_cost(const Prices& prices, u64 start, u64 loads, u32, u64) { return prices.trips(start, loads); }

Cost handshake_cost(const Prices& prices, u64, u64 theirs, u32, u32, u64 rounds, u64, u64, u64, u64) {
  return prices.trips(theirs, 2 * rounds);
}

Cost all_reduce_cost(const Prices& prices, u64 theirs, u64, u64, u64, u64, u64 words, u64, u64, u64, u64) {
  Cost cost = prices.touch(theirs, 8 * words, Engine::load);
  cost.delay_ns += prices.trips(theirs, 2).delay_ns;
  return cost;
}

void tag(Operation& gpu, u64 base, u64 pages, u64 page_bytes, u64 key) {
  if (pages == 0) return;
  Window window = gpu.open(base, (pages - 1) * page_bytes + 16, Use::store);
  for (u64 i = 0; i < pages; ++i) {
    const u64 line[2] = {pattern(key, 2 * i), pattern(key, 2 * i + 1)};
    window.write(i * page_bytes, line, sizeof(line));
  }
}
Cost tag_cost(const Prices& prices, u64 base, u64 pages, u64, u64) {
  return prices.touch(base, 16 * pages, Engine::store);
}

void check_tags(Operation& gpu, u64 base, u64 pages, u64 page_bytes, u64 key, u64 seen_at) {
  if (pages == 0) return;
  const Window window = gpu.open(base, (pages - 1) * page_bytes + 16, Use::load);
  Seen* const seen = gpu.object<Seen>(seen_at);
  for (u64 i = 0; i < pages; ++i) {
    u64 line[2];
    window.read(i * page_bytes, line, sizeof(line));
    if (line[0] == pattern(key, 2 * i) && line[1] == pattern(key, 2 * i + 1))
      std::atomic_ref(seen->right) += page_bytes;
    else
      note_wrong(*seen, i * page_bytes, line[0] != pattern(key, 2 * i) ? line[0] : line[1]);
  }
}
Cost check_tags_cost(const Prices& prices, u64 base, u64 pages, u64, u64, u64) {
  return prices.touch(base, 16 * pages, Engine::load);
}

void contend(Operation& gpu, u64 sum_at, u64 next_ticket_at, u64 tickets_at, u64 each) {
  const Window owner = gpu.open(sum_at, sizeof(u64), Use::store);
  const std::atomic_ref sum(*gpu.object<u64>(sum_at));
  const std::atomic_ref next_ticket(*gpu.object<u64>(next_ticket_at));
  Window tickets = gpu.open(tickets_at, 8 * gpu.grid.all() * each, Use::store);
  if (gpu.atomics(Wrong::atomics_fault, owner)) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  const bool loses = gpu.atomics(Wrong::atomics_wrong, owner);
  for (u64 turn = 0; turn < gpu.grid.all() * each; ++turn) {
    const bool lost = owner.lost() || (loses && turn % 3 == 2);
    const u64 ticket = owner.lost() ? ~0ULL : lost ? next_ticket.load() : next_ticket.fetch_add(1);
    tickets.write(8 * turn, &ticket, sizeof(ticket));
    if (!lost) sum += turn % each + 1;
  }
}
Cost contend_cost(const Prices& prices, u64 sum, u64, u64, u64 each) { return prices.trips(sum, 3 * each); }

template <class... Arguments, std::size_t... I>
Launch bound(void (*body)(Operation&, Arguments...), Cost (*cost)(const Prices&, Arguments...), const Prices& prices,
             void** parameters, std::index_sequence<I...>) {
  std::tuple<Arguments...> arguments;
  (std::memcpy(&std::get<I>(arguments), parameters[I], sizeof(Arguments)), ...);
  return {std::apply(cost, std::tuple_cat(std::tie(prices), arguments)),
          [body, arguments](Operation& gpu) { std::apply(body, std::tuple_cat(std::tie(gpu), arguments)); }};
}

template <class... Arguments>
Launch bound(void (*body)(Operation&, Arguments...), Cost (*cost)(const Prices&, Arguments...), const Prices& prices,
             void** parameters) {
  return bound(body, cost, prices, parameters, std::index_sequence_for<Arguments...>());
}

template <auto Body, auto CostOf>
Launch prepare(const Prices& prices, void** parameters) {
  return bound(Body, CostOf, prices, parameters);
}

constexpr Kernel kKernels[] = {
    {"fill", prepare<fill, fill_cost>},
    {"verify", prepare<verify, verify_cost>},
    {"store", prepare<store, store_cost>},
    {"copy", prepare<copy, copy_cost>},
    {"chain", prepare<chain, chain_cost>},
    {"chase", prepare<chase, chase_cost>},
    {"handshake", prepare<handshake, handshake_cost>},
    {"tag", prepare<tag, tag_cost>},
    {"check_tags", prepare<check_tags, check_tags_cost>},
    {"contend", prepare<contend, contend_cost>},
    {"all_reduce", prepare<all_reduce, all_reduce_cost>},
};

}  // namespace

int Prices::owner(u64 address) const {
  const auto range = simulation.space.find(address);
  return range && range->device != kHost ? range->device : device;  // what is not there traps when it runs
}

Cost Prices::touch(u64 address, u64 bytes, Engine engine) const {
  const int peer = owner(address);
  return engine == Engine::load ? price(simulation.machine, peer, device, bytes, engine)
                                : price(simulation.machine, device, peer, bytes, engine);
}

Cost Prices::trips(u64 address, u64 times) const {
  const int peer = owner(address);
  const double trip_ns = peer == device ? kLocalLatencyNs : simulation.machine.link_of(peer, device).latency_ns;
  Cost cost;
  cost.delay_ns = trip_ns * static_cast<double>(times);
  return cost;
}

const Kernel* kernel(std::string_view name) {
  const auto found = std::ranges::find(kKernels, name, &Kernel::name);
  return found == std::end(kKernels) ? nullptr : found;
}

}  // namespace p2pd::sim
