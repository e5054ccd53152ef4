// SPDX-License-Identifier: MIT
// advice: "SETTING: evidence", one line each. A line without evidence, or without an effect, is left
// out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "machine/hardware/nccl.hpp"
#include "probes/bench/report/report.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

std::string node_of(const Report& report, int gpu) {
  const auto& gpus = report.measurement.gpus;
  const auto index = static_cast<std::size_t>(gpu);
  if (index >= gpus.size()) return {};
  const std::string node = fact(gpu_facts(report.machine, gpus[index].address), "numa_node");
  return node == "-1" ? "" : node;
}

/// Gain of the largest collective that ran with P2P on and off, all_reduce before others, with its text.
struct CollectiveGain {
  double ratio = 0;
  std::string text;
};
CollectiveGain collective_gain(const Collectives& collectives) {
  CollectiveGain best;
  std::pair<bool, std::uint64_t> rank{false, 0};
  for (const Collective& on : collectives.results) {
    for (const Collective& off : collectives.results) {
      const std::pair<bool, std::uint64_t> own{on.name == "all_reduce", on.bytes};
      const auto fast = median_of(on.bus_gb_s);
      const auto slow = median_of(off.bus_gb_s);
      if (!on.p2p || off.p2p || on.name != off.name || on.bytes != off.bytes || !fast || !slow || own < rank) continue;
      rank = own;
      best = {*fast / *slow,
              fmt::format("{} {}: {:.1f} GB/s, {:.1f} GB/s without P2P", on.name, size_name(on.bytes), *fast, *slow)};
    }
  }
  return best;
}

/// Channels through host memory or a network.
std::string detours_of(const Collectives& collectives) {
  std::vector<std::string> names;
  for (const auto& [name, channels] : collectives.transports) {
    if (channels > 0 && (name.starts_with("SHM") || name.starts_with("NET"))) {
      names.push_back(fmt::format("{} x {}", name, channels));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string slower_line(const NcclNeed& need) { return "NCCL_P2P_LEVEL=PHB: " + need.why(); }

/// Line from an actual run of NCCL, which is better evidence than its known behaviour.
std::string level_line_of_run(const Collectives& nccl, const NcclNeed& pairs) {
  const std::string detours = detours_of(nccl);
  const std::string level = pairs.sys > 0 || pairs.phb == 0 ? "SYS" : "PHB";
  const CollectiveGain gain = collective_gain(nccl);
  if (detours.empty()) {
    if (!nccl.p2p_level.empty() && gain.ratio > 1) {
      return fmt::format("NCCL_P2P_LEVEL={}: with it NCCL {} uses P2P only; {}", nccl.p2p_level, nccl.version,
                         gain.text);
    }
    return pairs.slower > 0 && gain.ratio < 1 ? slower_line(pairs) : "";
  }
  if (pairs.slower > 0) return pairs.phb == 0 ? "" : slower_line(pairs);
  if (nccl.p2p_level == level) {
    return fmt::format(
        "NCCL_DEBUG=INFO: NCCL {} DOES NOT USE PROVEN P2P, even with NCCL_P2P_LEVEL={}: {}; its log says why",
        nccl.version, level, detours);
  }
  return fmt::format("NCCL_P2P_LEVEL={}: NCCL {} DOES NOT USE PROVEN P2P by itself: {}{}", level, nccl.version, detours,
                     pairs.example.empty() ? "" : "; " + pairs.example + " is beyond PXB");
}

std::string level_line(const Report& report) {
  if (!report.judgement.proven) return {};
  const NcclNeed need = nccl_need(report.measurement, report.paths);
  const auto& nccl = report.measurement.collectives;
  if (nccl && !nccl->transports.empty()) return level_line_of_run(*nccl, need);
  if (need.by_itself) return {};
  return fmt::format("NCCL_P2P_LEVEL={}: {}{}", to_string(need.level), need.why(),
                     need.slower > 0 ? "" : "; --collectives shows it");
}

/// Wrong data in the tests, or else an end; wrong data in a collective that is right without P2P.
std::string failure_of(const Measurement& run) {
  std::set<std::pair<int, int>> pairs;
  for (const Wrong& wrong : run.wrong)
    if (!is_end(wrong.kind)) pairs.emplace(wrong.from, wrong.to);
  const auto first = std::ranges::find_if_not(run.wrong, is_end, &Wrong::kind);
  if (first != run.wrong.end())
    return fmt::format("wrong data on {} ({}: {} {})", count_name(pairs.size(), "pair"),
                       pair_name(first->from, first->to), first->test, to_string(first->kind));
  if (!run.wrong.empty()) return end_name(run.wrong.front());
  if (!run.collectives) return {};
  const auto& results = run.collectives->results;
  const auto off = std::ranges::find_if(results, [](const Collective& one) { return !one.p2p && one.wrong > 0; });
  const auto on = std::ranges::find_if(results, [](const Collective& one) { return one.p2p && one.wrong > 0; });
  if (off != results.end() || on == results.end()) return {};
  return fmt::format("{} {}: {}", on->name, size_name(on->bytes), count_name(on->wrong, "wrong element"));
}

/// Switches off what depends on a test that failed.
std::string failure_line(const Measurement& run) {
  const std::string what = failure_of(run);
  if (what.empty()) return {};
  const auto harms = [&](P2pUse use) {
    return run.wrong.empty() || std::ranges::any_of(run.wrong, [&](const Wrong& wrong) {
             return concerns({.test = wrong.test, .text = {}}, use);
           });
  };
  if (harms(P2pUse::nccl))
    return "NCCL_P2P_DISABLE=1, and vLLM with --disable-custom-all-reduce, until this is repaired: " + what;
  if (harms(P2pUse::custom_all_reduce))
    return "--disable-custom-all-reduce of vLLM and SGLang, until this is repaired; NCCL is not affected: " + what;
  return {};
}

std::string parallelism_line(const Report& report) {
  const AtomicsState atomics = atomics_state(report.measurement);
  if (!report.judgement.proven || atomics.pairs == 0) return {};
  std::string why;
  if (!atomics.problem.empty()) {
    why = "atomics failed, " + atomics.problem;
  } else if (atomics.native < atomics.pairs) {
    why = fmt::format("atomics are NS on {} of {}, normal for P2P over BAR1", atomics.pairs - atomics.native,
                      count_name(atomics.pairs, "pair"));
  } else if (atomics.exact < atomics.pairs) {
    return {};
  } else {
    return fmt::format(
        "Expert parallelism (DeepEP), NVSHMEM and FlashInfer one-shot all-to-all can be used: native atomics, exact on "
        "{}",
        count_name(atomics.pairs, "pair"));
  }
  return "Tensor parallelism (NCCL rings, vLLM custom all-reduce) or expert parallelism over NCCL all-to-all, not "
         "NVSHMEM "
         "(DeepEP) nor FlashInfer one-shot all-to-all: " +
         why;
}

void put_pinning(const Report& report, std::vector<std::string>& lines) {
  struct Node {
    std::vector<int> gpus;
    std::string cpus;
  };
  std::map<std::string, Node> nodes;
  for (const Gpu& gpu : report.measurement.gpus) {
    const std::string name = node_of(report, gpu.index);
    if (name.empty()) continue;
    nodes[name].gpus.push_back(gpu.index);
    nodes[name].cpus = fact(gpu_facts(report.machine, gpu.address), "local_cpulist");
  }
  if (nodes.size() < 2) return;
  for (const auto& [name, node] : nodes) {
    const std::string cpus = node.cpus.empty() ? "" : fmt::format(" (CPUs {})", node.cpus);
    lines.push_back(fmt::format("numactl --cpunodebind={0} --membind={0} for GPU{1} {2}: on NUMA node {0}{3}", name,
                                node.gpus.size() == 1 ? "" : "s", fmt::join(node.gpus, ", "), cpus));
  }
}

std::string order_line(const Measurement& run) {
  std::set<std::string> names;
  for (const Gpu& gpu : run.gpus) names.insert(gpu.name);
  if (names.size() < 2) return {};
  return fmt::format(
      "CUDA_DEVICE_ORDER=PCI_BUS_ID: the cards differ ({}), and CUDA counts the fastest first unless told",
      fmt::join(names, ", "));
}

std::string rdma_line(const Report& report) {
  const nlohmann::json& machine = report.machine;
  const std::string nics = fact(machine, "rdma_nics");
  if (nics.empty()) return {};
  const auto is_geforce = [](const Gpu& gpu) { return gpu.name.find("GeForce") != std::string::npos; };
  if (std::ranges::any_of(report.measurement.gpus, is_geforce))
    return fmt::format("GPUDirect RDMA to NIC {}: NVIDIA's own drivers refuse it on GeForce", nics);
  const std::string peermem = fact(machine, "peermem_loaded");
  const std::string open = fact(machine, "open_modules");
  if (peermem == "true") return fmt::format("GPUDirect RDMA is ready: NIC {}, nvidia_peermem is loaded", nics);
  if (open == "true") return fmt::format("GPUDirect RDMA is ready: NIC {}, open modules (DMA-BUF)", nics);
  if (peermem != "false" || open != "false") return {};
  return fmt::format("modprobe nvidia_peermem for GPUDirect RDMA: NIC {}, and neither nvidia_peermem nor open modules",
                     nics);
}

}  // namespace

std::vector<std::string> advice(const Report& report) {
  std::vector<std::string> lines;
  const Measurement& run = report.measurement;
  if (!run.fault.empty() || run.gpus.size() < 2) return lines;
  const auto add = [&](std::string line) {
    if (!line.empty()) lines.push_back(std::move(line));
  };
  add(failure_line(run));
  add(level_line(report));
  add(parallelism_line(report));
  put_pinning(report, lines);
  add(order_line(run));
  add(rdma_line(report));
  for (std::string& line : lines) line = plain(line);
  return lines;
}

}  // namespace p2pd::bench
