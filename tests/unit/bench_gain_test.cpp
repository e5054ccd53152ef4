// SPDX-License-Identifier: MIT
#include "bench_example.hpp"
#include "catch.hpp"

using namespace p2pd;
using namespace p2pd::bench;
using Lines = std::vector<std::string>;

namespace {

/// Two GPUs before P2P worked: copies through host memory.
Report without_p2p() {
  Report report = example(2);
  for (Pair& pair : report.measurement.pairs) {
    pair.access = false;
    pair.copy_gb_s.reset();
    pair.chase_ns.reset();
  }
  report.judgement.proven = false;
  return report;
}

Report with_p2p() {
  Report report = example(2);
  for (Pair& pair : report.measurement.pairs) {
    pair.copy_gb_s = figure(50.2);
    pair.chase_ns = figure(1200);
  }
  return report;
}

}  // namespace

TEST_CASE("bench gain: from copies through host memory to P2P, collectives included") {
  Report before = without_p2p();
  before.measurement.collectives = nccl({{"SHM/direct", 8}}, "", 14.5);
  Report after = with_p2p();
  after.measurement.collectives = nccl({{"P2P/CUMEM", 8}}, "SYS", 20.6);
  after.measurement.collectives->results.push_back({"alltoall", true, 1024, figure(5), {}, 0});
  CHECK(
      gain(to_json(before), after) ==
      Lines{
          "GPU 0 -> GPU 1: copy 21.4 (staged) -> 50.2 (P2P) GB/s (x2.35), latency 11.7 (staged) -> 1.2 (load) us (x9.8 "
          "less)",
          "GPU 1 -> GPU 0: copy 21.4 (staged) -> 50.2 (P2P) GB/s (x2.35), latency 11.7 (staged) -> 1.2 (load) us (x9.8 "
          "less)",
          "all_reduce 512 MiB: bus 14.5 -> 20.6 GB/s (x1.42)",
          "alltoall 1 KiB: not measured before",
          "median gain: copy x2.35 over 2 pairs, latency x9.8 less over 2 pairs, collectives x1.42 over 1",
      });
}

TEST_CASE("bench gain: like with like where both have it, losses as losses") {
  Report before = with_p2p();
  Report after = with_p2p();
  after.measurement.pairs[0].copy_gb_s = figure(25.1);
  after.measurement.pairs[0].chase_ns = figure(2400);
  before.measurement.pairs[1].ping_pong_ns = figure(3000);
  after.measurement.pairs[1].ping_pong_ns = figure(1500);
  after.measurement.pairs[1].chase_ns.reset();
  CHECK(gain(to_json(before), after) ==
        Lines{
            "GPU 0 -> GPU 1: copy 50.2 -> 25.1 GB/s (x0.50), latency 1.2 -> 2.4 us (x2.0 more)",
            "GPU 1 -> GPU 0: copy 50.2 -> 50.2 GB/s (x1.00), latency 3.0 (ping-pong) -> 1.5 (ping-pong) us (x2.0 less)",
            "median gain: copy x0.75 over 2 pairs, latency x1.2 less over 2 pairs",
        });
}

TEST_CASE("bench gain: GPUs are matched by UUID, whatever number they have") {
  Report before = with_p2p();
  before.measurement.pairs[0].copy_gb_s = figure(10);  // from GPU-0
  Report after = with_p2p();
  std::swap(after.measurement.gpus[0].uuid, after.measurement.gpus[1].uuid);
  const Lines lines = gain(to_json(before), after);
  CHECK(lines[0].starts_with("GPU 0 -> GPU 1: copy 50.2 -> 50.2 GB/s"));
  CHECK(lines[1].starts_with("GPU 1 -> GPU 0: copy 10.0 -> 50.2 GB/s (x5.02)"));
}

TEST_CASE("bench gain: GPUs that only one of the runs had") {
  Report after = example(4);
  after.measurement.gpus[3].uuid = "GPU-new";
  const Lines lines = gain(to_json(example(4)), after);
  REQUIRE(lines.size() == 9);
  CHECK(lines[0] == "GPU 3 (GPU-new) is not in the earlier report");
  CHECK(lines[1] == "1 GPU of the earlier report not found");
  CHECK(lines[8] == "median gain: copy x1.00 over 6 pairs, latency x1.0 less over 6 pairs");
  after.measurement.gpus[2].uuid = after.measurement.gpus[1].uuid = "GPU-newer";
  CHECK(gain(to_json(example(4)), after) == Lines{"nothing to compare: no two GPUs are in both reports"});
}

TEST_CASE("bench gain: what was not measured is said") {
  Report before = with_p2p();
  before.measurement.pairs[0].copy_gb_s.reset();
  before.measurement.pairs[0].staged_gb_s = figure(0);  // it gives no ratio
  before.measurement.collectives = Collectives();
  before.measurement.collectives->not_run = "no libnccl";
  Report after = with_p2p();
  after.measurement.pairs[1].chase_ns.reset();
  after.measurement.pairs[1].staged_ns.reset();
  after.measurement.collectives = nccl({{"P2P/CUMEM", 8}}, "SYS", 20.6);
  CHECK(gain(to_json(before), after) ==
        Lines{
            "GPU 0 -> GPU 1: copy not measured before, latency 1.2 -> 1.2 us (x1.0 less)",
            "GPU 1 -> GPU 0: copy 50.2 -> 50.2 GB/s (x1.00), latency not measured now",
            "collectives not run before: no libnccl",
            "median gain: copy x1.00 over 1 pair, latency x1.0 less over 1 pair",
        });
  CHECK(gain(to_json(after), with_p2p())[2] == "collectives not run now: not asked for");
}

TEST_CASE("bench gain: runs without a figure in common") {
  Report before = without_p2p();
  for (Pair& pair : before.measurement.pairs) pair.staged_gb_s = pair.staged_ns = std::nullopt;
  CHECK(gain(to_json(before), with_p2p()).back() == "no gain known: the two runs share no figure");
}

TEST_CASE("bench gain: a run that is not proven gains nothing, a seeded fault is no baseline") {
  Report after = with_p2p();
  after.judgement.proven = false;
  CHECK(gain(to_json(without_p2p()), after).back() ==
        "median gain: copy x2.35 over 2 pairs, latency x9.8 less over 2 pairs; worth nothing, this run is not proven");
  Report before = with_p2p();
  before.measurement.fault = "skip-store";
  CHECK(gain(to_json(before), after) == Lines{"nothing to compare: the earlier run had a seeded fault: skip-store"});
}

TEST_CASE("bench gain: files that are no report, or a broken one") {
  const Lines foreign = {"nothing to compare: the earlier file is not a p2pd.bench/1 report"};
  CHECK(gain(nullptr, with_p2p()) == foreign);
  CHECK(gain(3, with_p2p()) == foreign);
  CHECK(gain(parse_json("{"), with_p2p()) == foreign);
  CHECK(gain(nlohmann::json::array(), with_p2p()) == foreign);
  CHECK(gain({{"schema", "p2pd.bench/2"}}, with_p2p()) == foreign);
  CHECK(gain({{"schema", 1}}, with_p2p()) == foreign);
  CHECK(gain({{"not_measured", 1}}, with_p2p()) == foreign);
  CHECK(gain({{"not_measured", "bytes: cuStreamSynchronize"}}, with_p2p()) ==
        Lines{"nothing to compare: the earlier run failed: bytes: cuStreamSynchronize"});
  nlohmann::json broken = to_json(with_p2p());
  broken["pairs"] = 3;
  CHECK(gain(broken, with_p2p()).front().starts_with("nothing to compare: the earlier report is broken: "));
  CHECK(gain({{"schema", "p2pd.bench/1"}}, with_p2p())
            .front()
            .starts_with("nothing to compare: the earlier report is broken: "));
  nlohmann::json odd = to_json(with_p2p());
  odd["pairs"][0]["from"] = 99;  // no such GPU
  CHECK(gain(odd, with_p2p()).size() == 2);
}
