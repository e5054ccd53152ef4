// SPDX-License-Identifier: MIT
// Runs of other benchmarks as figures of p2p-bench, and nvidia-smi matrices as the driver prints them: the verdict must
// match their meaning in the field.
#include <algorithm>
#include <functional>
#include <iostream>

#include "bench_example.hpp"
#include "catch.hpp"
#include "machines.hpp"
#include "probes/bench/collectives/collectives.hpp"

namespace p2pd {
extern const Probe kDriverPeers;
}

using namespace p2pd;
using namespace p2pd::bench;
using p2pd::test::ChangedRecord;
using p2pd::test::FakeRunner;
using p2pd::test::holds;

namespace {

constexpr double kGen4x16 = 31.5, kGen5x16 = 63.0;  // raw GB/s
constexpr double kAmd = 0.914, kIntel = 0.727;      // what MaxPayload 256 leaves; Intel root ports split to 64 bytes

void told(const std::string& name, const std::string& outcome) {
  std::cout << fmt::format("{:<46} {}\n", name, outcome);
}

/// `gpus` cards, every pair at `gb_s(from, to)` one way and twice that both ways; groups of `island` share a socket.
Report run_of(int gpus, const std::function<double(int, int)>& gb_s, double raw = kGen4x16, double share = kAmd,
              int island = 99) {
  Report report = example(gpus);
  for (Pair& pair : report.measurement.pairs) {
    pair.verified_bytes = {{"copy-push", 1U << 30}, {"copy-pull", 1U << 30}, {"store", 1U << 30}, {"load", 1U << 30}};
    pair.copy_gb_s = figure(gb_s(pair.from, pair.to));
    pair.copy_both_gb_s = figure(2 * gb_s(pair.from, pair.to));
    pair.staged_gb_s.reset();
    Path& path = report.paths[static_cast<std::size_t>(pair.from)][static_cast<std::size_t>(pair.to)];
    const bool near = pair.from / island == pair.to / island;
    path.kind = near ? PathKind::one_socket : PathKind::cross_socket;
    path.topology = near ? "NODE" : "SYS";
    path.intel_root = share == kIntel;
    path.raw_gb_s = raw;
    path.payload_gb_s = raw * share;
    path.arithmetic = fmt::format("raw {:.1f} GB/s", raw);
  }
  return report;
}

std::function<double(int, int)> all(double gb_s) {
  return [gb_s](int, int) { return gb_s; };
}
std::function<double(int, int)> islands(int size, double inside, double across) {
  return [=](int from, int to) { return from / size == to / size ? inside : across; };
}

/// Access only where `can` allows it, as a driver that refuses the other pairs; those are not tested.
void allow(Report& report, const std::function<bool(int, int)>& can) {
  for (Pair& pair : report.measurement.pairs) {
    if (can(pair.from, pair.to)) continue;
    pair.access = false;
    pair.verified_bytes.clear();
    pair.copy_gb_s.reset();
    pair.copy_both_gb_s.reset();
    pair.chase_ns.reset();
  }
}

void corrupt(Report& report, WrongKind kind, const std::string& seen) {
  report.measurement.wrong.push_back({"copy-push", 0, 1, 1U << 26, 0, 1U << 23, kind, "", seen, "0x1"});
}

/// A run, whether it proves P2P, and a part of the sentence.
struct Case {
  std::string name;
  Report report;
  bool proven;
  std::string says;
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.name);
    const Judgement judgement = judge(one.report.measurement, one.report.paths, {});
    CAPTURE(judgement.summary);
    CHECK(judgement.proven == one.proven);
    CHECK(holds(judgement.summary, one.says));
    told(one.name, judgement.summary);
  }
}

/// nvidia-smi's matrix, a word a pair ("OK CNS" for the cells of a row without the diagonal), between tabs.
std::string matrix(const std::vector<std::vector<std::string>>& rows) {
  std::string text = " \t";
  for (std::size_t i = 0; i < rows.size(); ++i) text += fmt::format("GPU{}\t", i);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("\n GPU{}\t", i);
    for (std::size_t j = 0; j < rows.size(); ++j) text += (i == j ? "X" : rows[i][j]) + "\t";
  }
  return text + "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n";
}

std::vector<std::vector<std::string>> words(std::size_t gpus, const std::function<std::string(int, int)>& word) {
  std::vector<std::vector<std::string>> rows(gpus, std::vector<std::string>(gpus));
  for (std::size_t i = 0; i < gpus; ++i)
    for (std::size_t j = 0; j < gpus; ++j) rows[i][j] = word(static_cast<int>(i), static_cast<int>(j));
  return rows;
}

Finding printed(const std::string& record, const std::string& text, bool guest = false) {
  const ChangedRecord machine(record);
  machine.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.43.02\n");
  if (guest) machine.file("proc/cpuinfo", "flags\t\t: fpu hypervisor vme\n");
  FakeRunner runner;
  runner.on("nvidia-smi topo -p2p r", text);
  return machine.check(kDriverPeers, runner).value();
}

void check_peers(const std::string& name, const Finding& finding, Verdict verdict, const std::string& summary,
                 const std::string& next) {
  CAPTURE(name, finding.summary, finding.next);
  CHECK(finding.verdict == verdict);
  CHECK(holds(finding.summary, summary));
  CHECK(holds(finding.next, next));
  told(name, fmt::format("driver-peers: {}: {}", to_string(finding.verdict), finding.summary));
}

}  // namespace

TEST_CASE("bench cases: runs that worked are proven") {
  Report sockets = run_of(8, islands(4, 20.5, 18.5), kGen4x16, kIntel, 4);
  for (Pair& pair : sockets.measurement.pairs) pair.chase_ns = figure(2000);
  Report atomics = run_of(2, all(13.5), kGen4x16 / 2);
  for (Pair& pair : atomics.measurement.pairs) pair.native_atomics = false;
  Report forked = run_of(4, all(25));
  forked.measurement.collectives = nccl({{"P2P/direct pointer", 8}}, "SYS", 12.7);
  check({
      {"p2pbw+allreduce-8x4090-p2pdriver-works", run_of(8, islands(4, 25, 20.5), kGen4x16, kAmd, 4), true,
       "proven: 56 ordered pairs, 224 GiB of correct bytes, 20.5 to 25.0 GB/s"},
      {"p2pbw-8gpu-datacenter-two-sockets-works", sockets, true, "18.5 to 20.5 GB/s"},
      {"simpleP2P-4090-works", run_of(6, all(24.44)), true, "proven: 30 ordered pairs"},
      {"nvbandwidth-6xa6000-works", run_of(6, islands(3, 26.3, 22), kGen4x16, kAmd, 3), true, "22.0 to 26.3 GB/s"},
      {"p2pbw-3x3090-threadripper-p620-works", run_of(3, all(26)), true, "26.0 GB/s"},
      {"p2pbw-2x4090-x4-lanes-works-slow", run_of(2, all(6.6), kGen4x16 / 4), true, "6.6 GB/s"},
      {"topo-p2p-2xGB206-signed-610-facts", atomics, true, "13.5 GB/s"},
      {"allreduce-4090-fork-560-partial-rows", forked, true, "proven: 12 ordered pairs"},
      {"allreduce-8x5090-p2p-works-new-header", run_of(8, all(50), kGen5x16, kAmd, 4), true, "50.0 GB/s"},
      {"p2pbw-3x4090-tuxedo-41GBs", run_of(3, all(20.5)), true, "20.5 GB/s; 6 warnings"},
  });
}

TEST_CASE("bench cases: without peer access there is nothing to prove") {
  const auto same = [](const std::string& kinds) {
    return [kinds](int from, int to) {
      return kinds[static_cast<std::size_t>(from)] == kinds[static_cast<std::size_t>(to)];
    };
  };
  const auto partly = [&](const std::string& kinds, double raw = kGen4x16) {
    Report report = run_of(static_cast<int>(kinds.size()), all(0.8 * raw), raw);
    allow(report, same(kinds));
    return report;
  };
  const std::string none = "the driver says there is no peer access";
  Report one = example(1);
  one.measurement.collectives = Collectives{};
  check({
      {"p2pbw-2x5090-genoa-stock-open-570-nop2p", partly("ab", kGen5x16), false, "GPU 0 -> GPU 1: " + none},
      {"p2pbw-4090+4060ti-cannot", partly("ab"), false, "GPU 0 -> GPU 1: " + none},
      {"simpleP2P-7gpu-mixed-generations-partial", partly("aabbcdd"), false, "GPU 0 -> GPU 2: " + none},
      {"p2pbw-4x1080ti-two-islands", partly("aabb"), false, "GPU 0 -> GPU 2: " + none},
      {"topo-p2p-p-mixed-all-ok-misleading", partly("abccc"), false, "GPU 0 -> GPU 1: " + none},
      {"allreduce-1x5090-single-gpu", one, false, "one GPU (NVIDIA GeForce RTX 4090): there is no pair to prove"},
  });
  const Report mixed = partly("aabbcdd");
  const Judgement judgement = judge(mixed.measurement, mixed.paths, {});
  CHECK(judgement.grades[0][1] == Grade::pass);  // equal generations have it
  CHECK(judgement.grades[4][5] == Grade::fail);
}

TEST_CASE("bench cases: wrong bytes fail, however fast they came") {
  Report fast = run_of(2, all(24.21));
  corrupt(fast, WrongKind::lost, "0x0");
  Report nan = run_of(2, all(25));
  corrupt(nan, WrongKind::unsupported_request, "0xffffffffffffffff");
  Report mirror = run_of(2, all(25));
  mirror.measurement.wrong.push_back({"store", 0, 1, 1U << 26, 0, 1U << 23, WrongKind::mirror, "", "0x0", "0x1"});
  Report host_fine = run_of(8, all(50), kGen5x16, kIntel * 1.2, 4);
  corrupt(host_fine, WrongKind::garbled, "0x2");
  check({
      {"simpleP2P-4090-fast-but-corrupt", fast, false, "copy-push: 8388608 wrong words in 64 MiB, one at byte 0: lost"},
      {"simpleP2P-2x4090-nan-verification", nan, false, "0xffffffffffffffff in place of 0x1"},
      {"vfio-private-mirror-2x3090", mirror, false, "GPU 0 -> GPU 1: store: "},
      {"nvbandwidth-8x5090-host-ok-p2p-errors", host_fine, false, "wrong words"},
  });
}

TEST_CASE("bench cases: P2P that is slower than without it") {
  Report slow = run_of(3, all(2));
  for (Pair& pair : slow.measurement.pairs) pair.staged_gb_s = figure(13);
  check({{"p2pbw-3xa6000-iommu-p2p-slower-than-off", slow, false, "2.0 GB/s is 6.95 % of 28.8 GB/s"}});
  CHECK(std::ranges::any_of(judge(slow.measurement, slow.paths, {}).remarks, [](const Remark& remark) {
    return holds(remark.text, "is less than the 13.0 GB/s of a copy through host memory");
  }));

  Report alltoall = run_of(8, islands(4, 25, 17), kGen4x16, kAmd, 4);
  for (Pair& pair : alltoall.measurement.pairs) pair.staged_gb_s = figure(21);
  alltoall.measurement.collectives = Collectives{.version = "2.21.5", .transports = {{"P2P/direct pointer", 56}}};
  auto& results = alltoall.measurement.collectives->results;
  results.push_back({"alltoall", true, 1U << 27, figure(8), figure(1e6), 0});
  results.push_back({"alltoall", false, 1U << 27, figure(11), figure(1e6), 0});
  const std::vector<std::string> lines = advice(alltoall);
  CHECK(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("NCCL_P2P_LEVEL=PHB: across NUMA nodes P2P is slower than copies through host memory");
  }));
  told("alltoall-8x4090-na-column", lines.empty() ? "nothing" : lines.front());
}

TEST_CASE("bench cases: what NCCL used") {
  Report report = run_of(8, all(25), kGen4x16, kAmd, 4);
  const auto used = [&](const std::string& log) {
    report.measurement.collectives = nccl(nccl_transports(log), "SYS", 20.6);
    const auto lines = advice(report);
    const auto line = std::ranges::find_if(lines, [](const std::string& text) { return text.starts_with("NCCL"); });
    return line == lines.end() ? "nothing" : *line;
  };
  const std::string direct = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer\n";
  const std::string shm = "h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";
  CHECK(holds(used(direct), "uses P2P only"));
  CHECK(holds(used(shm), "DOES NOT USE PROVEN P2P"));
  told("nccl-channels-p2p-direct-vs-shm", used(direct) + " | " + used(shm));
}

TEST_CASE("bench cases: what the driver says of pairs") {
  check_peers("topo-p2p-8xA100-ok", printed("rtx4090-x8-two-socket", matrix(words(8, [](int, int) { return "OK"; }))),
              Verdict::pass, "OK for all 56 ordered pairs", "");
  check_peers("topo-p2p-CNS-3090-256M",
              printed("rtx4090-x2-healthy", matrix(words(2, [](int, int) { return "CNS"; })), true), Verdict::fail,
              "CNS (chipset not supported: the stock driver supports few); this is a virtual machine",
              "x-nv-gpudirect-clique");
  check_peers("topo-p2p-rw-2x3090-2x5060ti-x99-GNS-NS",
              printed("rtx3090-x4-epyc", matrix(words(4, [](int i, int j) { return i / 2 == j / 2 ? "GNS" : "NS"; }))),
              Verdict::fail, "refuses 12 of 12 ordered pairs: 0000:01:00.0 to ", "bar1-size");
  const std::string forgotten = "Option \"-p2p\" requires a value (r, w, n, a or p)\n\n";
  check_peers("topo-p2p-p-mixed-all-ok-misleading (asked for r)",
              printed("rtx3090-x4-epyc",
                      forgotten + matrix(words(5, [](int i, int j) { return i > 1 && j > 1 ? "OK" : "NS"; }))),
              Verdict::fail, "refuses 14 of 20 ordered pairs", "cards of two generations have none");
}
