// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "probes/bench/collectives/nccl.hpp"
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define P2PD_HAS_NCCL_HEADER
#endif

using namespace p2pd;
using namespace p2pd::bench;
using namespace std::chrono_literals;
using Transports = std::map<std::string, int>;

namespace {

constexpr char kOn[] = "/bin/p2p-bench --collective-worker on --nccl /lib/libnccl.so.2";
constexpr char kOff[] = "/bin/p2p-bench --collective-worker off --nccl /lib/libnccl.so.2";
const CollectiveRuns kRuns = {"/bin/p2p-bench", "/lib/libnccl.so.2", "GPU-b,GPU-a", "SYS", 60s};

Collectives ran(bool p2p, double gb_s) {
  return {.version = "2.28.3",
          .transports = {{p2p ? "P2P/CUMEM" : "SHM/direct", 8}},
          .pairs = {{"GPU 0 -> GPU 1", p2p ? "P2P/CUMEM" : "SHM/direct"}},
          .p2p_level = p2p ? "SYS" : "",
          .results = {{"all_reduce", p2p, 8 << 20, Figure{gb_s, gb_s - 1, gb_s + 1, 7}, Figure{5e5, 4e5, 6e5, 7}, 0},
                      {"alltoall", p2p, 8 << 20, std::nullopt, std::nullopt, 3}}};
}

std::string line(const Collectives& collectives) { return json_of(collectives).dump() + "\n"; }

Collectives measure(test::FakeRunner& runner) {
  auto found = measure_collectives(runner, kRuns);
  REQUIRE(found);
  CHECK(runner.unexpected.empty());
  CHECK(runner.ran == std::vector<std::string>{kOff, kOn});  // the run without P2P is first: P2P may hang GPUs
  return *found;
}

}  // namespace

TEST_CASE("collectives: NCCL's version code") {
  CHECK(nccl_version(22803) == "2.28.3");
  CHECK(nccl_version(21805) == "2.18.5");
  CHECK(nccl_version(20906) == "2.9.6");
  CHECK(nccl_version(2804) == "2.8.4");
  CHECK(nccl_version(2708) == "2.7.8");
}

TEST_CASE("collectives: the transport of a line of debug output") {
  struct Row {
    std::string line;
    Transports transports;
  };
  const Row rows[] = {
      {"pod:10208:10234 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM", {{"P2P/CUMEM", 1}}},
      {"gpu:1118:1118 [6] NCCL INFO Channel 16/1 : 6[6] -> 7[7] via P2P/CUMEM/read", {{"P2P/CUMEM", 1}}},
      {"[2025-09-01 12:00:00] gpu:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/CE", {{"P2P/CUMEM", 1}}},
      {"hw14:798:813 [3] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/direct pointer", {{"P2P/direct pointer", 1}}},
      {"A03-R28:58141:58141 [6] NCCL INFO Channel 02 : 6[e1000] -> 5[a7000] via P2P/direct pointer/read",
       {{"P2P/direct pointer", 1}}},
      {"c1:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read", {{"P2P/IPC", 1}}},
      {"dgx:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 6[6] via P2P/indirect/2[2]", {{"P2P/indirect", 1}}},
      {"gb200:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL", {{"P2P/MNNVL", 1}}},
      {"ubuntu:9621:9687 [2] NCCL INFO Channel 13 : 10[2] -> 11[3] via SHM/direct/direct", {{"SHM/direct", 1}}},
      {"ubuntu:9621:9687 [2] NCCL INFO Channel 13 : 10[2] -> 11[3] via SHM/direct", {{"SHM/direct", 1}}},
      {"c1:919:1146 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3", {{"NET/Socket", 1}}},
      {"c1:919:1146 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [receive] via NET/Socket/3", {}},
      {"m1:16194:18585 [5] NCCL INFO Channel 02 : 13[8] -> 10[3] [send] via NET/AWS Libfabric/3/GDRDMA",
       {{"NET/AWS Libfabric", 1}}},
      {"evil:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/\033[31m\r\xff", {{"P2P/[31m?", 1}}},
      {"sim:1:1 [0] NCCL INFO Channel 00/02 :    0   1   2   3", {}},
      {"sim:1:1 [0] NCCL INFO NET/Plugin: loaded via libnccl-net.so/v8", {}},
      {"sim:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P", {}},
      {"a user's line -> via P2P/CUMEM", {}},
  };
  for (const Row& row : rows) {
    INFO(row.line);
    CHECK(nccl_transports(row.line) == row.transports);
  }
}

TEST_CASE("collectives: transports and warning of a whole log") {
  const std::string log =
      "NCCL version 2.28.3+cuda13.0\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "h:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "\n[2025-09-01 12:00:00] h:1:2 [0] init.cc:1 NCCL WARN first\n"
      "\n[2025-09-01 12:00:00] h:1:2 [0] init.cc:2 NCCL WARN \033]0;title\007second\n"
      "h:1:3 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct";
  CHECK(nccl_transports(log) == Transports{{"P2P/CUMEM", 2}, {"SHM/direct", 1}});
  CHECK(nccl_warning(log) == "]0;titlesecond");
  CHECK(nccl_warning("h:1:2 [0] NCCL INFO all is well\n").empty());
  CHECK(nccl_transports("").empty());
}

TEST_CASE("collectives: the transport of each pair, of several one that is not P2P") {
  using Pairs = std::map<std::string, std::string>;
  const std::string line = "h:1:2 [0] NCCL INFO Channel 00/1 : ";
  const std::string log = line + "0[0] -> 1[1] via P2P/CUMEM\n" + line + "10[e1000] -> 5[a7000] via P2P/IPC/read\n" +
                          line + "3[3] -> 4[4] via SHM/direct/direct\n" + line + "3[3] -> 4[4] via P2P/CUMEM\n" + line +
                          "6[6] -> 7[7] via P2P/CUMEM\n" + line + "6[6] -> 7[7] [send] via NET/Socket/0\n" + line +
                          "7[7] -> 6[6] [receive] via NET/Socket/0\n" + "NCCL INFO Channel : -> via P2P/x\n";
  CHECK(nccl_pairs(log) == Pairs{{"GPU 0 -> GPU 0", "P2P/x"},
                                 {"GPU 0 -> GPU 1", "P2P/CUMEM"},
                                 {"GPU 10 -> GPU 5", "P2P/IPC"},
                                 {"GPU 3 -> GPU 4", "SHM/direct"},
                                 {"GPU 6 -> GPU 7", "NET/Socket"}});
}

TEST_CASE("collectives: bus bandwidth is that of nccl-tests") {
  CHECK(bus_factor("all_reduce", 2) == Approx(1));
  CHECK(bus_factor("all_reduce", 4) == Approx(1.5));
  CHECK(bus_factor("alltoall", 4) == Approx(0.75));
}

TEST_CASE("collectives: sums of what ranks send are exact, and ranks differ") {
  const std::vector<float> first = rank_data(0);
  const std::vector<float> second = rank_data(1);
  REQUIRE(first.size() == kPeriod);
  CHECK(std::ranges::all_of(first,
                            [](float value) { return value >= 0 && value < 32768 && value == std::floor(value); }));
  std::size_t same = 0;
  for (std::size_t i = 0; i < kPeriod; ++i) same += first[i] == second[i] ? 1 : 0;
  CHECK(same < kPeriod / 1000);
}

TEST_CASE("collectives: wrong elements are counted across the end of the period") {
  const std::vector<float> data = {1, 2, 3};
  CHECK(wrong_elements(std::vector<float>{2, 3, 1, 2, 3, 1, 2}, data, 4) == 0);
  CHECK(wrong_elements(std::vector<float>{2, 3, 1, 9, 3, NAN, 2}, data, 1) == 2);
  CHECK(wrong_elements(std::vector<float>{1, 2, 3}, data, 1) == 3);
  CHECK(wrong_elements({}, data, 0) == 0);
}

TEST_CASE("collectives: a worker has the user's environment, but for the choice of GPUs") {
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  ::setenv("P2PD_TEST_EQUALS", "a=b", 1);
  const Command command = collective_command(kRuns, false);
  CHECK(command.text() == kOff);
  CHECK(command.deadline == 60s);
  CHECK(command.environment.at("CUDA_VISIBLE_DEVICES") == "GPU-b,GPU-a");
  CHECK(command.environment.at("NCCL_P2P_LEVEL") == "SYS");
  ::setenv("NCCL_P2P_LEVEL", "PHB", 1);
  CHECK(collective_command(kRuns, true).environment.at("NCCL_P2P_LEVEL") == "PHB");
  for (const char* name : {"NCCL_P2P_LEVEL", "CUDA_VISIBLE_DEVICES"}) ::unsetenv(name);
  CHECK(command.environment.at("NCCL_NVLS_ENABLE") == "0");
  CHECK(command.environment.at("P2PD_TEST_EQUALS") == "a=b");
  ::unsetenv("NCCL_NVLS_ENABLE");
  ::unsetenv("P2PD_TEST_EQUALS");
}

TEST_CASE("collectives: the worker's JSON is found among other output") {
  const std::string wanted = line(ran(true, 20));
  CHECK(line(parse_worker_output(wanted).value()) == wanted);
  CHECK(line(parse_worker_output("NCCL version 2.28.3\n{\"an\": 1}\n" + wanted + "[1]\n{\"other\": 2}\n\n{broken")
                 .value()) == wanted);
  CHECK(line(parse_worker_output(line(ran(false, 8)) + wanted).value()) == wanted);
  CHECK(parse_worker_output("").error().message == "the worker printed no result");
  CHECK_FALSE(parse_worker_output("{\"version\": 7}\n"));
}

TEST_CASE("collectives: both runs are merged, P2P first") {
  test::FakeRunner runner;
  runner.on(kOn, line(ran(true, 20))).on(kOff, line(ran(false, 8)));
  const Collectives found = measure(runner);
  CHECK(found.not_run.empty());
  CHECK(found.version == "2.28.3");
  CHECK(found.p2p_level == "SYS");
  CHECK(found.library == "/lib/libnccl.so.2");
  CHECK(found.transports == Transports{{"P2P/CUMEM", 8}});
  REQUIRE(found.results.size() == 4);
  CHECK(found.results[0].p2p);
  CHECK(found.results[0].bus_gb_s->median == 20);
  CHECK(found.results[1].wrong == 3);
  CHECK_FALSE(found.results[2].p2p);
  CHECK(found.results[2].bus_gb_s->median == 8);
}

TEST_CASE("collectives: what keeps both runs from running is said once") {
  test::FakeRunner runner;
  const std::string none = line({.not_run = "no libnccl: libnccl.so.2: cannot open shared object file"});
  runner.on(kOn, none).on(kOff, none);
  const Collectives found = measure(runner);
  CHECK(found.not_run == "no libnccl: libnccl.so.2: cannot open shared object file");
  CHECK(found.results.empty());
}

TEST_CASE("collectives: a worker that hangs or dies is told beside what the other found") {
  test::FakeRunner runner;
  runner.on(kOn, [](const Command&) -> Result<CommandResult> {
    return fail(ErrorCode::timeout, "`p2p-bench` was ended,\nstill running after 60 s");
  });
  SECTION("with P2P") {
    runner.on(kOff, line(ran(false, 8)));
    const Collectives found = measure(runner);
    CHECK(found.not_run == "hangs with P2P: no answer within 60 s");
    CHECK(found.version == "2.28.3");
    CHECK(found.transports.empty());
    CHECK(found.results.size() == 2);
  }
  SECTION("both") {
    runner.on(kOff, line(ran(false, 8)), 134, "some line\nncclGroupEnd: \033[1munhandled\n\n");
    const Collectives found = measure(runner);
    CHECK(found.not_run ==
          "hangs with P2P: no answer within 60 s; "
          "fails without P2P: the worker ended by signal 6 (Aborted): ncclGroupEnd: [1munhandled");
    CHECK(found.results.empty());
  }
}

TEST_CASE("collectives: an interruption ends the measurement") {
  test::FakeRunner runner;
  runner.on(kOff,
            [](const Command&) -> Result<CommandResult> { return fail(ErrorCode::interrupted, "p2pd is to stop"); });
  CHECK(measure_collectives(runner, kRuns).error().code == ErrorCode::interrupted);
  CHECK(runner.ran == std::vector<std::string>{kOff});
}

#ifdef P2PD_HAS_NCCL_HEADER
namespace {

/// Type of a function in the ABI: pointers and enumerations differ by size alone.
template <class Type>
using Passed = std::conditional_t<std::is_pointer_v<Type>, void*,
                                  std::conditional_t<std::is_enum_v<Type>, std::array<char, sizeof(Type)>, Type>>;
template <class Result, class... Parameters>
auto passed(Result (*)(Parameters...)) -> Passed<Result> (*)(Passed<Parameters>...);

#define F(result, name, ...) \
  static_assert(std::is_same_v<decltype(passed(nccl::Functions{}.name)), decltype(passed(&::name))>);
P2PD_NCCL_FUNCTIONS(F)
#undef F
static_assert(int{nccl::ncclSuccess} == int{::ncclSuccess} && int{nccl::ncclFloat32} == int{::ncclFloat32} &&
              int{nccl::ncclSum} == int{::ncclSum});

}  // namespace
#endif

TEST_CASE("collectives: several groups are one, the first that is not right, with the pairs of all by number") {
  Collectives right;
  right.version = "2.28.3";
  right.transports = {{"P2P/CUMEM", 4}};
  right.pairs = {{"GPU 0 -> GPU 1", "P2P/CUMEM"}, {"GPU 1 -> GPU 0", "P2P/CUMEM"}};
  const Collectives other = with_numbers_of(right, {2, 5});
  CHECK(other.pairs ==
        std::map<std::string, std::string>{{"GPU 2 -> GPU 5", "P2P/CUMEM"}, {"GPU 5 -> GPU 2", "P2P/CUMEM"}});
  Collectives wrong = other;
  wrong.version = "wrong";
  wrong.results.push_back({"all_reduce", true, 1024, {}, {}, 3});
  Collectives failed = other;
  failed.version = "failed";
  failed.not_run = "hangs with P2P";
  CHECK(as_one({right, other}).version == "2.28.3");
  CHECK(as_one({right, other}).pairs.size() == 4);
  CHECK(as_one({right, other}).transports.at("P2P/CUMEM") == 8);
  CHECK(as_one({right, wrong}).version == "wrong");
  CHECK(as_one({failed, right}).version == "failed");
}
