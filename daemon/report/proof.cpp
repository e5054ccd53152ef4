// SPDX-License-Identifier: MIT
#include "report/proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json_members.hpp"
#include "report/fields.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

/// Figure of a pair, and the figure that replaces it without P2P.
struct Kind {
  const char* id;
  const char* title;
  const char* unit;
  const char* figure;
  const char* staged;  ///< null: none; not compared with an earlier report
  double divisor;      ///< from the measured value to `unit`
  double limits;       ///< multiple of the limit of the path; 0: no limit
};
constexpr Kind kKinds[] = {
    {"copy", "Copy, one way", "GB/s", "copy_gb_s", "staged_gb_s", 1, 1},
    {"latency", "Latency of a load", "µs", "chase_ns", "staged_ns", 1000, 0},
    {"both", "Copies both ways at once, sum", "GB/s", "copy_both_gb_s", nullptr, 1, 2},
    {"busy", "Copy while every pair copies", "GB/s", "busy_gb_s", nullptr, 1, 1},
    {"store", "Stores by a kernel", "GB/s", "store_gb_s", nullptr, 1, 1},
    {"load", "Loads by a kernel", "GB/s", "load_gb_s", nullptr, 1, 1},
    {"ping_pong", "Ping-pong, one way", "µs", "ping_pong_ns", nullptr, 1000, 0},
    {"staged", "Copy through host memory, without P2P", "GB/s", "staged_gb_s", nullptr, 1, 0},
};
constexpr std::size_t kMostGpus = 64;  // limit also for a forged file

std::size_t size_of(const json& bench) { return std::min(list_of(bench, "gpus").size(), kMostGpus); }

json grid(std::size_t size) { return json(size, json(size, nullptr)); }

/// Position of each GPU of a report in the grid, by its number in the report.
using Places = std::map<std::size_t, std::size_t>;

/// Number of a GPU; any other value counts as absent.
std::size_t index_of(const json& object, const char* key) {
  const double number = number_of(object, key).value_or(-1);
  return number >= 0 && number < kMostGpus ? static_cast<std::size_t>(number) : kMostGpus;
}

Places own_places(const json& bench) {
  Places places;
  for (std::size_t i = 0; i < size_of(bench); ++i) places[i] = i;
  return places;
}

/// Positions of an earlier report's GPUs by UUID: a driver may renumber the GPUs.
Places places_in(const json& bench, const json& earlier) {
  std::map<std::string, std::size_t> by_uuid;
  for (std::size_t i = 0; i < size_of(bench); ++i) by_uuid[text_of(list_of(bench, "gpus")[i], "uuid")] = i;
  Places places;
  for (std::size_t i = 0; i < size_of(earlier); ++i) {
    const auto found = by_uuid.find(text_of(list_of(earlier, "gpus")[i], "uuid"));
    if (found != by_uuid.end()) places[i] = found->second;
  }
  return places;
}

/// Calls `put` with the position of every ordered pair, and the pair.
template <class Put>
void each_pair(const json& bench, const Places& places, Put put) {
  for (const json& pair : list_of(bench, "pairs")) {
    const auto from = places.find(index_of(pair, "from"));
    const auto to = places.find(index_of(pair, "to"));
    if (from != places.end() && to != places.end() && from != to) put(from->second, to->second, pair);
  }
}

std::optional<double> median_of(const json& pair, const char* figure) {
  return number_of(field_of(pair, figure), "median");
}

struct Grid {
  json cells;
  bool any = false;
  bool staged = false;  ///< some values are of copies through host memory
};

Grid figures_of(const json& bench, const Places& places, std::size_t size, const Kind& kind, bool stand_in) {
  Grid out{grid(size)};
  each_pair(bench, places, [&](std::size_t from, std::size_t to, const json& pair) {
    std::optional<double> value = median_of(pair, kind.figure);
    const bool staged = !value && stand_in && kind.staged != nullptr;
    if (staged) value = median_of(pair, kind.staged);
    if (!value) return;
    out.cells[from][to] = *value / kind.divisor;
    out.any = true;
    out.staged |= staged;
  });
  return out;
}

/// True for GPUs of two groups of peers, between which nothing is expected.
bool is_unexpected(const json& bench, std::size_t from, std::size_t to) {
  const json& gpus = list_of(bench, "gpus");
  return text_of(gpus[from], "group") != text_of(gpus[to], "group");
}

/// Payload limit of each path, times a number; null: none is known.
json limit_grid(const json& bench, double times) {
  json cells = grid(size_of(bench));
  bool any = false;
  for (std::size_t from = 0; from < cells.size(); ++from) {
    for (std::size_t to = 0; to < cells.size(); ++to) {
      const double limit = number_of(cell_of(list_of(bench, "paths"), from, to), "payload_gb_s").value_or(0);
      if (from == to || limit <= 0 || is_unexpected(bench, from, to)) continue;
      cells[from][to] = limit * times;
      any = true;
    }
  }
  return any && times > 0 ? cells : json();
}

}  // namespace

json matrices_of(const json& bench, const json& earlier) {
  json matrices = json::array();
  for (const Kind& kind : kKinds) {
    const Grid after = figures_of(bench, own_places(bench), size_of(bench), kind, false);
    const Grid before =
        kind.staged == nullptr ? Grid() : figures_of(earlier, places_in(bench, earlier), size_of(bench), kind, true);
    if (!after.any && !before.any) continue;
    matrices.push_back({{"id", kind.id},
                        {"title", kind.title},
                        {"unit", kind.unit},
                        {"after", after.any ? after.cells : json()},
                        {"before", before.any ? before.cells : json()},
                        {"before_by", before.any && before.staged ? "through host memory" : ""},
                        {"limits", limit_grid(bench, kind.limits)}});
  }
  return matrices;
}

json bytes_of(const json& bench) {
  json cells = grid(size_of(bench));
  for (std::size_t from = 0; from < cells.size(); ++from)
    for (std::size_t to = 0; to < cells.size(); ++to)
      if (is_unexpected(bench, from, to)) cells[from][to] = kNotExpected;
  each_pair(bench, own_places(bench), [&](std::size_t from, std::size_t to, const json& pair) {
    const json& verified = field_of(pair, "verified_bytes");
    cells[from][to] = !flag_of(pair, "access")                    ? "no peer access"
                      : !text_of(pair, "refused").empty()         ? "refused"
                      : !verified.is_object() || verified.empty() ? "not tested"
                                                                  : "ok";
  });
  const Places places = own_places(bench);
  each_pair({{"pairs", list_of(bench, "wrong")}}, places,
            [&](std::size_t from, std::size_t to, const json& wrong) { cells[from][to] = text_of(wrong, "kind"); });
  return cells;
}

bool is_bench_report(const json& report) {
  return text_of(report, "schema") == "p2pd.bench/1" && !list_of(report, "gpus").empty();
}

namespace {

using nlohmann::json;

struct Candidate {
  const json* report;
  std::string time;
  std::int64_t run;
};

/// Time at which the proof of a run ended.
std::string time_of(const json& history, const json& run) {
  std::string time = text_of(run, "ended").empty() ? text_of(run, "started") : text_of(run, "ended");
  for (const json& event : list_of(history, "events"))
    if (field_of(event, "run") == field_of(run, "id") && text_of(event, "type") == "proof")
      time = text_of(event, "time");
  return time;
}

/// Measurements, newest first.
std::vector<Candidate> candidates_of(const Sources& sources) {
  std::vector<Candidate> found;
  for (const json& step : list_of(sources.diagnosis, "steps"))
    if (is_bench_report(field_of(step, "facts"))) found.push_back({&field_of(step, "facts"), sources.made, 0});
  for (const json& run : list_of(sources.history, "runs")) {
    const json& id = field_of(run, "id");
    for (const json& step : list_of(run, "steps")) {
      const json& facts = field_of(field_of(step, "finding"), "facts");
      if (is_bench_report(facts))
        found.push_back({&facts, time_of(sources.history, run), json_number<std::int64_t>(id).value_or(0)});
    }
  }
  return found;
}

json addresses_of(const json& gpus) {
  json addresses = json::array();
  for (const json& gpu : gpus) addresses.push_back(text_of(gpu, "address"));
  return addresses;
}

json texts_of(const json& object, const char* key) {
  json texts = json::array();
  for (const json& text : list_of(object, key)) texts.push_back(text_of(text));
  return texts;
}

json judged(const Candidate& candidate) {
  const json& judgement = field_of(*candidate.report, "judgement");
  return {{"run", candidate.run},
          {"time", candidate.time},
          {"mode", text_of(*candidate.report, "mode")},
          {"proven", flag_of(judgement, "proven")},
          {"summary", text_of(judgement, "summary")}};
}

json remarks_of(const json& judgement) {
  json remarks = json::array();
  for (const json& remark : list_of(judgement, "remarks"))
    remarks.push_back({{"grade", text_of(remark, "grade")}, {"text", text_of(remark, "text")}});
  return remarks;
}

json limits_of(const json& bench) {
  json grid = json::array();
  for (const json& row : list_of(bench, "paths")) {
    grid.push_back(json::array());
    for (const json& path : row)
      grid.back().push_back({{"kind", text_of(path, "kind")},
                             {"limit_gb_s", number_of(path, "payload_gb_s").value_or(0)},
                             {"arithmetic", text_of(path, "arithmetic")}});
  }
  return grid;
}

/// Values of a grid, sorted.
std::vector<double> values_of(const json& grid) {
  std::vector<double> values;
  for (const json& row : grid)
    for (const json& cell : row)
      if (const auto value = number_of(cell)) values.push_back(*value);
  std::ranges::sort(values);
  return values;
}

std::optional<double> median_of_pairs(const json& grid) {
  const std::vector<double> values = values_of(grid);
  if (values.empty()) return std::nullopt;
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

constexpr std::size_t kMostPoints = 2000;  // of a soak, also of a forged file

constexpr int kHidden = 8192;                   // values of a token's state, of a model of 70 billion parameters
constexpr int kBatches[] = {1, 16, 512, 4096};  // tokens
constexpr double kValueBytes = 2;               // bfloat16

/// Time of a ring all-reduce in microseconds, computed: 2 (N - 1) steps of the slowest pair's latency and a share.
json ring_us(double bytes, std::size_t gpus, const json& copies, const json& latencies) {
  const std::vector<double> gb_s = values_of(copies), us = values_of(latencies);
  if (gb_s.empty() || us.empty() || gb_s.front() <= 0) return nullptr;
  const auto count = static_cast<double>(gpus);
  return 2 * (count - 1) * (us.back() + bytes / count / gb_s.front() / 1000);
}

/// [{tokens, bytes, before_us, after_us}] of all-reduces of tensor parallelism over all GPUs.
json all_reduces_of(const json& matrices, std::size_t gpus) {
  json copies, latencies;
  for (const json& matrix : matrices) {
    if (text_of(matrix, "id") == "copy") copies = matrix;
    if (text_of(matrix, "id") == "latency") latencies = matrix;
  }
  json rows = json::array();
  for (const int tokens : kBatches) {
    const double bytes = kValueBytes * kHidden * tokens;
    const auto at = [&](const char* when) {
      return ring_us(bytes, gpus, field_of(copies, when), field_of(latencies, when));
    };
    const json after = at("after");
    if (gpus < 2 || after.is_null()) return json::array();
    rows.push_back({{"tokens", tokens}, {"bytes", bytes}, {"before_us", at("before")}, {"after_us", after}});
  }
  return rows;
}

json number(std::string label, std::string value, std::string note) {
  return {{"label", std::move(label)}, {"value", std::move(value)}, {"note", std::move(note)}};
}

/// Adds a figure such as "25.8 GB/s", "17.8 before, through host memory".
void add_figure(json& numbers, const json& proof, const char* id, const char* label) {
  for (const json& matrix : list_of(proof, "matrices")) {
    const auto after = median_of_pairs(field_of(matrix, "after"));
    if (text_of(matrix, "id") != id || !after) continue;
    const auto before = median_of_pairs(field_of(matrix, "before"));
    const std::string by = text_of(matrix, "before_by");
    numbers.push_back(
        number(label, fmt::format("{:.1f} {}", *after, text_of(matrix, "unit")),
               before ? fmt::format("{:.1f} before{}{}", *before, by.empty() ? "" : ", ", by) : "median of the pairs"));
  }
}

json point_of(const json& sample) {
  json hottest;
  for (const json& gpu : list_of(sample, "gpus"))
    if (const auto celsius = number_of(gpu, "temperature_c"); celsius && (hottest.is_null() || *celsius > hottest))
      hottest = *celsius;
  return {number_of(sample, "seconds").value_or(0), number_of(sample, "slowest_gb_s").value_or(0), hottest};
}

}  // namespace

json proof_of(const Sources& sources) {
  const std::vector<Candidate> found = candidates_of(sources);
  if (found.empty()) return nullptr;
  const json gpus = addresses_of(list_of(*found.front().report, "gpus"));
  const auto is_full = [&](const Candidate& one) {
    return text_of(*one.report, "mode") != "quick" && addresses_of(list_of(*one.report, "gpus")) == gpus;
  };
  const auto full = std::ranges::find_if(found, is_full);
  const Candidate& shown = full == found.end() ? found.front() : *full;
  const json& bench = *shown.report;
  const json& judgement = field_of(bench, "judgement");
  json proof = judged(shown);
  proof["again"] = &shown == &found.front() ? json() : judged(found.front());
  proof["addresses"] = gpus;
  proof["remarks"] = remarks_of(judgement);
  proof["grades"] = list_of(judgement, "grades");
  proof["kernel_log"] = texts_of(bench, "kernel_log");
  proof["advice"] = texts_of(bench, "advice");
  proof["gain"] = texts_of(bench, "gain");
  proof["side_by_side"] = texts_of(bench, "side_by_side");
  proof["limits"] = limits_of(bench);
  proof["bytes"] = bytes_of(bench);
  proof["matrices"] = matrices_of(bench, is_bench_report(sources.baseline) ? sources.baseline : json());
  proof["collectives"] = text_of(field_of(bench, "collectives"), "summary");
  proof["all_reduces"] = all_reduces_of(proof["matrices"], gpus.size());
  proof["gain_lines"] = gain_of(proof);
  return proof;
}

std::vector<std::string> gain_of(const json& proof) {
  std::vector<std::string> lines;
  for (const char* part : {"gain", "side_by_side"})
    for (const json& line : list_of(proof, part)) lines.push_back(text_of(line));
  if (const std::string nccl = text_of(proof, "collectives"); !nccl.empty()) lines.push_back(nccl);
  for (const json& row : list_of(proof, "all_reduces")) {
    const auto before = number_of(row, "before_us"), after = number_of(row, "after_us");
    const double kib = number_of(row, "bytes").value_or(0) / 1024;
    lines.push_back(fmt::format(
        "all-reduce of a batch of {:g} ({:g} {}; {} values in bfloat16 each), computed for a ring: {}{:.0f} us",
        number_of(row, "tokens").value_or(0), kib < 1024 ? kib : kib / 1024, kib < 1024 ? "KiB" : "MiB", kHidden,
        before ? fmt::format("{:.0f} -> ", *before) : "", after.value_or(0)));
  }
  return lines;
}

json soak_of(const json& bench) {
  const json& soak = field_of(bench, "soak");
  const json& samples = list_of(soak, "samples");
  if (samples.empty()) return nullptr;
  const std::size_t step = (samples.size() + kMostPoints - 1) / kMostPoints;
  json points = json::array();
  for (std::size_t i = 0; i < samples.size(); i += step) points.push_back(point_of(samples[i]));
  return {{"minutes", number_of(samples.back(), "seconds").value_or(0) / 60},
          {"ended", text_of(soak, "ended")},
          {"checked_bytes", number_of(samples.back(), "checked_bytes").value_or(0)},
          {"wrong", number_of(samples.back(), "wrong").value_or(0)},
          {"points", std::move(points)}};
}

json pairs_with(const json& machine, const json& proof) {
  const json& own = list_of(machine, "pairs");
  if (list_of(proof, "limits").empty()) return own;
  if (addresses_of(list_of(machine, "gpus")) != list_of(proof, "addresses")) return list_of(proof, "limits");
  json pairs = own;
  for (std::size_t from = 0; from < pairs.size(); ++from) {
    for (std::size_t to = 0; to < pairs[from].size(); ++to) {
      const json& measured = cell_of(list_of(proof, "limits"), from, to);
      if (pairs[from][to].is_object() && number_of(measured, "limit_gb_s").value_or(0) > 0)
        pairs[from][to].update(measured);
    }
  }
  return pairs;
}

json before_of(const json& baseline) {
  if (is_bench_report(baseline)) return {{"measured", true}, {"why", ""}};
  const std::string why = text_of(baseline, "not_measured");
  return {{"measured", false}, {"why", why.empty() ? "there is no measurement from before the first change" : why}};
}

json numbers_of(const Sources& sources, const json& proof) {
  json numbers = json::array();
  const std::size_t gpus = list_of(sources.machine, "gpus").size();
  numbers.push_back(number("GPUs", std::to_string(std::max(gpus, list_of(proof, "addresses").size())), ""));
  std::size_t right = 0, all = 0;
  for (const json& row : list_of(proof, "bytes")) {
    for (const json& cell : row) {
      all += cell.is_string() && cell != kNotExpected ? 1 : 0;
      right += cell == "ok" ? 1 : 0;
    }
  }
  if (all > 0) numbers.push_back(number("Ordered pairs with correct bytes", fmt::format("{} of {}", right, all), ""));
  add_figure(numbers, proof, "copy", "Copy, one way");
  add_figure(numbers, proof, "latency", "Latency");
  return numbers;
}

}  // namespace p2pd::ctl
