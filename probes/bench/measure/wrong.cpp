// SPDX-License-Identifier: MIT
#include "probes/bench/measure/wrong.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace p2pd::bench {
namespace {

constexpr u64 kOnes = ~0ULL;

/// Bits of the word at byte `at` that belong to a slot, and that slot; the nearest one for a guard.
std::pair<u64, Slot> place(const Slots& slots, u64 at) {
  Slot nearest{};
  for (u32 i = 0; i < slots.count; ++i) {
    const Slot& slot = slots.slot[i];
    if (at + 8 + slots.guard >= slot.begin) nearest = slot;
    const u64 bits = payload_bits(at, slot.begin, slot.begin + slot.bytes);
    if (bits != 0) return {bits, slot};
  }
  return {0, nearest};
}

u64 wanted_at(const Transfer& transfer, u64 at, u64 bits) {
  return (pattern(transfer.key, at / 8) & bits) | (transfer.poison & ~bits);
}

/// Transfer with this data word, and the byte offset where it belongs; nothing if no transfer has it.
std::optional<std::pair<const Transfer*, u64>> origin(u64 value, const std::vector<Transfer>& known) {
  constexpr u64 kMostWords = 1ULL << 34;  // a key is 64 random bits: an index this small is no coincidence
  const u64 mixed = unmix64(value);
  const auto found =
      std::find_if(known.rbegin(), known.rend(), [&](const Transfer& t) { return (mixed ^ t.key) < kMostWords; });
  if (found == known.rend()) return std::nullopt;
  return std::pair(&*found, 8 * (mixed ^ found->key));
}

void tell_origin(const Transfer& own, const Slot& slot, const Transfer& other, u64 at, Wrong& wrong) {
  if (other.key == own.key) {
    const Slot home = place(own.slots, at).second;
    wrong.kind = WrongKind::alias;
    wrong.detail = fmt::format("holds the data of offset {}", at - std::min(at, home.begin));
    if (home.begin != slot.begin) wrong.detail += fmt::format(" of the transfer of {} bytes", home.bytes);
  } else if (other.from == own.from && other.to == own.to) {
    wrong.kind = WrongKind::stale;
    wrong.detail = fmt::format("holds the data of an earlier transfer ({})", other.test);
  } else {
    wrong.kind = WrongKind::misroute;
    wrong.detail = fmt::format("holds what GPU {} sent to GPU {} ({})", other.from, other.to, other.test);
  }
}

}  // namespace

Transfer Keys::next(std::string_view test, int from, int to, const Slots& slots) {
  const u64 number = drawn_++;
  const u64 place = (static_cast<u64>(from) << 8 | static_cast<u64>(to)) << 32 | number;
  const u64 half = (mix64(nonce_ ^ ~number) & 0x7fffffffULL) | 1ULL;  // never zero, never all ones
  Transfer transfer{test, from, to, mix64(mix64(nonce_ + number) ^ place), half << 32 | half, slots};
  known_.push_back(transfer);
  return transfer;
}

Wrong wrong_of(std::string_view test, int from, int to, u64 bytes, WrongKind kind, std::string detail) {
  return {std::string(test), from, to, bytes, 0, 0, kind, std::move(detail), "", ""};
}

Wrong explain(const Transfer& transfer, u64 at, u64 value, const std::vector<Transfer>& known) {
  const auto [bits, slot] = place(transfer.slots, at);
  const u64 wanted = wanted_at(transfer, at, bits);
  const u64 wrong_byte = at + static_cast<u64>(std::countr_zero(value ^ wanted)) / 8;
  Wrong wrong = wrong_of(transfer.test, transfer.from, transfer.to, slot.bytes, WrongKind::garbled, "");
  wrong.offset = wrong_byte > slot.begin ? wrong_byte - slot.begin : 0;
  wrong.words = 1;
  wrong.seen = fmt::format("{:#018x}", value);
  wrong.wanted = fmt::format("{:#018x}", wanted);
  const auto source = origin(value, known);
  if (((value ^ wanted) & bits) == 0) {
    wrong.kind = WrongKind::guard;
    wrong.detail = "written outside of the transfer";
  } else if (((value ^ transfer.poison) & bits) == 0) {
    wrong.kind = WrongKind::lost;
  } else if ((value & bits) == 0) {
    wrong.kind = WrongKind::dropped;
  } else if ((~value & bits) == 0) {
    wrong.kind = WrongKind::unsupported_request;
  } else if (source && bits == kOnes) {
    tell_origin(transfer, slot, *source->first, source->second, wrong);
  }
  return wrong;
}

Wrong explain(const Transfer& transfer, const Seen& seen, const std::vector<Transfer>& known) {
  const u32 kept = std::min(seen.samples, kSamples);
  u32 best = 0;
  const auto whole = [&](u32 i) { return place(transfer.slots, seen.at[i]).first == kOnes; };
  for (u32 i = 1; i < kept; ++i)  // a whole word is better evidence than the ends of a transfer, and the first one best
    if (whole(i) != whole(best) ? whole(i) : seen.at[i] < seen.at[best]) best = i;
  Wrong wrong = explain(transfer, seen.at[best], seen.value[best], known);
  wrong.words = seen.wrong;
  const u64 slot = place(transfer.slots, seen.at[best]).second.begin;
  for (u32 i = 0; i < kept; ++i)
    if (place(transfer.slots, seen.at[i]).second.begin != slot) wrong.bytes = payload_bytes(transfer.slots);
  return wrong;
}

u64 payload_bytes(const Slots& slots) {
  u64 sum = 0;
  for (u32 i = 0; i < slots.count; ++i) sum += slots.slot[i].bytes;
  return sum;
}

std::optional<std::pair<u64, u64>> first_wrong(const Transfer& transfer, u64 begin, const std::uint8_t* data,
                                               u64 bytes) {
  for (u64 at = begin; at + 8 <= begin + bytes; at += 8) {
    u64 value = 0;
    std::memcpy(&value, data + (at - begin), sizeof(value));
    if (value != wanted_at(transfer, at, place(transfer.slots, at).first)) return std::pair(at, value);
  }
  return std::nullopt;
}

}  // namespace p2pd::bench
