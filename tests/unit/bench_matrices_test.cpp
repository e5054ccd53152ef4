// SPDX-License-Identifier: MIT
#include <algorithm>

#include "bench_example.hpp"
#include "catch.hpp"
#include "probes/bench/report/text.hpp"

using namespace p2pd;
using namespace p2pd::bench;

TEST_CASE("bench matrices: two GPUs, as a person sees them") {
  Report report = example(2);
  report.machine["gpus"] = nlohmann::json::array();
  report.measurement.collectives = nccl({{"P2P/CUMEM", 24}}, "", 20.6);
  report.measurement.not_run["sweep"] = "not asked for";
  report.measurement.all_to_all_gb_s = figure(49.5);
  CHECK(matrices(report, false) == R"(GPU 0  0000:01:00.0  NVIDIA GeForce RTX 4090
GPU 1  0000:11:00.0  NVIDIA GeForce RTX 4090

Bytes (row sends, column receives)
D\D     0     1
  0     -    ok
  1    ok     -

Unidirectional P2P=Enabled Bandwidth (GB/s)
D\D     0     1
  0     - 25.00
  1 25.10     -

Unidirectional P2P=Disabled Bandwidth (GB/s)
D\D     0     1
  0     - 21.40
  1 21.40     -

P2P=Enabled Latency, row loads (us)    P2P=Disabled Latency, copy (us)
D\D     0     1                        D\D     0     1
  0     -  1.20                          0     - 11.70
  1  1.20     -                          1 11.70     -

All pairs at once: 49.50 GB/s in all
Atomics: NS (not supported) on 2 of 2 pairs, normal over BAR1; NVSHMEM and
FlashInfer one-shot all-to-all need them

NCCL 2.28.3: P2P on 2 of 2, all-reduce 20.6 GB/s, 14.5 without
/usr/lib/libnccl.so.2 over P2P/CUMEM x 24
bus GB/s              size      P2P on     P2P off
all_reduce         512 MiB       20.60       14.50

Not run:
- sweep not run: not asked for

Advice:
- Tensor parallelism (NCCL rings, vLLM custom all-reduce) or expert parallelism
  over NCCL all-to-all, not NVSHMEM (DeepEP) nor FlashInfer one-shot all-to-all:
  atomics are NS on 2 of 2 pairs, normal for P2P over BAR1
)");
}

TEST_CASE("bench text: a line of a soak has the worst since the last one, and counters since the start") {
  Soak soak;
  CHECK(soak_line(soak, 0).empty());
  const auto sample = [](double seconds, double rate, std::uint64_t celsius, std::uint64_t replays,
                         std::uint64_t throttle, std::uint64_t aer, std::uint64_t width) {
    return SoakSample{
        seconds, 1, 3ULL << 30, 0, rate, {{"0000:01:00.0 fatal", aer}}, {{16, width, celsius, replays, throttle}}};
  };
  soak.samples = {sample(0, 0, 40, 5, 0, 2, 16), sample(60, 20.5, 83, 5, 0x40, 2, 16),
                  sample(120, 24.5, 61, 6, 0x04, 5, 8)};
  CHECK(soak_line(soak, 0) ==
        "2.00 min: 3 GiB checked, 20.5 GB/s slowest copy, 0 wrong, 83 C, 1 replays, 3 AER errors, "
        "throttled: power, thermal, slower link: GPU 0 16 GT/s x8, was 16 GT/s x16");
  CHECK(soak_line(soak, 2) ==
        "2.00 min: 3 GiB checked, 24.5 GB/s slowest copy, 0 wrong, 61 C, 1 replays, 3 AER errors, "
        "throttled: power, slower link: GPU 0 16 GT/s x8, was 16 GT/s x16");
}

TEST_CASE("bench text: the all-reduce by size, or its first error") {
  Measurement run;
  CHECK(all_reduce_line(run).empty());
  run.all_reduces = {{0, 1, 8192, 2000, 6100, 0}, {1, 0, 8192, 2000, 6300, 0}, {0, 1, 524288, 500, 25300, 0}};
  CHECK(all_reduce_line(run) ==
        "All-reduce by loads in a CUDA graph: 8 KiB 6.1 to 6.3 us (2000 replays), 512 KiB 25.3 us (500 replays), "
        "exact on 2 ordered pairs");
  run.wrong.push_back(
      {kGraphReduce, 1, 0, 8192, 0, 0, WrongKind::lost, "the flag that begins replay 7 did not arrive", "", ""});
  CHECK(all_reduce_line(run) ==
        "All-reduce by loads in a CUDA graph: STOPPED, GPU 1 -> GPU 0: the flag that begins replay 7 did not arrive");
  run.all_reduces[1].wrong = 3;
  CHECK(all_reduce_line(run) ==
        "All-reduce by loads in a CUDA graph: WRONG, GPU 1 -> GPU 0: 3 wrong elements in 2000 replays of 8 KiB");
}

TEST_CASE("bench matrices: eight GPUs stay aligned and within 80 columns") {
  Report report = example(8);
  report.measurement.pairs[4].copy_gb_s = figure(12345.6);  // 0 -> 5
  report.measurement.pairs[5].copy_gb_s = figure(396.43);   // 0 -> 6
  report.measurement.wrong.push_back({"store", 0, 5, 64, 0, 1, WrongKind::unsupported_request, "", "", ""});
  for (const char* test : {"copy", "asymmetry"})
    report.judgement.remarks.push_back({Grade::warn, 0, 5, test,
                                        "GPU 0 -> GPU 5: an eighth of what the others reach, and of what the path "
                                        "leaves for data: is its riser cable or its slot at fault?"});
  const std::string text = matrices(report, false);
  CHECK(holds(text, R"(
D\D        0        1        2        3        4        5        6        7
  0        -       ok       ok       ok       ok all-ones       ok       ok
  1       ok        -       ok       ok       ok       ok       ok       ok
)"));
  CHECK(holds(text, R"(
D\D     0     1     2     3     4     5     6     7
  0     - 25.00 25.00 25.00 25.00 12346 396.4 25.00
  1 25.10     - 25.10 25.10 25.10 25.10 25.10 25.10
)"));
  CHECK(holds(text, R"(
WARN  GPU 0 -> GPU 5: an eighth of what the others reach, and of what the path
      leaves for data: is its riser cable or its slot at fault? (copy,
      asymmetry)
)"));
  for (const std::string& line : lines_of(text)) CHECK(line.size() <= 80);
}

TEST_CASE("bench matrices: sixteen GPUs put their matrices below each other") {
  const std::vector<std::string> lines = lines_of(matrices(example(16), false));
  const std::string header =
      "D\\D     0     1     2     3     4     5     6     7     8     9    10    11    12    13    14    15";
  CHECK(std::count(lines.begin(), lines.end(), header) == 5);
}

TEST_CASE("bench matrices: without a pair there are no matrices") {
  Report report = example(1);
  CHECK(matrices(report, true) == "GPU 0  0000:01:00.0  NVIDIA GeForce RTX 4090\n");
  CHECK(lines_of(bug_report(report)).size() == 7);
  CHECK(matrices(Report(), false).empty());
}

TEST_CASE("bench matrices: where nothing could be tried, nothing is claimed") {
  Report report = example(2);
  report.measurement.not_run[kEverything] = "MIG is on";
  CHECK(matrices(report, false).find("D\\D") == std::string::npos);
  for (const std::string& text : {matrices(report, false), bug_report(report)}) {
    CHECK(holds(text, "everything not run: MIG is on\n"));
    CHECK_FALSE(holds(text, "Atomics:"));
    CHECK_FALSE(holds(text, "writer"));
  }
}

TEST_CASE("bench matrices: colour only when asked, by the grade of the test") {
  Report report = example(2);
  CHECK_FALSE(holds(matrices(report, false), "\x1b"));
  report.judgement.remarks.push_back({Grade::warn, 0, 1, "copy", "slow"});
  report.judgement.grades[0][1] = Grade::warn;
  const std::string text = matrices(report, true);
  CHECK(holds(text, "\n  0     \x1b[2m-\x1b[0m    \x1b[32mok\x1b[0m\n"));
  CHECK(holds(text, "\n  0     \x1b[2m-\x1b[0m \x1b[33m25.00\x1b[0m"));
  CHECK(holds(text, "\n  1 \x1b[32m25.10\x1b[0m     \x1b[2m-\x1b[0m"));
  CHECK(holds(text, "\x1b[33mWARN  slow (copy)\x1b[0m\n"));
  CHECK(verdict_line(report.judgement, true) == "\x1b[32mproven: 2 ordered pairs\x1b[0m\n");
  CHECK(verdict_line(report.judgement, false) == "proven: 2 ordered pairs\n");
  report.judgement.proven = false;  // and nothing fails: a part of the tests
  CHECK(verdict_line(report.judgement, true) == "\x1b[33mproven: 2 ordered pairs\x1b[0m\n");
  report.judgement.remarks[0].grade = Grade::fail;
  CHECK(verdict_line(report.judgement, true) == "\x1b[31mproven: 2 ordered pairs\x1b[0m\n");
  report.judgement.grades[0][1] = Grade::not_judged;
  report.judgement.remarks.clear();
  CHECK(holds(matrices(report, true), "\n  0     \x1b[2m-\x1b[0m 25.00\n"));
}

TEST_CASE("bench matrices: the bytes matrix says what is wrong") {
  Report report = example(2);
  Pair& pair = report.measurement.pairs[0];
  std::string cell;
  SECTION("wrong words") {
    report.measurement.wrong.push_back({"load", 0, 1, 8, 0, 1, WrongKind::misroute, "", "", ""});
    cell = "misroute";
  }
  SECTION("no access") {
    pair.access = false;
    cell = "no-peer";
  }
  SECTION("refused") {
    pair.refused = "CUDA_ERROR_TOO_MANY_PEERS";
    cell = "refused";
  }
  SECTION("no test") {
    pair.verified_bytes.clear();
    cell = "untested";
  }
  SECTION("one test missing") {
    report.judgement.remarks.push_back({Grade::fail, 0, 1, "bytes", "load was not tested"});
    cell = "untested";
  }
  CHECK(holds(matrices(report, false), cell + "\n"));
  CHECK(holds(matrices(report, true), "\x1b[31m" + cell + "\x1b[0m\n"));
}

TEST_CASE("bench matrices: a seeded fault is shouted, many remarks are cut, collectives show wrong elements") {
  Report report = example(2);
  report.measurement.fault = "skip-store";
  report.measurement.collectives = nccl({{"P2P/CUMEM", 2}}, "SYS", 20);
  report.measurement.collectives->results[0].wrong = 7;
  for (int i = 0; i < 30; ++i)
    report.judgement.remarks.push_back({Grade::fail, -1, -1, "bytes", fmt::format("r{}", i)});
  const std::string text = matrices(report, false);
  CHECK(holds(text, "A FAULT IS SEEDED: SKIP-STORE; THIS RUN PROVES NOTHING\nGPU 0"));
  CHECK(holds(text, "FAIL  r14 (bytes)\n... and 15 more, all in the JSON\n"));
  CHECK(holds(text, "NCCL_P2P_LEVEL=SYS\n"));
  CHECK(holds(text, "7 WRONG ELEMENTS\n"));
  CHECK_FALSE(holds(text, "Advice"));
}

TEST_CASE("bench matrices: NCCL in one line: pairs and rates, or the reason for none") {
  Collectives run = nccl({{"P2P/CUMEM", 4}}, "SYS", 20.6);
  run.pairs = {{"GPU 0 -> GPU 1", "P2P/CUMEM"}, {"GPU 1 -> GPU 0", "P2P/IPC"}};
  CHECK(nccl_line(run) == "NCCL 2.28.3: P2P on 2 of 2, all-reduce 20.6 GB/s, 14.5 without");
  run.results.push_back({"all_reduce", true, 1024, figure(1), {}, 0});  // smaller
  run.pairs["GPU 1 -> GPU 0"] = "SHM/direct";
  CHECK(nccl_line(run) == "NCCL 2.28.3: P2P on 1 of 2, all-reduce 20.6 GB/s, 14.5 without");
  run.results[0].wrong = 3;
  CHECK(nccl_line(run) == "NCCL 2.28.3: wrong data with P2P: all_reduce of 512 MiB, 3 wrong elements");
  run.results.erase(run.results.begin() + 1);
  run.results[0].wrong = 0;
  run.not_run = "fails without P2P: it broke";
  CHECK(nccl_line(run) == "NCCL 2.28.3: P2P on 1 of 2, all-reduce 20.6 GB/s; fails without P2P: it broke");
  for (Collective& one : run.results) one.p2p = false;
  run.not_run = "hangs with P2P: no answer within 60 s";
  CHECK(nccl_line(run) == "NCCL 2.28.3: hangs with P2P: no answer within 60 s");
  CHECK(nccl_line({.not_run = "no libnccl found"}) == "NCCL: not tested (no libnccl found)");
}
