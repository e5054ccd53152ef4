// SPDX-License-Identifier: MIT
// gain: comparison of a run with an earlier report. GPUs are matched by UUID, for a driver may renumber them. Each
// figure is the best available, so that a machine without P2P is compared by its copies through host memory, with a
// note.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json_members.hpp"
#include "probes/bench/report/report.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

/// Figure and its kind: the first of its kinds that was measured.
struct Best {
  double value = 0;
  std::string_view kind;
};
struct Kind {
  std::optional<Figure> Pair::*figure;
  std::string_view name;
};
using Kinds = std::vector<Kind>;

/// Kinds of a figure that is compared; the first is the usual one.
Kinds kinds_of(const Quantity& quantity) {
  if (!quantity.is_time()) return {{quantity.figure, "P2P"}, {quantity.without_p2p, "staged"}};
  return {{quantity.figure, "load"}, {&Pair::ping_pong_ns, "ping-pong"}, {quantity.without_p2p, "staged"}};
}

constexpr const char* kCollectiveGain = "collectives";

/// Ratios between the two runs by the id of a Quantity, or kCollectiveGain, for the last line; above 1 is better.
using Gains = std::map<std::string_view, std::vector<double>>;

std::optional<Best> best_of(const Pair& pair, const Kinds& kinds) {
  for (const Kind& kind : kinds) {
    if (const auto median = median_of(pair.*kind.figure)) return Best{*median, kind.name};
  }
  return std::nullopt;
}

/// Figures of the same kind if possible: both runs' ping-pong rather than one's load and the other's ping-pong.
std::optional<std::pair<Best, Best>> comparable(const Pair& before, const Pair& after, const Kinds& kinds) {
  const auto old_best = best_of(before, kinds);
  const auto new_best = best_of(after, kinds);
  if (!old_best || !new_best) return std::nullopt;
  for (const Kind& kind : kinds) {
    const auto old_median = median_of(before.*kind.figure);
    const auto new_median = median_of(after.*kind.figure);
    const bool staged = kind.name == "staged";
    if (old_median && new_median && !staged)
      return std::pair{Best{*old_median, kind.name}, Best{*new_median, kind.name}};
  }
  return std::pair{*old_best, *new_best};
}

/// "copy 21.4 (staged) -> 50.2 (P2P) GB/s": the kind is shown unless both have the usual one.
std::string change(std::string_view what, std::string_view unit, double divisor, const std::pair<Best, Best>& figures,
                   std::string_view usual) {
  const auto& [before, after] = figures;
  const bool tell = before.kind != usual || after.kind != usual;
  const auto named = [&](const Best& best) {
    return fmt::format("{:.1f}{}", best.value / divisor, tell ? fmt::format(" ({})", best.kind) : "");
  };
  return fmt::format("{} {} -> {} {}", what, named(before), named(after), unit);
}

std::string ratio_text(const Quantity& quantity, double ratio) {
  if (!quantity.is_time()) return fmt::format("x{:.2f}", ratio);
  return ratio >= 1 ? fmt::format("x{:.1f} less", ratio) : fmt::format("x{:.1f} more", 1 / ratio);
}

std::string pair_line(const Pair& before, const Pair& after, Gains& gains) {
  std::vector<std::string> parts;
  for (const Quantity& quantity : kQuantities) {
    if (quantity.without_p2p == nullptr) continue;
    const Kinds kinds = kinds_of(quantity);
    const auto figures = comparable(before, after, kinds);
    if (!figures) {
      parts.push_back(fmt::format("{} not measured {}", quantity.id, best_of(before, kinds) ? "now" : "before"));
      continue;
    }
    const auto& [then, now] = *figures;
    const double ratio = quantity.is_time() ? then.value / now.value : now.value / then.value;
    gains[quantity.id].push_back(ratio);
    parts.push_back(fmt::format(
        "{} ({})",
        change(quantity.id, quantity.is_time() ? "us" : "GB/s", quantity.divisor, *figures, kinds.front().name),
        ratio_text(quantity, ratio)));
  }
  return fmt::format("{}: {}", pair_name(after.from, after.to), fmt::join(parts, ", "));
}

/// Lists the GPUs that only one of the runs had; returns true if both had two of them.
bool same_gpus(const Measurement& before, const Measurement& after, std::vector<std::string>& lines) {
  std::set<std::string> earlier;
  for (const Gpu& gpu : before.gpus) earlier.insert(gpu.uuid);
  std::size_t shared = 0;
  std::vector<std::string> unknown;
  for (const Gpu& gpu : after.gpus) {
    if (earlier.contains(gpu.uuid)) {
      ++shared;
    } else {
      unknown.push_back(fmt::format("GPU {} ({}) is not in the earlier report", gpu.index, gpu.uuid));
    }
  }
  if (shared < 2) {
    lines.push_back("nothing to compare: no two GPUs are in both reports");
    return false;
  }
  std::ranges::move(unknown, std::back_inserter(lines));
  if (before.gpus.size() > shared) {
    lines.push_back(count_name(before.gpus.size() - shared, "GPU") + " of the earlier report not found");
  }
  return true;
}

void compare_pairs(const Measurement& before, const Measurement& after, Gains& gains, std::vector<std::string>& lines) {
  const std::vector<Pair> earlier = pairs_as_in(after, before);
  for (const Pair& pair : after.pairs) {
    const auto is_it = [&](const Pair& one) { return one.from == pair.from && one.to == pair.to; };
    const auto found = std::ranges::find_if(earlier, is_it);
    if (found != earlier.end()) lines.push_back(pair_line(*found, pair, gains));
  }
}

/// Bus bandwidths by collective and size: with P2P if that ran, else without.
std::map<std::pair<std::string, std::uint64_t>, Best> buses_of(const Collectives& collectives) {
  std::map<std::pair<std::string, std::uint64_t>, Best> buses;
  for (const Collective& result : collectives.results) {
    const auto bus = median_of(result.bus_gb_s);
    if (!bus) continue;
    Best& best = buses[{result.name, result.bytes}];
    if (result.p2p || best.kind.empty()) best = {*bus, result.p2p ? "P2P" : "P2P off"};
  }
  return buses;
}

std::string why_no_collectives(const std::optional<Collectives>& collectives) {
  if (!collectives) return "not asked for";
  if (!collectives->results.empty()) return {};  // one of the two runs, with P2P and without, may be missing
  return collectives->not_run.empty() ? "no results" : collectives->not_run;
}

void compare_collectives(const Measurement& before, const Measurement& after, Gains& gains,
                         std::vector<std::string>& lines) {
  if (!before.collectives) return;
  const std::string then = why_no_collectives(before.collectives);
  const std::string now = why_no_collectives(after.collectives);
  if (!then.empty() || !now.empty()) {
    lines.push_back(then.empty() ? "collectives not run now: " + now : "collectives not run before: " + then);
    return;
  }
  const auto earlier = buses_of(*before.collectives);
  for (const auto& [what, bus] : buses_of(*after.collectives)) {
    const std::string name = fmt::format("{} {}", what.first, size_name(what.second));
    const auto found = earlier.find(what);
    if (found == earlier.end()) {
      lines.push_back(name + ": not measured before");
      continue;
    }
    gains[kCollectiveGain].push_back(bus.value / found->second.value);
    lines.push_back(fmt::format("{}: {} (x{:.2f})", name, change("bus", "GB/s", 1, {found->second, bus}, "P2P"),
                                gains[kCollectiveGain].back()));
  }
}

std::string summary(const Gains& gains, bool proven) {
  std::vector<std::string> parts;
  for (const Quantity& quantity : kQuantities)
    if (const auto found = gains.find(quantity.id); found != gains.end())
      parts.push_back(fmt::format("{} {} over {}", quantity.id, ratio_text(quantity, median(found->second)),
                                  count_name(found->second.size(), "pair")));
  if (const auto found = gains.find(kCollectiveGain); found != gains.end())
    parts.push_back(fmt::format("{} x{:.2f} over {}", found->first, median(found->second), found->second.size()));
  if (parts.empty()) return "no gain known: the two runs share no figure";
  return fmt::format("median gain: {}{}", fmt::join(parts, ", "),
                     proven ? "" : "; worth nothing, this run is not proven");
}

/// Earlier report, or the reason why it is invalid.
Result<Measurement> earlier_report(const nlohmann::json& json) {
  if (const std::string why = text_of(json, "not_measured"); !why.empty())  // saved by p2p-baseline
    return fail(ErrorCode::invalid, "nothing to compare: the earlier run failed: " + why);
  if (text_of(json, "schema") != "p2pd.bench/1")
    return fail(ErrorCode::invalid, "nothing to compare: the earlier file is not a p2pd.bench/1 report");
  return TRY_IN("nothing to compare: the earlier report is broken", measurement_from(json));
}

}  // namespace

std::vector<std::string> gain(const nlohmann::json& before, const Report& after) {
  const Result<Measurement> earlier = earlier_report(before);
  if (!earlier) return {plain(earlier.error().message)};
  std::vector<std::string> lines;
  if (!earlier->fault.empty())
    return {plain("nothing to compare: the earlier run had a seeded fault: " + earlier->fault)};
  if (same_gpus(*earlier, after.measurement, lines)) {
    Gains gains;
    compare_pairs(*earlier, after.measurement, gains, lines);
    compare_collectives(*earlier, after.measurement, gains, lines);
    lines.push_back(summary(gains, after.judgement.proven || after.judgement.limited));
  }
  for (std::string& line : lines) line = plain(line);
  return lines;
}

}  // namespace p2pd::bench
