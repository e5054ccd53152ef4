// SPDX-License-Identifier: MIT
// Benchmarks that guides run, beside p2p-bench: on the same GPUs in the same order, with the output of each as one
// table. The first two do not verify the data that they move. Reference: cuda-samples, p2pBandwidthLatencyTest.cu: its
// bidirectional figures are sums of both ways; nvbandwidth, README.md; nccl-tests, doc/PERFORMANCE.md.
#include "probes/bench/collectives/others.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/json.hpp"
#include "base/signatures.hpp"
#include "machine/fetch/signature.hpp"
#include "probes/bench/collectives/collectives.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

constexpr std::chrono::minutes kLimit{2};

std::string name_of(const std::string& program) { return std::filesystem::path(program).filename(); }

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

std::optional<double> number(const std::string& word) {
  std::istringstream text(word);
  double value = 0;
  return text >> value && text.peek() == std::char_traits<char>::eof() ? std::optional(value) : std::nullopt;
}

/// Matrix below the first line that begins with `heading`: a line of columns, then rows "0 1.5 2.5". `to_row`: a row
/// lists the transfers to its GPU.
Other::Matrix matrix(std::string_view output, std::string_view heading, bool to_row = false) {
  Other::Matrix cells;
  std::istringstream lines{std::string(output)};
  std::string line;
  while (std::getline(lines, line) && !line.starts_with(heading)) continue;
  std::getline(lines, line);
  for (int row = 0; std::getline(lines, line); ++row) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || words[0] != std::to_string(row)) break;
    for (int column = 0; column + 1 < static_cast<int>(words.size()); ++column)
      if (const auto value = number(words[static_cast<std::size_t>(column) + 1]); value && column != row)
        cells[to_row ? std::pair(column, row) : std::pair(row, column)] = *value;
  }
  return cells;
}

/// Rows below "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"; the largest size counts.
/// Before 2.13 there is no "root", and "error" or "res", the largest relative error, instead of "#wrong": then the line
/// "# Out of bounds values : 2 FAILED" counts the sizes that are wrong.
void parse_all_reduce(std::string_view output, Other& other) {
  std::istringstream lines{std::string(output)};
  std::vector<std::string> columns;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = words_of(line);
    const bool heads = words.size() > 1 && words[0] == "#" && std::ranges::count(words, "busbw") == 2;
    if (heads) columns.assign(words.begin() + 1, words.end());
    if (line.starts_with("# Out of bounds values : ") && line.ends_with(" FAILED") && other.wrong == 0)
      other.wrong = static_cast<std::uint64_t>(number(words[words.size() - 2]).value_or(1));
    if (columns.empty() || words.size() != columns.size() || !number(words[0])) continue;
    const auto bus_column = std::ranges::find(columns, "busbw") - columns.begin();
    if (const auto bus = number(words[static_cast<std::size_t>(bus_column)]); bus && *bus > 0)
      other.all_reduce_gb_s = bus;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns[i] == "#wrong") other.wrong += static_cast<std::uint64_t>(number(words[i]).value_or(0));
  }
}

/// Cause of output without figures, with what to do, if signatures.yaml knows it; else `otherwise`.
std::string known_or(std::string_view output, std::string_view otherwise) {
  const auto known = program_failure(output);
  return known ? fmt::format("{}. {}", known->cause, known->fix) : std::string(otherwise);
}

std::uint64_t largest_bytes(const Measurement& run) {
  const Collective* own = run.collectives ? largest_all_reduce(*run.collectives, true) : nullptr;
  return own != nullptr ? own->bytes : *std::rbegin(kCollectiveBytes);
}

std::vector<std::string> arguments(const std::string& name, const Measurement& run) {
  if (name == "nvbandwidth") return {"-t", "device_to_device_memcpy_write_ce", "device_to_device_latency_sm"};
  if (name != "all_reduce_perf") return {};
  const std::string bytes = std::to_string(largest_bytes(run));
  return {"-b", bytes, "-e", bytes, "-g", std::to_string(run.gpus.size())};
}

/// Reason why `program` must not run here; empty: it may. A name is looked for in the directories of the system only.
std::string refused(const std::string& program) {
  if (program.find('/') == std::string::npos || ::geteuid() != 0) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(program, error);
  if (error) return "not installed";
  const Result<void> safe = only_root_changes(file);
  return safe ? "" : fmt::format("root does not run it: {}", safe.error().message);
}

Other run_other(CommandRunner& runner, const Measurement& run, const std::string& program) {
  if (std::ranges::any_of(run.wrong, is_end, &Wrong::kind)) return {program, "a GPU faulted or hung before"};
  if (std::ranges::find(kOthers, name_of(program)) == std::end(kOthers))
    return {program, fmt::format("its output is not known, unlike that of {}", fmt::join(kOthers, ", "))};
  if (std::string why = refused(program); !why.empty()) return {program, std::move(why)};
  Command command{{program}, {}, {}};
  for (std::string& word : arguments(name_of(program), run)) command.argv.push_back(std::move(word));
  std::vector<std::string> uuids;
  for (const Gpu& gpu : run.gpus) uuids.push_back(gpu.uuid);
  command.environment = own_environment();
  command.environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(uuids, ","));
  command.deadline = kLimit;
  const Result<CommandResult> result = runner.run(command);
  if (!result && result.error().code == ErrorCode::not_found) return {program, "not installed"};
  if (!result) return {program, result.error().message};
  if (const Result<void> ended = require_success(command, *result); !ended)
    return {program, known_or(result->output + ended.error().message, ended.error().message)};
  return parse_other(program, result->output);
}

std::string cell(const std::vector<double>& values, int digits) {
  return values.empty() ? "-" : fmt::format("{:.{}f}", median(values), digits);
}

std::vector<double> values_of(const Other::Matrix& matrix) {
  std::vector<double> values;
  for (const auto& [pair, value] : matrix) values.push_back(value);
  return values;
}

/// Medians of p2p-bench over all pairs.
std::vector<double> own(const Measurement& run, std::optional<Figure> Pair::*figure, double unit = 1) {
  std::vector<double> values;
  for (const Pair& pair : run.pairs)
    if (const auto median = median_of(pair.*figure)) values.push_back(*median / unit);
  return values;
}

std::vector<double> own_all_reduce(const Measurement& run) {
  const Collective* largest = run.collectives ? largest_all_reduce(*run.collectives, true) : nullptr;
  const auto bus = largest != nullptr ? median_of(largest->bus_gb_s) : std::nullopt;
  return bus ? std::vector{*bus} : std::vector<double>();
}

std::string row(std::string_view name, const std::vector<std::string>& cells) {
  return fmt::format("{:<24}{:>11}{:>16}{:>12}{:>17}", name, cells[0], cells[1], cells[2], cells[3]);
}

nlohmann::json to_json(const Other::Matrix& matrix) {
  nlohmann::json cells = nlohmann::json::array();
  for (const auto& [pair, value] : matrix) cells.push_back({pair.first, pair.second, value});
  return cells;
}

}  // namespace

Other parse_other(const std::string& program, std::string_view output) {
  Other other{program};
  const std::string name = name_of(program);
  if (name == "p2pBandwidthLatencyTest") {
    other.copy_gb_s = matrix(output, "Unidirectional P2P=Enabled Bandwidth");
    other.copy_both_gb_s = matrix(output, "Bidirectional P2P=Enabled Bandwidth");
    other.latency_us = matrix(output, "P2P=Enabled Latency");
  } else if (name == "nvbandwidth") {
    other.copy_gb_s = matrix(output, "memcpy CE GPU(row) <- GPU(column)", true);
    other.latency_us = matrix(output, "Device to Device Latency SM", true);
    for (auto& [pair, latency] : other.latency_us) latency /= 1000;  // ns
  } else {
    parse_all_reduce(output, other);
  }
  if (other.copy_gb_s.empty() && !other.all_reduce_gb_s)
    other.not_run = known_or(output, "it printed no figures that are understood");
  return other;
}

std::vector<Other> run_others(CommandRunner& runner, const Measurement& run, const std::vector<std::string>& programs) {
  std::vector<Other> others;
  for (const std::string& program : programs) others.push_back(run_other(runner, run, program));
  return others;
}

std::vector<std::string> side_by_side(const Measurement& run, const std::vector<Other>& others) {
  if (others.empty()) return {};
  std::vector<std::string> lines = {
      row("median of all pairs", {"copy GB/s", "both ways GB/s", "latency us", "all-reduce GB/s"}),
      row("p2p-bench", {cell(own(run, &Pair::copy_gb_s), 1), cell(own(run, &Pair::copy_both_gb_s), 1),
                        cell(own(run, &Pair::chase_ns, 1000), 2), cell(own_all_reduce(run), 1)})};
  std::vector<std::string> absent;
  for (const Other& other : others) {
    if (!other.not_run.empty()) {
      absent.push_back(fmt::format("{}: {}", other.program, other.not_run));
      continue;
    }
    const auto bus = other.all_reduce_gb_s;
    lines.push_back(
        row(name_of(other.program), {cell(values_of(other.copy_gb_s), 1), cell(values_of(other.copy_both_gb_s), 1),
                                     cell(values_of(other.latency_us), 2), bus ? fmt::format("{:.1f}", *bus) : "-"}));
    if (other.wrong > 0) absent.push_back(fmt::format("{}: {} wrong elements", other.program, other.wrong));
  }
  std::ranges::move(absent, std::back_inserter(lines));
  for (std::string& line : lines) line = plain(line);
  return lines;
}

nlohmann::json to_json(const Other& other) {
  if (!other.not_run.empty()) return {{"program", other.program}, {"not_run", other.not_run}};
  nlohmann::json json = {{"program", other.program},
                         {"copy_gb_s", to_json(other.copy_gb_s)},
                         {"copy_both_gb_s", to_json(other.copy_both_gb_s)},
                         {"latency_us", to_json(other.latency_us)},
                         {"wrong", other.wrong}};
  if (other.all_reduce_gb_s) json["all_reduce_gb_s"] = *other.all_reduce_gb_s;
  return json;
}

}  // namespace p2pd::bench
