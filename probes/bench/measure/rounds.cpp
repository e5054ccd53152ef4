// SPDX-License-Identifier: MIT
// Rounds of pairs that work at the same time, and peer access between GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

/// True if both pairs, timed at once, would share a GPU, or a bridge or socket on their paths.
bool collide(const Bench& bench, const std::pair<int, int>& one, const std::pair<int, int>& other) {
  if (one.first == other.first || one.first == other.second || one.second == other.first || one.second == other.second)
    return true;
  const Path& first = bench.path(one.first, one.second);
  const Path& second = bench.path(other.first, other.second);
  if (first.kind == PathKind::nvlink && second.kind == PathKind::nvlink) return false;
  if (first.kind == PathKind::unknown || second.kind == PathKind::unknown) return true;
  return std::ranges::any_of(first.shared, [&](const std::string& edge) {
    return std::ranges::find(second.shared, edge) != second.shared.end();
  });
}

Result<void> disable(const Bench& bench, const Ordered& peers) {
  for (const auto& [from, to] : peers) {
    TRY(bench.gpu(from).use());
    CU(bench.driver, cuCtxDisablePeerAccess(bench.gpu(to).context()));
  }
  return {};
}

}  // namespace

// Circle method: one GPU stays, the others move by one place per round; with an odd number one rests.
std::vector<Round> tournament(const std::vector<int>& gpus) {
  const int count = static_cast<int>(gpus.size());
  const int places = count + count % 2;
  const auto gpu = [&](int place) { return gpus[static_cast<std::size_t>(place)]; };
  std::vector<Round> rounds;
  for (int turn = 0; turn < places - 1; ++turn) {
    Round round;
    for (int place = 0; place < places / 2; ++place) {
      const int one = place == 0 ? places - 1 : (turn + place) % (places - 1);
      const int other = (turn + places - 1 - place) % (places - 1);
      if (std::max(one, other) < count) round.emplace_back(std::minmax(gpu(one), gpu(other)));
    }
    if (!round.empty()) rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<Round> rounds_of(const Measurement& found) {
  std::vector<Round> rounds;
  for (const std::vector<int>& group : groups_of(found)) {
    const std::vector<Round> own = tournament(group);
    rounds.resize(std::max(rounds.size(), own.size()));
    for (std::size_t i = 0; i < own.size(); ++i) rounds[i].insert(rounds[i].end(), own[i].begin(), own[i].end());
  }
  return rounds;
}

Result<void> prove_across(Bench& bench, std::vector<Pair> across) {
  std::vector<Round> rounds;
  for (const Pair& pair : across)
    if (pair.from < pair.to) rounds.push_back({{pair.from, pair.to}});
  auto& pairs = bench.found.pairs;
  std::ranges::move(across, std::back_inserter(pairs));
  std::ranges::sort(pairs, {}, [](const Pair& pair) { return std::pair(pair.from, pair.to); });
  TRY(enable_peers(bench));
  return prove_bytes(bench, rounds);
}

std::vector<Round> each_link(const Measurement& found) {
  std::set<int> timed;
  std::vector<Round> rounds;
  for (const Round& round : rounds_of(found)) {
    const std::size_t before = timed.size();
    for (const auto& [one, other] : round) timed.insert({one, other});
    if (timed.size() > before) rounds.push_back(round);
  }
  return rounds;
}

std::vector<Round> apart(const Bench& bench, const std::vector<Round>& all) {
  std::vector<Round> rounds;
  for (const Round& round : all) {
    std::vector<Round> parts;
    for (const auto& pair : round) {
      auto fits = std::ranges::find_if(parts, [&](const Round& part) {
        return std::ranges::none_of(part, [&](const auto& other) { return collide(bench, other, pair); });
      });
      if (fits == parts.end()) fits = parts.insert(fits, Round{});
      fits->push_back(pair);
    }
    std::ranges::move(parts, std::back_inserter(rounds));
  }
  return rounds;
}

Pair& Bench::pair(int from, int to) const {
  return *std::ranges::find_if(found.pairs, [&](const Pair& pair) { return pair.from == from && pair.to == to; });
}

const Path& Bench::path(int one, int other) const {
  return paths[static_cast<std::size_t>(one)][static_cast<std::size_t>(other)];
}

Ordered Bench::both_ways(const Round& round) const {
  Ordered ordered;
  for (const auto& [one, other] : round) {
    if (!pair(one, other).refused.empty() || !pair(other, one).refused.empty()) continue;
    ordered.emplace_back(one, other);
    ordered.emplace_back(other, one);
  }
  return ordered;
}

Result<void> Bench::finish() const {
  for (const OpenGpu& gpu : gpus) TRY(gpu.finish());
  phases.go_on();
  return {};
}

Result<AllSeen> Bench::seen() const {
  TRY(finish());
  AllSeen all;
  for (const OpenGpu& gpu : gpus) all.push_back(TRY(gpu.seen()));
  return all;
}

Result<void> Bench::forget() const {
  for (OpenGpu& gpu : gpus) TRY(gpu.forget());
  return {};
}

void Bench::report(std::string_view test, int from, int to) {
  under_way = UnderWay{std::string(test), from, to};
  phases.begin_part(fmt::format("{} {} {}", test, from, to));
}

Result<void> Bench::each(std::string_view test, const Ordered& ordered,
                         const std::function<Result<void>(const Ordered&)>& work) {
  if (asked.soak_minutes > 0 && !ordered.empty()) {
    const auto two = [](const auto& pair) { return std::pair(std::minmax(pair.first, pair.second)); };
    const auto [from, to] = ordered.front();
    const bool one_pair = std::ranges::all_of(ordered, [&](const auto& p) { return two(p) == two(ordered.front()); });
    report(test, one_pair ? from : -1, one_pair ? to : -1);
  }
  if (!asked.alone) return work(ordered);
  for (const auto& one : ordered) {
    TRY(part(test, one.first, one.second));
    TRY(work({one}));
    TRY(finish());
    under_way.reset();
  }
  return {};
}

Result<void> Bench::part(std::string_view test, int from, int to) {
  if (!asked.alone) return {};
  TRY(finish());
  report(test, from, to);
  return {};
}

Result<void> Bench::connect(const Round& round) {
  if (!few_peers || connected == round) return {};
  TRY(finish());
  TRY(disable(*this, both_ways(connected)));
  connected = round;
  for (const auto& [from, to] : both_ways(connected)) {
    TRY(gpu(from).use());
    CU(driver, cuCtxEnablePeerAccess(gpu(to).context(), 0));
  }
  return {};
}

Result<void> enable_peers(Bench& bench) {
  const Driver& driver = bench.driver;
  bench.enabled = true;
  Ordered enabled;
  const auto enable = [&](Pair& pair) -> Result<void> {
    if (!pair.access) {
      pair.refused = "the driver says that they cannot access each other";
      return {};
    }
    TRY(bench.gpu(pair.from).use());
    const CUresult result = driver->cuCtxEnablePeerAccess(bench.gpu(pair.to).context(), 0);
    if (result == CUDA_ERROR_TOO_MANY_PEERS)
      bench.few_peers = true;
    else if (result == CUDA_SUCCESS)
      enabled.emplace_back(pair.from, pair.to);
    else if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      pair.refused = driver.name(result);
    return {};
  };
  for (Pair& pair : bench.found.pairs) {
    if (pair.from > pair.to) continue;
    TRY(enable(pair));
    TRY(enable(bench.pair(pair.to, pair.from)));
  }
  for (Pair& pair : bench.found.pairs) {
    Pair& back = bench.pair(pair.to, pair.from);
    if (pair.refused.empty() && !back.refused.empty())
      pair.refused =
          fmt::format("not tried: GPU {} -> GPU {} was refused, and every test needs both ways", back.from, back.to);
  }
  return bench.few_peers ? disable(bench, enabled) : Result<void>();
}

}  // namespace p2pd::bench
