// SPDX-License-Identifier: MIT
#include "probes/bench/report/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/json_members.hpp"
#include "probes/bench/collectives/collectives.hpp"

namespace p2pd::bench {

std::string plain(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      line += '?';
    } else if (byte >= 0x20 && byte != 0x7f) {
      line += c;
    } else if (c == '\n' || c == '\t') {
      line += ' ';
    }
  }
  return line;
}

std::vector<std::string> limited(std::vector<std::string> lines, std::size_t most) {
  if (lines.size() <= most) return lines;
  const std::size_t more = lines.size() - most + 1;
  lines.resize(most - 1);
  lines.push_back(fmt::format("... and {} more", more));
  return lines;
}

std::string pair_name(int from, int to) { return fmt::format("GPU {} -> GPU {}", from, to); }

std::string end_name(const Wrong& end) {
  const std::string who = end.from < 0 ? "a GPU" : pair_name(end.from, end.to);
  if (end.kind == WrongKind::hung) return fmt::format("{} did not answer in {}", who, end.test);
  return fmt::format("{}{} faulted at {} (the driver reports an error)", who, end.from < 0 ? "" : ":", end.test);
}

std::string size_name(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fmt::format("{} {}", std::round(size * 10) / 10, kUnits[unit]);
}

std::string range_name(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  const std::string from = fmt::format("{:.1f}", low), to = fmt::format("{:.1f}", high);
  return from == to ? from : from + " to " + to;
}

std::string count_name(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

Grade grade_of(const Judgement& judgement, int from, int to) {
  const auto row = static_cast<std::size_t>(from);
  const auto column = static_cast<std::size_t>(to);
  if (row >= judgement.grades.size() || column >= judgement.grades[row].size()) return Grade::not_judged;
  return judgement.grades[row][column];
}

std::string fact(const nlohmann::json& facts, const char* key) {
  const nlohmann::json& found = field_of(facts, key);
  if (found.is_null() || found.is_string()) return text_of(found);
  if (!found.is_array()) return found.dump();
  std::vector<std::string> items;
  for (const auto& item : found) items.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  return fmt::format("{}", fmt::join(items, ", "));
}

nlohmann::json gpu_facts(const nlohmann::json& machine, const std::string& address) {
  for (const nlohmann::json& gpu : list_of(machine, "gpus"))
    if (text_of(gpu, "address") == address) return gpu;
  return nlohmann::json::object();
}

std::vector<std::string> not_run_lines(const Measurement& measurement) {
  std::map<std::pair<std::string, std::string>, std::size_t> of_pairs;
  for (const Pair& pair : measurement.pairs) {
    for (const auto& [test, why] : pair.not_run) ++of_pairs[{test, why}];
  }
  std::vector<std::string> lines;
  std::map<std::string, std::vector<std::string>> of_run;  // by reason
  for (const auto& [test, why] : measurement.not_run) of_run[why].push_back(test);
  for (const auto& [why, tests] : of_run) lines.push_back(fmt::format("{} not run: {}", fmt::join(tests, ", "), why));
  for (const auto& [what, count] : of_pairs) {
    lines.push_back(fmt::format("{} not run on {}: {}", what.first, count_name(count, "pair"), what.second));
  }
  return lines;
}

AtomicsState atomics_state(const Measurement& measurement) {
  AtomicsState state;
  state.pairs = measurement.pairs.size();
  for (const Pair& pair : measurement.pairs) state.native += pair.native_atomics ? 1 : 0;
  for (const Atomics& atomics : measurement.atomics) {
    if (atomics.exact) {
      ++state.exact;
    } else if (state.problem.empty()) {
      state.problem = fmt::format("{}: {}", pair_name(atomics.from, atomics.to), atomics.problem);
    }
  }
  return state;
}

std::string atomics_line(const Measurement& measurement) {
  const AtomicsState state = atomics_state(measurement);
  if (state.pairs == 0 || measurement.not_run.contains(kEverything)) return {};
  if (!state.problem.empty()) return "Atomics: FAILED, " + state.problem;
  const std::string all = count_name(state.pairs, "pair");
  if (state.native < state.pairs) {
    return fmt::format(
        "Atomics: NS (not supported) on {} of {}, normal over BAR1; NVSHMEM and FlashInfer one-shot all-to-all need "
        "them",
        state.pairs - state.native, all);
  }
  if (state.exact < state.pairs) {
    return fmt::format("Atomics: the driver reports them for {}, {} tested", all, state.exact);
  }
  return fmt::format("Atomics: native on all {}, sums and tickets exact", all);
}

std::string host_memory_line(const Measurement& measurement) {
  std::vector<std::string> nodes;
  for (const HostMemory& memory : measurement.host_memory)
    nodes.push_back(fmt::format("NUMA node {} {}{}", memory.node, size_name(memory.bytes),
                                memory.wrong > 0         ? " WRONG"
                                : memory.problem.empty() ? ""
                                                         : " and no more"));
  return nodes.empty() ? "" : fmt::format("Host memory that GPUs share: {}", fmt::join(nodes, ", "));
}

std::string all_reduce_line(const Measurement& measurement) {
  const std::vector<AllReduce>& rows = measurement.all_reduces;
  if (rows.empty()) return {};
  const std::string name = "All-reduce by loads in a CUDA graph: ";
  const auto wrong = std::ranges::find_if(rows, [](const AllReduce& row) { return row.wrong > 0; });
  if (wrong != rows.end())
    return fmt::format("{}WRONG, {}: {} in {} replays of {}", name, pair_name(wrong->from, wrong->to),
                       count_name(wrong->wrong, "wrong element"), wrong->replays, size_name(wrong->bytes));
  const auto stopped = std::ranges::find(measurement.wrong, kGraphReduce, &Wrong::test);
  if (stopped != measurement.wrong.end())
    return fmt::format("{}STOPPED, {}: {}", name, pair_name(stopped->from, stopped->to), stopped->detail);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<double>> sizes;  // us, by bytes and replays
  for (const AllReduce& row : rows) sizes[{row.bytes, row.replays}].push_back(row.time_ns / 1000);
  std::vector<std::string> times;
  for (const auto& [what, us] : sizes)
    times.push_back(fmt::format("{} {} us ({} replays)", size_name(what.first), range_name(us), what.second));
  return fmt::format("{}{}, exact on {}", name, fmt::join(times, ", "),
                     count_name(sizes.begin()->second.size(), "ordered pair"));
}

SoakState soak_state(const Soak& soak, std::size_t since) {
  constexpr std::pair<std::uint64_t, const char*> kReasons[] = {
      {0x04 | 0x80, "power"}, {0x20 | 0x40, "thermal"}, {0x08, "hardware slowdown"}};  // nvmlClocksThrottleReason
  SoakState state;
  if (soak.samples.empty()) return state;
  const SoakSample& first = soak.samples.front();
  const SoakSample& last = soak.samples.back();
  std::uint64_t reasons = 0;
  constexpr double kNone = 1e9;
  state.slowest_gb_s = kNone;
  for (std::size_t i = std::min(since, soak.samples.size() - 1); i < soak.samples.size(); ++i) {
    if (const double rate = soak.samples[i].slowest_gb_s; rate > 0)
      state.slowest_gb_s = std::min(state.slowest_gb_s, rate);
    for (const SoakGpu& gpu : soak.samples[i].gpus) {
      reasons |= gpu.throttle.value_or(0);
      if (gpu.temperature_c) state.temperature_c = std::max(state.temperature_c.value_or(0), *gpu.temperature_c);
    }
  }
  if (state.slowest_gb_s == kNone) state.slowest_gb_s = 0;
  for (const auto& [bits, name] : kReasons)
    if ((reasons & bits) != 0) state.throttled.emplace_back(name);
  for (const auto& [name, count] : last.aer) {
    const auto before = first.aer.find(name);
    if (before != first.aer.end()) state.aer = state.aer.value_or(0) + (count - std::min(count, before->second));
  }
  const auto link = [](const SoakGpu& gpu) { return fmt::format("{:g} GT/s x{}", gpu.link_gt_s, gpu.link_width); };
  for (std::size_t i = 0; i < std::min(first.gpus.size(), last.gpus.size()); ++i) {
    const SoakGpu& before = first.gpus[i];
    const SoakGpu& now = last.gpus[i];
    if (before.replays && now.replays)
      state.replays = state.replays.value_or(0) + (*now.replays - std::min(*now.replays, *before.replays));
    if (now.link_gt_s < before.link_gt_s || now.link_width < before.link_width)
      state.links.push_back(fmt::format("GPU {} {}, was {}", i, link(now), link(before)));
  }
  return state;
}

std::string soak_line(const Soak& soak, std::size_t since) {
  if (soak.samples.empty()) return {};
  const SoakSample& last = soak.samples.back();
  const SoakState state = soak_state(soak, since);
  const auto number = [](const std::optional<std::uint64_t>& value) { return value ? std::to_string(*value) : "-"; };
  std::string text =
      fmt::format("{:.2f} min: {} checked, {:.1f} GB/s slowest copy, {} wrong, {} C, {} replays, {} AER errors",
                  last.seconds / 60, size_name(last.checked_bytes), state.slowest_gb_s, last.wrong,
                  number(state.temperature_c), number(state.replays), number(state.aer));
  if (!state.throttled.empty()) text += fmt::format(", throttled: {}", fmt::join(state.throttled, ", "));
  if (!state.links.empty()) text += fmt::format(", slower link: {}", fmt::join(state.links, "; "));
  return text;
}

std::string transports_name(const Collectives& collectives) {
  std::vector<std::string> names;
  for (const auto& [name, channels] : collectives.transports) names.push_back(fmt::format("{} x {}", name, channels));
  return fmt::format("{}", fmt::join(names, ", "));
}

const Collective* largest_all_reduce(const Collectives& nccl, bool p2p) {
  const Collective* largest = nullptr;
  for (const Collective& one : nccl.results)
    if (one.name == kAllReduce && one.p2p == p2p && (largest == nullptr || one.bytes > largest->bytes)) largest = &one;
  return largest;
}

std::size_t pairs_without_p2p(const Collectives& nccl) {
  return static_cast<std::size_t>(
      std::ranges::count_if(nccl.pairs, [](const auto& pair) { return !pair.second.starts_with("P2P/"); }));
}

std::string nccl_failure(const Collectives& nccl) {
  const bool on = std::ranges::find(nccl.results, true, &Collective::p2p) != nccl.results.end();
  if (!on && !nccl.results.empty()) return nccl.not_run;
  const auto wrong = std::ranges::find_if(nccl.results, [](const Collective& one) { return one.p2p && one.wrong > 0; });
  if (wrong == nccl.results.end()) return {};
  return fmt::format("wrong data with P2P: {} of {}, {}", wrong->name, size_name(wrong->bytes),
                     count_name(wrong->wrong, "wrong element"));
}

std::string nccl_line(const Collectives& nccl) {
  if (nccl.results.empty())
    return fmt::format("NCCL: not tested ({})", nccl.not_run.empty() ? "no results" : nccl.not_run);
  if (const std::string failure = nccl_failure(nccl); !failure.empty())
    return fmt::format("NCCL {}: {}", nccl.version, failure);
  const std::size_t pairs = nccl.pairs.size();
  std::string line =
      fmt::format("NCCL {}: ", nccl.version) +
      (pairs == 0 ? "transports not known" : fmt::format("P2P on {} of {}", pairs - pairs_without_p2p(nccl), pairs));
  const auto rate = [&](bool p2p) {
    const Collective* run = largest_all_reduce(nccl, p2p);
    return run == nullptr ? std::nullopt : median_of(run->bus_gb_s);
  };
  if (const auto on = rate(true)) line += fmt::format(", all-reduce {:.1f} GB/s", *on);
  if (const auto off = rate(false)) line += fmt::format(", {:.1f} without", *off);
  return line + (nccl.not_run.empty() ? "" : "; " + nccl.not_run);
}

}  // namespace p2pd::bench
