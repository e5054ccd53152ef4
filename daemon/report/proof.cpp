// SPDX-License-Identifier: MIT
#include "report/proof.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_members.hpp"
#include "report/fields.hpp"
#include "report/figures.hpp"

namespace p2pd::ctl {
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

std::optional<double> median_of(const json& grid) {
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
    const auto after = median_of(field_of(matrix, "after"));
    if (text_of(matrix, "id") != id || !after) continue;
    const auto before = median_of(field_of(matrix, "before"));
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
