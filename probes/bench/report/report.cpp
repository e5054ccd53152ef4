// SPDX-License-Identifier: MIT
#include "probes/bench/report/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/json_members.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

// Line limits of bug_report(): with six opening lines and two on software they make forty.
constexpr std::size_t kGpuLines = 8;
constexpr std::size_t kPairLines = 12;
constexpr std::size_t kLogLines = 7;
constexpr std::size_t kNotRunLines = 5;
constexpr std::size_t kLineLength = 240;  // characters

/// Replaces text that is not UTF-8, which the library refuses to print. Driver and kernel log may contain it.
void make_plain(nlohmann::json& json) {
  if (json.is_string()) {
    json = plain(json.get_ref<const std::string&>());
  } else if (json.is_structured()) {
    for (auto& item : json) make_plain(item);
  }
}

std::string or_unknown(const nlohmann::json& machine, const char* key) {
  const std::string text = fact(machine, key);
  return text.empty() ? "unknown" : text;
}

/// "0000:16:01.0 (request redirect), ..." for the ports with ACS redirect.
std::string acs_text(const nlohmann::json& machine) {
  const auto ports = machine.find("acs");
  if (ports == machine.end() || !ports->is_object()) return "unknown";
  std::vector<std::string> redirecting;
  for (const auto& [port, bits] : ports->items()) {
    if (!bits.empty()) redirecting.push_back(fmt::format("{} ({})", port, fact(*ports, port.c_str())));
  }
  if (redirecting.empty()) return "redirects nothing";
  return fmt::format("{} redirecting: {}", count_name(redirecting.size(), "port"), fmt::join(redirecting, ", "));
}

std::vector<std::string> opening_lines(const Report& report) {
  const Measurement& run = report.measurement;
  const nlohmann::json& machine = report.machine;
  const auto open = machine.find("open_modules");
  const bool told = open != machine.end() && open->is_boolean();
  const std::string build_id = fact(machine, "build_id");
  const std::string options = fact(machine, "registry_options");
  const std::string arguments = fact(machine, "iommu_arguments");
  return {
      fmt::format("p2pd {} p2p-bench, {}", P2PD_VERSION, report.judgement.summary),
      fmt::format("driver {}{}, srcversion {}{}, CUDA {}", or_unknown(machine, "driver_version"),
                  !told   ? ""
                  : *open ? " open modules"
                          : " proprietary modules",
                  or_unknown(machine, "srcversion"), build_id.empty() ? "" : ", build id " + build_id, run.driver),
      fmt::format("kernel {}, IOMMU domain {}, arguments: {}", or_unknown(machine, "kernel"),
                  or_unknown(machine, "iommu_domain"), arguments.empty() ? "none" : arguments),
      fmt::format("RegistryDwords: {}", options.empty() ? "none" : options),
      fmt::format("ACS: {}", acs_text(machine)),
      fmt::format("seed {}, mode {}{}", run.seed, run.mode, run.fault.empty() ? "" : ", SEEDED FAULT " + run.fault),
  };
}

std::string gpu_text(const Gpu& gpu, const nlohmann::json& machine) {
  const nlohmann::json facts = gpu_facts(machine, gpu.address);
  std::string text = fmt::format("GPU {} {} {} {}", gpu.index, gpu.address, gpu.name, size_name(gpu.memory_bytes));
  if (const auto bar1 = json_number<std::uint64_t>(facts, "bar1_bytes")) text += ", BAR1 " + size_name(bar1);
  const std::string node = fact(facts, "numa_node");
  if (!node.empty()) text += ", node " + node;
  return text + (gpu.in_use ? ", in use" : "");
}

std::vector<std::string> gpu_lines(const Report& report) {
  std::vector<std::string> lines;
  const std::vector<Gpu>& gpus = report.measurement.gpus;
  const std::size_t a_line = (gpus.size() + kGpuLines - 1) / kGpuLines;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const std::string text = gpu_text(gpus[i], report.machine);
    if (i % a_line == 0) {
      lines.push_back(text);
    } else {
      lines.back() += "; " + text;
    }
  }
  return lines;
}

/// Pairs with equal results, and the range of their figures.
struct Alike {
  Grade grade = Grade::pass;
  std::vector<std::string> names;
  std::vector<double> gb_s;
  std::vector<double> us;
};

/// Results of the writer and of the owner after SM stores, then the first other failing test.
std::string bytes_text(const Measurement& run, const Pair& pair) {
  std::string writer = pair.verified_bytes.contains("store-writer-reads") ? "ok" : "-";
  std::string owner = pair.verified_bytes.contains("store") ? "ok" : "-";
  std::string other;
  for (const Wrong& wrong : run.wrong) {
    if (wrong.from != pair.from || wrong.to != pair.to) continue;
    if (wrong.kind == WrongKind::mirror) {
      writer = "ok";
      owner = "LOST";
    } else if (wrong.test == "store") {
      owner = to_string(wrong.kind);
    } else if (wrong.test == "store-writer-reads") {
      writer = to_string(wrong.kind);
    } else if (other.empty()) {
      other = fmt::format(", {} {}", wrong.test, to_string(wrong.kind));
    }
  }
  if (!pair.refused.empty()) return "refused: " + pair.refused;
  if (!pair.access) return "no peer access";
  return fmt::format("writer {} owner {}{}", writer, owner, other);
}

std::string range_text(const std::vector<double>& values, std::string_view unit) {
  return fmt::format("{} {}", values.empty() ? "-" : range_name(values), unit);
}

/// Lines per pair, worst first; many pairs are grouped by equal results.
std::vector<std::string> pair_lines(const Report& report) {
  const Measurement& run = report.measurement;
  const bool condensed = run.pairs.size() > kPairLines;
  std::map<std::tuple<int, std::size_t, std::string>, Alike> groups;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const Pair& pair = run.pairs[i];
    const Grade grade = grade_of(report.judgement, pair.from, pair.to);
    Alike& alike = groups[{condensed ? -static_cast<int>(grade) : 0, condensed ? 0 : i, bytes_text(run, pair)}];
    alike.grade = grade;
    alike.names.push_back(fmt::format("{}->{}", pair.from, pair.to));
    if (const auto rate = median_of(pair.copy_gb_s)) alike.gb_s.push_back(*rate);
    const auto latency = median_of(pair.chase_ns ? pair.chase_ns : pair.ping_pong_ns);
    if (latency) alike.us.push_back(*latency / 1000);
  }
  std::vector<std::string> lines;
  for (const auto& [key, alike] : groups) {
    const std::size_t count = alike.names.size();
    std::string line = count == 1 ? "" : count_name(count, "pair") + ": ";
    line += fmt::format("{} {}", fmt::join(limited(alike.names, kPairLines), " "), std::get<2>(key));
    line += fmt::format(" {} {}", range_text(alike.gb_s, "GB/s"), range_text(alike.us, "us"));
    if (alike.grade != Grade::pass) line += fmt::format(" {}", to_string(alike.grade));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

nlohmann::json to_json(const Report& report) {
  nlohmann::json document = json_of(report);
  for (const char* printed : {"gain", "side_by_side", "advice"}) document.erase(printed);  // a saved file has none
  document["schema"] = "p2pd.bench/1";
  if (const auto& nccl = report.measurement.collectives) document["collectives"]["summary"] = nccl_line(*nccl);
  document["thresholds"] = to_json(report.thresholds);
  document["wanted"] = nlohmann::json::array();
  for (const P2pUse use : report.wanted) document["wanted"].push_back(to_string(use));
  document["machine"] = report.machine;
  for (const Other& other : report.others) document["beside"].push_back(to_json(other));
  make_plain(document);
  return document;
}

std::string bug_report(const Report& report) {
  std::vector<std::string> lines = opening_lines(report);
  const auto add = [&lines](std::vector<std::string> section, std::size_t most) {
    std::ranges::move(limited(std::move(section), most), std::back_inserter(lines));
  };
  add(gpu_lines(report), kGpuLines);
  if (!report.measurement.not_run.contains(kEverything)) add(pair_lines(report), kPairLines);
  if (const auto& nccl = report.measurement.collectives) {
    const std::string level = nccl->p2p_level.empty() ? "" : ", NCCL_P2P_LEVEL=" + nccl->p2p_level;
    add({nccl_line(*nccl) + (nccl->transports.empty() ? "" : "; " + transports_name(*nccl)) + level}, 1);
  }
  const std::string atomics = atomics_line(report.measurement);
  if (!atomics.empty()) add({atomics}, 1);
  add(not_run_lines(report.measurement), kNotRunLines);
  std::vector<std::string> log = report.kernel_log;
  for (std::string& line : log) line.insert(0, "kernel: ");
  add(std::move(log), kLogLines);
  std::string text;
  for (const std::string& line : lines) text += plain(line).substr(0, kLineLength) + "\n";
  return text;
}

std::string phase_table(const Measurement& measurement) {
  std::string text = fmt::format("{:<32}{:>10}{:>10}\n", "phase", "start ms", "length ms");
  for (const Phase& phase : measurement.phases) {
    text += fmt::format("{:<32}{:>10.1f}{:>10.1f}\n", plain(phase.name), phase.start_ms, phase.length_ms);
  }
  return text + fmt::format("{:<32}{:>10}{:>10.1f}\n", "all", "", measurement.wall_ms);
}

}  // namespace p2pd::bench
