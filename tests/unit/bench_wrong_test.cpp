// SPDX-License-Identifier: MIT
#include <cstring>
#include <set>

#include "catch.hpp"
#include "probes/bench/measure/worker.hpp"
#include "probes/bench/measure/wrong.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

Slots one_slot(u64 begin, u64 bytes) {
  Slots slots{1, 64, {}};
  slots.slot[0] = {begin, bytes};
  return slots;
}

}  // namespace

TEST_CASE("the pattern can be undone, and no two words of a run are alike") {
  for (const u64 word : {0ULL, 1ULL, ~0ULL, 0x123456789abcdefULL}) CHECK(unmix64(mix64(word)) == word);
  Keys keys(42);
  const Transfer one = keys.next("store", 0, 1, one_slot(64, 4096));
  const Transfer other = keys.next("store", 1, 0, one_slot(64, 4096));
  CHECK(one.key != other.key);
  CHECK(one.poison != other.poison);
  for (const Transfer& t : {one, other}) {
    CHECK(t.poison != 0);
    CHECK(t.poison != ~0ULL);
    CHECK(static_cast<u32>(t.poison) == t.poison >> 32);  // memset takes 32 bits
  }
}

TEST_CASE("payload_bits cuts a word at both ends") {
  CHECK(payload_bits(0, 0, 8) == ~0ULL);
  CHECK(payload_bits(0, 0, 4) == 0xffffffffULL);
  CHECK(payload_bits(0, 4, 8) == 0xffffffff00000000ULL);
  CHECK(payload_bits(0, 2, 3) == 0xff0000ULL);
  CHECK(payload_bits(8, 0, 8) == 0);
  CHECK(payload_bits(0, 8, 16) == 0);
}

TEST_CASE("a wrong word tells where it comes from") {
  Keys keys(7);
  const Transfer earlier = keys.next("copy-push", 0, 1, one_slot(64, 4096));
  const Transfer foreign = keys.next("store", 2, 3, one_slot(64, 4096));
  const Transfer own = keys.next("store", 0, 1, one_slot(64, 4096));
  const auto& known = keys.known();
  struct Row {
    u64 at;
    u64 value;
    WrongKind kind;
    u64 offset;
    const char* detail;
  };
  const Row rows[] = {
      {128, own.poison, WrongKind::lost, 64, ""},
      {128, 0, WrongKind::dropped, 64, ""},
      {128, ~0ULL, WrongKind::unsupported_request, 64, ""},
      {128, pattern(own.key, 10), WrongKind::alias, 64, "holds the data of offset 16"},
      {128, pattern(earlier.key, 16), WrongKind::stale, 64, "holds the data of an earlier transfer (copy-push)"},
      {128, pattern(foreign.key, 16), WrongKind::misroute, 64, "holds what GPU 2 sent to GPU 3 (store)"},
      {128, pattern(own.key, 16) ^ (1ULL << 41), WrongKind::garbled, 69, ""},
      {4160, 5, WrongKind::guard, 4096, "written outside of the transfer"},
  };
  for (const Row& row : rows) {
    const Wrong wrong = explain(own, row.at, row.value, known);
    INFO(to_string(row.kind));
    CHECK(wrong.kind == row.kind);
    CHECK(wrong.detail == row.detail);
    CHECK(wrong.test == "store");
    CHECK(wrong.from == 0);
    CHECK(wrong.to == 1);
    CHECK(wrong.bytes == 4096);
    if (row.kind == WrongKind::garbled || row.kind == WrongKind::lost) CHECK(wrong.offset >= row.offset);
    CHECK(wrong.offset < row.offset + 8);
  }
}

TEST_CASE("a short transfer is judged by its own bytes") {
  Keys keys(7);
  const Transfer own = keys.next("store", 0, 1, one_slot(64, 4));
  const u64 right = pattern(own.key, 8) & 0xffffffffULL;
  CHECK(explain(own, 64, own.poison, keys.known()).kind == WrongKind::lost);
  CHECK(explain(own, 64, own.poison & ~0xffffffffULL, keys.known()).kind == WrongKind::dropped);
  CHECK(explain(own, 64, right, keys.known()).kind == WrongKind::guard);  // the guard bytes after it are lost
}

TEST_CASE("the host finds the first wrong word of what it fetched") {
  Keys keys(9);
  const Transfer own = keys.next("copy-push", 1, 0, one_slot(64, 61));
  std::vector<std::uint8_t> strip(192);
  for (u64 at = 0; at < strip.size(); at += 8) {
    const u64 bits = payload_bits(at, 64, 125);
    const u64 word = (pattern(own.key, at / 8) & bits) | (own.poison & ~bits);
    std::memcpy(strip.data() + at, &word, 8);
  }
  CHECK_FALSE(first_wrong(own, 0, strip.data(), strip.size()));
  strip[125] ^= 1;
  const auto bad = first_wrong(own, 0, strip.data(), strip.size());
  REQUIRE(bad);
  CHECK(bad->first == 120);
  CHECK(explain(own, bad->first, bad->second, keys.known()).kind == WrongKind::guard);
}

TEST_CASE("a tournament: each pair once, no GPU twice in a round") {
  for (int gpus = 2; gpus <= 16; ++gpus) {
    std::vector<int> numbers;
    for (int gpu = 0; gpu < gpus; ++gpu) numbers.push_back(2 * gpu);
    std::set<std::pair<int, int>> met;
    for (const Round& round : tournament(numbers)) {
      std::set<int> busy;
      for (const auto& [one, other] : round) {
        CHECK(one % 2 + other % 2 == 0);
        CHECK(busy.insert(one).second);
        CHECK(busy.insert(other).second);
        CHECK(met.emplace(std::min(one, other), std::max(one, other)).second);
      }
    }
    CHECK(met.size() == static_cast<std::size_t>(gpus * (gpus - 1) / 2));
    CHECK(tournament(numbers).size() == static_cast<std::size_t>(gpus - 1 + gpus % 2));
  }
}

TEST_CASE("rounds: groups side by side") {
  Measurement run;
  for (int gpu = 0; gpu < 7; ++gpu) {
    run.gpus.emplace_back();
    run.gpus.back().index = gpu;
    run.gpus.back().group = gpu < 4 ? "Ada" : "Ampere";
  }
  const auto add = [&](int from, int to) {
    run.pairs.emplace_back();
    run.pairs.back().from = from;
    run.pairs.back().to = to;
  };
  for (int from = 0; from < 7; ++from)
    for (int to = 0; to < 7; ++to)
      if (from != to && may_be_peers(run, from, to)) add(from, to);
  const std::vector<Round> rounds = rounds_of(run);
  REQUIRE(rounds.size() == 3);
  std::set<std::pair<int, int>> met;
  for (const Round& round : rounds) {
    CHECK(round.size() == 3);  // two pairs of four GPUs, one of three
    met.insert(round.begin(), round.end());
  }
  CHECK(met.size() == 9);
  add(3, 4);  // the driver calls them peers: measured last, see prove_across()
  add(4, 3);
  CHECK(rounds_of(run) == rounds);
}

TEST_CASE("rounds: a quick run of many GPUs times each link once") {
  for (int gpus = 2; gpus <= 16; ++gpus) {
    Measurement run;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      run.gpus.emplace_back();
      run.gpus.back().index = gpu;
    }
    std::set<int> timed;
    const std::vector<Round> rounds = each_link(run);
    for (const Round& round : rounds)
      for (const auto& [one, other] : round) timed.insert({one, other});
    CHECK(timed.size() == static_cast<std::size_t>(gpus));
    CHECK(rounds.size() == static_cast<std::size_t>(1 + gpus % 2));
  }
}
