// SPDX-License-Identifier: MIT
// Output of NVIDIA's benchmarks, in short forms with each special case, and as captured on real hosts if P2PD_CORPUS
// has those.
#include "probes/bench/collectives/others.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bench_example.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"

using namespace p2pd;
using namespace p2pd::bench;
using p2pd::test::FakeRunner;

namespace {

constexpr char kLatencyTest[] =
    "P2P Connectivity Matrix\n     D\\D     0     1\n     0       1     1\n     1       1     1\n"
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 900.00  12.10 \n"
    "     1  12.20 900.00 \n"
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1 \n     0 901.00  26.30 \n"
    "     1  26.40 902.00 \n"
    "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 901.00  51.90 \n"
    "     1  52.10 902.00 \n"
    "P2P=Disabled Latency Matrix (us)\n   GPU     0      1 \n     0   1.50  15.00 \n     1  15.10   1.50 \n\n"
    "   CPU     0      1 \n     0   3.00   4.50 \n     1   4.40   3.10 \n"
    "P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU     0      1 \n     0   1.50   1.31 \n     1   1.33   1.50 \n"
    "\n   CPU     0      1 \n     0   3.00   1.20 \n     1   1.30   3.10 \n";

constexpr char kNvbandwidth[] =
    "nvbandwidth Version: v0.8\nRunning device_to_device_memcpy_write_ce.\n"
    "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A     13.10\n"
    " 1     26.20       N/A\n\nSUM device_to_device_memcpy_write_ce 39.30\n"
    "Running device_to_device_latency_sm.\n"
    "Device to Device Latency SM GPU(row) <-> GPU(column) latency (ns)\n           0         1\n 0       N/A   "
    "1310.00\n"
    " 1   1290.00       N/A\n\nSUM device_to_device_latency_sm 2600.00\n";

constexpr char kAllReduce[] =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n"
    "           0             0     float     sum      -1     8.00    0.00    0.00     N/A     7.99    0.00    0.00    "
    " N/A\n"
    "     8388608       2097152     float     sum      -1   500.00   16.77   16.77       0   501.00   16.74   16.74    "
    "   0\n"
    "   134217728      33554432     float     sum      -1  6500.00   20.65   20.65       3  6510.00   20.62   20.62    "
    "   2\n"
    "# Out of bounds values : 5 FAILED\n# Avg bus bandwidth    : 18.7\n";

// before 2.13: without root, and the largest relative error instead of the number of wrong elements
constexpr char kOldAllReduce[] =
    "#                                                       out-of-place                       in-place\n"
    "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    "host:195:195 [0] NCCL INFO Launch mode Parallel\n"
    "    33554432       8388608     float     sum    19902    1.69    2.53  2e-07    19898    1.69    2.54  2e-07\n"
    "   134217728      33554432     float     sum    79427    1.69    2.55  2e-07    79379    1.69    2.54  2e-07\n";
// of 2016 to 2018, as nccl_tests 1 and NCCL 1's own tests print it
constexpr char kOldestAllReduce[] =
    "#                                                 out-of-place                    in-place\n"
    "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
    "    10000000      10000000    char     sum    1.628   6.14   9.21    0e+00    1.932   5.18   7.77    0e+00\n";

std::string corpus(const std::string& name) {
  const char* folder = std::getenv("P2PD_CORPUS");
  std::ifstream file(std::string(folder != nullptr ? folder : "") + "/bench/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("bench others: p2pBandwidthLatencyTest with P2P, of the GPU's clock, without the diagonal") {
  const Other other = parse_other("/opt/p2pBandwidthLatencyTest", kLatencyTest);
  CHECK(other.copy_gb_s == Other::Matrix{{{0, 1}, 26.3}, {{1, 0}, 26.4}});
  CHECK(other.copy_both_gb_s == Other::Matrix{{{0, 1}, 51.9}, {{1, 0}, 52.1}});
  CHECK(other.latency_us == Other::Matrix{{{0, 1}, 1.31}, {{1, 0}, 1.33}});
  CHECK(other.not_run.empty());
}

TEST_CASE("bench others: a row of nvbandwidth is where the data arrives, and its latencies are nanoseconds") {
  const Other other = parse_other("nvbandwidth", kNvbandwidth);
  CHECK(other.copy_gb_s == Other::Matrix{{{1, 0}, 13.1}, {{0, 1}, 26.2}});
  CHECK(other.latency_us == Other::Matrix{{{1, 0}, 1.31}, {{0, 1}, 1.29}});
}

TEST_CASE("bench others: all_reduce_perf at its largest size, and what it found wrong at any") {
  const Other other = parse_other("all_reduce_perf", kAllReduce);
  CHECK(other.all_reduce_gb_s == 20.65);
  CHECK(other.wrong == 5);
}

TEST_CASE("bench others: the columns of older nccl-tests, whose error is no count") {
  Other other = parse_other("all_reduce_perf", std::string(kOldAllReduce) + "# Out of bounds values : 0 OK\n");
  CHECK(other.all_reduce_gb_s == 2.55);
  CHECK(other.wrong == 0);
  other = parse_other("all_reduce_perf", std::string(kOldAllReduce) + "# Out of bounds values : 2 FAILED\n");
  CHECK(other.wrong == 2);
  CHECK(parse_other("all_reduce_perf", kOldestAllReduce).all_reduce_gb_s == 9.21);
  // a later column that is not known
  std::string later = kAllReduce;
  for (std::size_t at = 0; (at = later.find("#wrong\n", at)) != later.npos;) later.replace(at, 7, "#wrong when\n");
  for (const char* end : {"N/A\n", "  0\n", "  2\n"})
    for (std::size_t at = 0; (at = later.find(end, at)) != later.npos; at += 7) later.insert(at + 3, " 0.5");
  CHECK(parse_other("all_reduce_perf", later).all_reduce_gb_s == 20.65);
  CHECK(parse_other("all_reduce_perf", later).wrong == 5);
}

TEST_CASE("bench others: why there are no figures, where it is known") {
  const auto why = [](const char* name, const char* output) { return parse_other(name, output).not_run; };
  for (const char* waived : {"Device 1: NVIDIA GeForce RTX 2080 Ti\n\nWaiving device_to_device_memcpy_write_ce.\n",
                             "Device 1: NVIDIA GeForce RTX 4090 (00000000:02:00)\n\nWaived: \nWaived: \n"})
    CHECK(why("nvbandwidth", waived) ==
          "nvbandwidth left the test out, since the driver maps no peer memory between these GPUs. "
          "\"p2pctl doctor\" names what is in the way.");
  for (const char* old :
       {"host: Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'",
        "host:1:2 [0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856\n"})
    CHECK(why("all_reduce_perf", old).starts_with("this NCCL, or the program, is older than the GPU"));
  FakeRunner runner;
  const Report report = example(2);
  runner.on("all_reduce_perf -b 134217728 -e 134217728 -g 2",
            "host: Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'\n", 3);
  CHECK(run_others(runner, report.measurement, {"all_reduce_perf"}).at(0).not_run.starts_with("this NCCL, or"));
}

TEST_CASE("bench others: output that is cut off, empty or of something else has no figures") {
  for (const char* name : {"p2pBandwidthLatencyTest", "nvbandwidth", "all_reduce_perf"})
    for (const char* output :
         {"", "Unidirectional P2P=Enabled Bandwidth", "memcpy CE GPU(row) <- GPU(column)\n\n0 x 1e999",
          "CUDA error: out of memory\n", "1 2 3 4 5 6 7 8 9 10 11 12"})
      CHECK(parse_other(name, output).not_run == "it printed no figures that are understood");
}

TEST_CASE("bench others: as captured on four H200") {
  const std::string latency = corpus("h200-x4-p2pBandwidthLatencyTest.txt");
  if (latency.empty()) return;
  const Other samples = parse_other("p2pBandwidthLatencyTest", latency);
  CHECK(samples.copy_gb_s.size() == 12);
  CHECK(samples.copy_gb_s.at({1, 0}) == 392.74);
  CHECK(samples.copy_both_gb_s.at({0, 3}) == 739.24);
  CHECK(samples.latency_us.at({3, 1}) == 2.75);
  const Other bandwidth = parse_other("nvbandwidth", corpus("h200-x4-nvbandwidth.txt"));
  CHECK(bandwidth.copy_gb_s.at({0, 1}) == 396.45);
  CHECK(bandwidth.latency_us.size() == 12);
  CHECK(parse_other("all_reduce_perf", corpus("h200-x4-nccl-all_reduce.txt")).all_reduce_gb_s.has_value());
}

TEST_CASE("bench others: each runs on the GPUs of the proof, or is named with the reason") {
  Report report = example(2);
  FakeRunner runner;
  runner.on("p2pBandwidthLatencyTest", [&](const Command& asked) {
    CHECK(asked.environment.at("CUDA_VISIBLE_DEVICES") ==
          report.measurement.gpus[0].uuid + "," + report.measurement.gpus[1].uuid);
    CHECK(asked.deadline == std::chrono::minutes(2));
    CommandResult printed;
    printed.output = kLatencyTest;
    return Result<CommandResult>(std::move(printed));
  });
  runner.on("nvbandwidth -t device_to_device_memcpy_write_ce device_to_device_latency_sm", "", 1, "no device");
  runner.on("all_reduce_perf -b 134217728 -e 134217728 -g 2",
            [](const Command&) -> Result<CommandResult> { return fail(ErrorCode::not_found, "no such program"); });
  const std::vector<std::string> all(std::begin(kOthers), std::end(kOthers));
  const std::vector<Other> others = run_others(runner, report.measurement, all);
  CHECK(runner.unexpected.empty());
  CHECK(others.at(0).not_run.empty());
  CHECK(others.at(1).not_run.find("no device") != std::string::npos);
  CHECK(others.at(2).not_run == "not installed");
  const std::vector<std::string> lines = side_by_side(report.measurement, others);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].starts_with("median of all pairs"));
  CHECK(lines[1].starts_with("p2p-bench "));
  CHECK(lines[2] == "p2pBandwidthLatencyTest        26.4            52.0        1.32                -");
  CHECK(lines[0].size() == 80);
  CHECK(lines[4] == "all_reduce_perf: not installed");
  CHECK(run_others(runner, report.measurement, {"rm"}).at(0).not_run.starts_with("its output is not known"));
  report.measurement.wrong.push_back({"store", 0, 1, 8, 0, 0, WrongKind::hung, "", "", ""});
  CHECK(run_others(runner, report.measurement, all).at(0).not_run == "a GPU faulted or hung before");
  CHECK(runner.unexpected.empty());
}
