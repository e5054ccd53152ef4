// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "probes/bench/report/judge.hpp"
#include "probes/bench/report/report.hpp"

namespace p2pd::bench {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline Figure figure(double median) { return {median, median * 0.99, median * 1.01, 4}; }

/// A proven run of `count` RTX 4090 without native atomics; the first half sits on socket 0, the others on socket 1.
inline Report example(int count) {
  Report report;
  Measurement& run = report.measurement;
  run.driver = "12.4";
  run.mode = "default";
  run.seed = "0x1f2e3d4c5b6a7988";
  report.machine = {{"kernel", "6.8.0-60-generic"},     {"driver_version", "550.90.07"},
                    {"srcversion", "0123456789ABCDEF"}, {"open_modules", true},
                    {"registry_options", ""},           {"iommu_arguments", {"amd_iommu=on", "iommu=pt"}},
                    {"iommu_domain", "identity"},       {"acs", {{"0000:00:01.1", nlohmann::json::array()}}},
                    {"peermem_loaded", false},          {"rdma_nics", nlohmann::json::array()},
                    {"gpus", nlohmann::json::array()}};
  const int half = (count + 1) / 2;
  for (int i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.uuid = fmt::format("GPU-{}", i);
    gpu.address = fmt::format("0000:{:02x}:00.0", 16 * i + 1);
    gpu.name = "NVIDIA GeForce RTX 4090";
    gpu.memory_bytes = std::uint64_t{24} << 30;
    const int node = i < half ? 0 : 1;
    report.machine["gpus"].push_back({{"address", gpu.address},
                                      {"numa_node", node},
                                      {"local_cpulist", node == 0 ? "0-31" : "32-63"},
                                      {"bar1_bytes", std::uint64_t{32} << 30}});
    run.gpus.push_back(gpu);
  }
  const auto size = static_cast<std::size_t>(count);
  report.paths.assign(size, std::vector<Path>(size));
  report.judgement.grades.assign(size, std::vector<Grade>(size, Grade::pass));
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      Pair pair;
      pair.from = from;
      pair.to = to;
      pair.access = true;
      pair.verified_bytes = {{"copy-push", 1U << 26}, {"store", 1U << 22}, {"store-writer-reads", 1U << 22}};
      pair.copy_gb_s = figure(25 + 0.1 * from);
      pair.staged_gb_s = figure(21.4);
      pair.chase_ns = figure(1200 + to);
      pair.staged_ns = figure(11700);
      run.pairs.push_back(pair);
      const bool far = (from < half) != (to < half);
      Path& path = report.paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      path.kind = far ? PathKind::cross_socket : PathKind::one_socket;
      path.topology = far ? "SYS" : "NODE";
    }
  }
  report.judgement.proven = true;
  report.judgement.summary = fmt::format("proven: {} ordered pairs", run.pairs.size());
  return report;
}

/// NCCL as it ran on such a machine, P2P on at `on_gb_s` and off at 14.5 GB/s.
inline Collectives nccl(std::map<std::string, int> transports, const std::string& level, double on_gb_s) {
  Collectives nccl;
  nccl.version = "2.28.3";
  nccl.library = "/usr/lib/libnccl.so.2";
  for (const char* pair : {"GPU 0 -> GPU 1", "GPU 1 -> GPU 0"})
    if (!transports.empty()) nccl.pairs[pair] = transports.begin()->first;
  nccl.transports = std::move(transports);
  nccl.p2p_level = level;
  constexpr std::uint64_t kBytes = std::uint64_t{512} << 20;
  nccl.results.push_back({"all_reduce", true, kBytes, figure(on_gb_s), figure(1e6), 0});
  nccl.results.push_back({"all_reduce", false, kBytes, figure(14.5), figure(1e6), 0});
  return nccl;
}

using Paths = std::vector<std::vector<Path>>;

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

inline Path path_of(PathKind kind, double raw = 110, double payload = 100) {
  Path path;
  path.kind = kind;
  path.raw_gb_s = raw;
  path.payload_gb_s = payload;
  path.arithmetic = raw > 0 ? "the arithmetic" : "link not readable";
  return path;
}

inline Paths paths_of(std::size_t gpus, const Path& path) { return Paths(gpus, std::vector<Path>(gpus, path)); }

inline Pair good_pair(int from, int to, double gb_s) {
  Pair pair;
  pair.from = from;
  pair.to = to;
  pair.access = true;
  for (const char* test : {"copy-push", "copy-pull", "store", "load"}) pair.verified_bytes[test] = kGiB;
  pair.copy_gb_s = figure(gb_s);
  pair.copy_both_gb_s = figure(2 * gb_s);
  pair.chase_ns = figure(1200);
  return pair;
}

inline Measurement good_run(int gpus, const std::function<double(int, int)>& rate) {
  Measurement run;
  run.mode = "default";
  for (int i = 0; i < gpus; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.name = "NVIDIA Test";
    run.gpus.push_back(gpu);
    for (int j = 0; j < gpus; ++j) {
      if (i != j) run.pairs.push_back(good_pair(i, j, rate(i, j)));
    }
  }
  return run;
}

/// Two GPUs at 90 of 100 GB/s, and functions that change them.
struct Bench {
  Measurement run = good_run(2, [](int, int) { return 90.0; });
  Paths paths = paths_of(2, path_of(PathKind::pcie_switch));
  Thresholds thresholds;

  Pair& there() { return run.pairs[0]; }
  Pair& back() { return run.pairs[1]; }
  /// The same rate in both directions and both ways.
  void rate(double gb_s) {
    for (Pair& pair : run.pairs) {
      pair.copy_gb_s = figure(gb_s);
      pair.copy_both_gb_s = figure(2 * gb_s);
    }
  }
  Uses wanted = usual_uses();
  Judgement judged() const { return judge(run, paths, thresholds, {}, wanted); }
};

/// From GPU 0 to GPU 1.
inline Wrong wrong(const char* test, WrongKind kind = WrongKind::lost) {
  Wrong found;
  found.test = test;
  found.from = 0;
  found.to = 1;
  found.words = 1;
  found.kind = kind;
  return found;
}

inline Fitness::Kind fit(const Judgement& judgement, P2pUse use) {
  return std::ranges::find(judgement.fit, to_string(use), &Fitness::use)->kind;
}

inline std::string texts(const Judgement& judgement) {
  std::string all;
  for (const Remark& remark : judgement.remarks) {
    all += fmt::format("{} {}: {}\n", to_string(remark.grade), remark.test, remark.text);
  }
  return all;
}

/// Remark of the rule `test` on GPU 0 -> GPU 1; pass if there is none.
inline Remark said(const Judgement& judgement, const std::string& test) {
  for (const Remark& remark : judgement.remarks) {
    if (remark.test == test && remark.from == 0 && remark.to == 1) return remark;
  }
  return {};
}

}  // namespace p2pd::bench
