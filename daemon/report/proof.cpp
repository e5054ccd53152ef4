// SPDX-License-Identifier: MIT
#include "report/proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/json_struct.hpp"

namespace p2pd {

using ctl::Matrix;
using ctl::RingTime;

template <>
constexpr auto kFields<Matrix> = std::tuple(field("id", &Matrix::id), field("title", &Matrix::title),
                                            field("unit", &Matrix::unit), field("after", &Matrix::after),
                                            field("before", &Matrix::before), field("before_by", &Matrix::before_by),
                                            field("limits", &Matrix::limits));
template <>
constexpr auto kFields<RingTime> = std::tuple(field("tokens", &RingTime::tokens), field("bytes", &RingTime::bytes),
                                              field("before_us", &RingTime::before_us),
                                              field("after_us", &RingTime::after_us));

namespace ctl {
namespace {

using namespace bench;
using nlohmann::json;

constexpr char kNotExpected[] = "not expected";  // word for a pair of two groups of peers

/// True if `report` is a p2p-bench report with measurements.
bool is_bench_report(const json& report) {
  return text_of(report, "schema") == "p2pd.bench/1" && !list_of(report, "gpus").empty();
}

/// Time at which the proof of a run ended.
std::string time_of(const json& history, const json& run) {
  std::string time = text_of(run, "ended").empty() ? text_of(run, "started") : text_of(run, "ended");
  for (const json& event : list_of(history, "events"))
    if (field_of(event, "run") == field_of(run, "id") && text_of(event, "type") == "proof")
      time = text_of(event, "time");
  return time;
}

/// Measurements of the runs in a history, newest first.
std::vector<Measured> measurements_in(const json& history) {
  std::vector<Measured> found;
  for (const json& run : list_of(history, "runs"))
    for (const json& step : list_of(run, "steps"))
      if (const json& facts = field_of(field_of(step, "finding"), "facts"); is_bench_report(facts))
        found.push_back({json_number<std::int64_t>(run, "id"), time_of(history, run), bench_report_from(facts)});
  return found;
}

std::vector<std::string> addresses_of(const BenchReport& report) {
  std::vector<std::string> addresses;
  for (const Gpu& gpu : report.measurement.gpus) addresses.push_back(gpu.address);
  return addresses;
}

// ---- matrices -------------------------------------------------------------------------------------------------------

/// Grid of a value of the pairs of so many GPUs; nothing if no pair has it.
std::optional<Grid> grid_of(std::size_t gpus, const std::vector<Pair>& pairs,
                            const std::function<std::optional<double>(const Pair&)>& value) {
  Grid grid(gpus, std::vector<std::optional<double>>(gpus));
  bool any = false;
  for (const Pair& pair : pairs) {
    auto& cell = grid[static_cast<std::size_t>(pair.from)][static_cast<std::size_t>(pair.to)];
    cell = value(pair);
    any |= cell.has_value();
  }
  return any ? std::optional(std::move(grid)) : std::nullopt;
}

/// Payload limit of the path of a pair; nothing if none is known, or P2P is not expected.
std::optional<double> limit_of(const BenchReport& report, const Pair& pair) {
  const auto from = static_cast<std::size_t>(pair.from), to = static_cast<std::size_t>(pair.to);
  if (from >= report.paths.size() || to >= report.paths[from].size()) return std::nullopt;
  const double limit = report.paths[from][to].payload_gb_s;
  return limit > 0 && may_be_peers(report.measurement, pair.from, pair.to) ? std::optional(limit) : std::nullopt;
}

std::vector<Matrix> matrices_of(const BenchReport& report, const Measurement& earlier) {
  const Measurement& run = report.measurement;
  const std::vector<Pair> pairs_before = pairs_as_in(run, earlier);
  std::vector<Matrix> matrices;
  for (const Quantity& quantity : kQuantities) {
    if (*quantity.title == '\0') continue;
    const auto shown = [&](std::optional<Figure> Pair::*figure, const Pair& pair) {
      const std::optional<double> value = median_of(pair.*figure);
      return value ? std::optional(*value / quantity.divisor) : std::nullopt;
    };
    bool staged = false;
    const auto value_before = [&](const Pair& pair) {
      if (const auto value = shown(quantity.figure, pair)) return value;
      const auto value = shown(quantity.without_p2p, pair);
      staged |= value.has_value();
      return value;
    };
    Matrix matrix{std::string(quantity.id), quantity.title, quantity.is_time() ? "µs" : "GB/s", {}, {}, {}, {}};
    matrix.after = grid_of(run.gpus.size(), run.pairs, [&](const Pair& pair) { return shown(quantity.figure, pair); });
    if (quantity.without_p2p != nullptr) matrix.before = grid_of(run.gpus.size(), pairs_before, value_before);
    if (!matrix.after && !matrix.before) continue;
    if (staged) matrix.before_by = "through host memory";
    if (quantity.ways > 0)
      matrix.limits = grid_of(run.gpus.size(), run.pairs, [&](const Pair& pair) {
        const auto limit = limit_of(report, pair);
        return limit ? std::optional(*limit * quantity.ways) : std::nullopt;
      });
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

/// Values of a grid, sorted.
std::vector<double> values_of(const std::optional<Grid>& grid) {
  std::vector<double> values;
  for (const auto& row : grid.value_or(Grid()))
    for (const auto& cell : row)
      if (cell) values.push_back(*cell);
  std::ranges::sort(values);
  return values;
}

// ---- all-reduces ----------------------------------------------------------------------------------------------------

constexpr int kHidden = 8192;                   // values of a token's state, of a model of 70 billion parameters
constexpr int kBatches[] = {1, 16, 512, 4096};  // tokens
constexpr double kValueBytes = 2;               // bfloat16

/// Time of a ring all-reduce in microseconds, computed: 2 (N - 1) steps of the slowest pair's latency and a share.
std::optional<double> ring_us(double bytes, std::size_t gpus, const std::optional<Grid>& copies,
                              const std::optional<Grid>& latencies) {
  const std::vector<double> gb_s = values_of(copies), us = values_of(latencies);
  if (gb_s.empty() || us.empty()) return std::nullopt;
  const auto count = static_cast<double>(gpus);
  return 2 * (count - 1) * (us.back() + bytes / count / gb_s.front() / 1000);
}

std::vector<RingTime> all_reduces_of(const std::vector<Matrix>& matrices, std::size_t gpus) {
  const auto copies = std::ranges::find(matrices, "copy", &Matrix::id);
  const auto latencies = std::ranges::find(matrices, "latency", &Matrix::id);
  std::vector<RingTime> rows;
  if (gpus < 2 || copies == matrices.end() || latencies == matrices.end()) return rows;
  for (const int tokens : kBatches) {
    const double bytes = kValueBytes * kHidden * tokens;
    const auto after = ring_us(bytes, gpus, copies->after, latencies->after);
    if (!after) return {};
    rows.push_back({tokens, bytes, ring_us(bytes, gpus, copies->before, latencies->before), *after});
  }
  return rows;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

json judged(const Measured& one) {
  return {{"run", one.run},
          {"time", one.time},
          {"mode", one.report.measurement.mode},
          {"proven", one.report.judgement.proven},
          {"summary", one.report.judgement.summary}};
}

json limits_of(const std::vector<std::vector<Path>>& paths) {
  json grid = json::array();
  for (const auto& row : paths) {
    grid.push_back(json::array());
    for (const Path& path : row)
      grid.back().push_back(
          {{"kind", to_string(path.kind)}, {"limit_gb_s", path.payload_gb_s}, {"arithmetic", path.arithmetic}});
  }
  return grid;
}

json number(std::string label, std::string value, std::string note) {
  return {{"label", std::move(label)}, {"value", std::move(value)}, {"note", std::move(note)}};
}

/// Adds a figure such as "25.8 GB/s", "17.8 before, through host memory".
void add_figure(json& numbers, const ProofPart& proof, const char* id, const char* label) {
  const auto matrix = std::ranges::find(proof.matrices, id, &Matrix::id);
  if (matrix == proof.matrices.end() || !matrix->after) return;
  const std::string by = matrix->before_by.empty() ? "" : ", " + matrix->before_by;
  numbers.push_back(number(
      label, fmt::format("{:.1f} {}", median(values_of(matrix->after)), matrix->unit),
      matrix->before ? fmt::format("{:.1f} before{}", median(values_of(matrix->before)), by) : "median of the pairs"));
}

constexpr std::size_t kMostPoints = 2000;  // of a soak, also of a forged file

json point_of(const SoakSample& sample) {
  std::optional<double> hottest;
  for (const SoakGpu& gpu : sample.gpus) hottest = std::max<std::optional<double>>(hottest, gpu.temperature_c);
  return {sample.seconds, sample.slowest_gb_s, JsonWriter::json(hottest)};
}

}  // namespace

std::vector<Measured> proofs_in(const json& history) {
  std::vector<Measured> proofs = measurements_in(history);
  std::erase_if(proofs, [](const Measured& one) { return !one.report.proves(); });
  return proofs;
}

const Measured* fullest(const std::vector<Measured>& measurements) {
  if (measurements.empty()) return nullptr;
  const std::vector<std::string> gpus = addresses_of(measurements.front().report);
  const auto full = std::ranges::find_if(measurements, [&](const Measured& one) {
    return one.report.measurement.mode != "quick" && addresses_of(one.report) == gpus;
  });
  return full == measurements.end() ? &measurements.front() : &*full;
}

std::optional<ProofPart> proof_of(const Sources& sources) {
  std::vector<Measured> found;
  for (const json& step : list_of(sources.diagnosis, "steps"))
    if (const json& facts = field_of(step, "facts"); is_bench_report(facts))
      found.push_back({0, sources.made, bench_report_from(facts)});
  std::ranges::move(measurements_in(sources.history), std::back_inserter(found));
  const Measured* shown = fullest(found);
  if (shown == nullptr) return std::nullopt;
  const BenchReport before = is_bench_report(sources.baseline) ? bench_report_from(sources.baseline) : BenchReport();
  ProofPart proof{*shown, std::nullopt, matrices_of(shown->report, before.measurement), {}};
  if (shown != &found.front()) proof.again = found.front();
  proof.all_reduces = all_reduces_of(proof.matrices, shown->report.measurement.gpus.size());
  return proof;
}

std::vector<std::string> ProofPart::addresses() const { return addresses_of(shown.report); }

std::string ProofPart::collectives() const {
  const auto& nccl = shown.report.measurement.collectives;
  return nccl ? nccl->summary : "";
}

std::vector<std::vector<std::optional<std::string>>> ProofPart::bytes() const {
  const Measurement& run = shown.report.measurement;
  std::vector cells(run.gpus.size(), std::vector<std::optional<std::string>>(run.gpus.size()));
  const auto cell = [&](const auto& of) -> auto& {
    return cells[static_cast<std::size_t>(of.from)][static_cast<std::size_t>(of.to)];
  };
  for (std::size_t from = 0; from < cells.size(); ++from)
    for (std::size_t to = 0; to < cells.size(); ++to)
      if (run.gpus[from].group != run.gpus[to].group) cells[from][to] = kNotExpected;
  for (const Pair& pair : run.pairs)
    cell(pair) = !pair.access                  ? "no peer access"
                 : !pair.refused.empty()       ? "refused"
                 : pair.verified_bytes.empty() ? "not tested"
                                               : "ok";
  for (const Wrong& wrong : run.wrong)
    if (wrong.from >= 0) cell(wrong) = to_string(wrong.kind);
  return cells;
}

std::vector<std::string> ProofPart::gain_lines() const {
  std::vector<std::string> lines = shown.report.gain;
  lines.insert(lines.end(), shown.report.side_by_side.begin(), shown.report.side_by_side.end());
  if (const std::string nccl = collectives(); !nccl.empty()) lines.push_back(nccl);
  for (const RingTime& row : all_reduces) {
    const double kib = row.bytes / 1024;
    lines.push_back(fmt::format(
        "all-reduce of a batch of {} ({:g} {}; {} values in bfloat16 each), computed for a ring: {}{:.0f} us",
        row.tokens, kib < 1024 ? kib : kib / 1024, kib < 1024 ? "KiB" : "MiB", kHidden,
        row.before_us ? fmt::format("{:.0f} -> ", *row.before_us) : "", row.after_us));
  }
  return lines;
}

json json_of(const std::vector<RingTime>& times) { return JsonWriter::json(times); }

json json_of(const ProofPart& proof) {
  const BenchReport& report = proof.shown.report;
  json remarks = json::array();
  for (const Remark& remark : report.judgement.remarks)
    remarks.push_back({{"grade", to_string(remark.grade)}, {"text", remark.text}});
  json document = judged(proof.shown);
  document.update({{"again", proof.again ? judged(*proof.again) : json()},
                   {"addresses", proof.addresses()},
                   {"remarks", std::move(remarks)},
                   {"grades", JsonWriter::json(report.judgement.grades)},
                   {"kernel_log", report.kernel_log},
                   {"advice", report.advice},
                   {"gain", report.gain},
                   {"side_by_side", report.side_by_side},
                   {"limits", limits_of(report.paths)},
                   {"bytes", JsonWriter::json(proof.bytes())},
                   {"matrices", JsonWriter::json(proof.matrices)},
                   {"collectives", proof.collectives()},
                   {"all_reduces", json_of(proof.all_reduces)},
                   {"gain_lines", proof.gain_lines()}});
  return document;
}

json json_of(const Soak& soak) {
  const SoakSample& last = soak.samples.back();
  const std::size_t step = (soak.samples.size() + kMostPoints - 1) / kMostPoints;
  json points = json::array();
  for (std::size_t i = 0; i < soak.samples.size(); i += step) points.push_back(point_of(soak.samples[i]));
  return {{"minutes", last.seconds / 60},
          {"ended", soak.ended},
          {"checked_bytes", static_cast<double>(last.checked_bytes)},
          {"wrong", static_cast<double>(last.wrong)},
          {"points", std::move(points)}};
}

json pairs_with(const json& machine, const std::optional<ProofPart>& proof) {
  json pairs = list_of(machine, "pairs");
  if (!proof || proof->shown.report.paths.empty()) return pairs;
  json limits = limits_of(proof->shown.report.paths);
  std::vector<std::string> addresses;
  for (const json& gpu : list_of(machine, "gpus")) addresses.push_back(text_of(gpu, "address"));
  if (addresses != proof->addresses()) return limits;
  for (std::size_t from = 0; from < pairs.size(); ++from) {
    for (std::size_t to = 0; to < pairs[from].size(); ++to) {
      const json& measured = item_of(item_of(limits, from), to);
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

json numbers_of(const Sources& sources, const std::optional<ProofPart>& proof) {
  json numbers = json::array();
  const std::size_t here = list_of(sources.machine, "gpus").size();
  const std::size_t gpus = proof ? std::max(here, proof->addresses().size()) : here;
  numbers.push_back(number("GPUs", std::to_string(gpus), ""));
  if (!proof) return numbers;
  std::size_t right = 0, all = 0;
  for (const auto& row : proof->bytes()) {
    for (const auto& cell : row) {
      all += cell && *cell != kNotExpected ? 1 : 0;
      right += cell == "ok" ? 1 : 0;
    }
  }
  if (all > 0) numbers.push_back(number("Ordered pairs with correct bytes", fmt::format("{} of {}", right, all), ""));
  add_figure(numbers, *proof, "copy", "Copy, one way");
  add_figure(numbers, *proof, "latency", "Latency");
  return numbers;
}

}  // namespace ctl
}  // namespace p2pd
