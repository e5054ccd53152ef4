// SPDX-License-Identifier: MIT
#include "probes/bench/report/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "catch.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

using Paths = std::vector<std::vector<Path>>;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

Figure figure(double median) { return {median, median, median, 3}; }

Path path_of(PathKind kind, double raw = 110, double payload = 100) {
  Path path;
  path.kind = kind;
  path.raw_gb_s = raw;
  path.payload_gb_s = payload;
  path.arithmetic = raw > 0 ? "the arithmetic" : "link not readable";
  return path;
}

Paths paths_of(std::size_t gpus, const Path& path) { return Paths(gpus, std::vector<Path>(gpus, path)); }

Pair good_pair(int from, int to, double gb_s) {
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

Measurement good_run(int gpus, const std::function<double(int, int)>& rate) {
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

/// Two GPUs at 90 of 100 GB/s, and what is changed about them.
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
Wrong wrong(const char* test, WrongKind kind = WrongKind::lost) {
  Wrong found;
  found.test = test;
  found.from = 0;
  found.to = 1;
  found.words = 1;
  found.kind = kind;
  return found;
}

Fitness::Kind fit(const Judgement& judgement, P2pUse use) {
  return std::ranges::find(judgement.fit, use, &Fitness::use)->kind;
}

std::string texts(const Judgement& judgement) {
  std::string all;
  for (const Remark& remark : judgement.remarks) {
    all += fmt::format("{} {}: {}\n", to_string(remark.grade), remark.test, remark.text);
  }
  return all;
}

/// What the rule `test` says of GPU 0 -> GPU 1; pass when nothing.
Remark said(const Judgement& judgement, const std::string& test) {
  for (const Remark& remark : judgement.remarks) {
    if (remark.test == test && remark.from == 0 && remark.to == 1) return remark;
  }
  return {};
}

}  // namespace

TEST_CASE("bench judge: healthy machines are proven") {
  SECTION("8x4090, Gen4 x16, four a socket") {
    Paths paths = paths_of(8, {});
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t j = 0; j < 8; ++j) {
        paths[i][j] = path_of(i / 4 == j / 4 ? PathKind::one_socket : PathKind::cross_socket, 31.5, 28.8);
      }
    }
    const Measurement run = good_run(8, [](int i, int j) { return i / 4 == j / 4 ? 25.8 : 21.5; });
    const Judgement judgement = judge(run, paths, {});
    CHECK(texts(judgement).empty());
    CHECK(judgement.proven);
    CHECK(judgement.summary == "proven: 56 ordered pairs, 224 GiB of correct bytes, 21.5 to 25.8 GB/s");
    CHECK(judgement.grades[3][7] == Grade::pass);
    CHECK(judgement.grades[3][3] == Grade::not_judged);
  }
  SECTION("4xH200 behind NVSwitch in a virtual machine") {
    Measurement run = good_run(4, [](int, int) { return 396.4; });
    for (Gpu& gpu : run.gpus) gpu.nvlink_gb_s = 478.1;
    for (Pair& pair : run.pairs) {
      pair.copy_both_gb_s = figure(783.6);
      pair.chase_ns = figure(827);
    }
    const Judgement judgement = judge(run, paths_of(4, path_of(PathKind::unknown, 63.0, 57.6)), {});
    CHECK(texts(judgement).empty());
    CHECK(judgement.summary == "proven: 12 ordered pairs, 48 GiB of correct bytes, 396.4 GB/s");
  }
  SECTION("PRO 6000 across sockets: staged copies are faster, which is advice") {
    Measurement run = good_run(2, [](int, int) { return 39.0; });
    for (Pair& pair : run.pairs) {
      pair.copy_both_gb_s = figure(64);
      pair.staged_gb_s = figure(43);
    }
    const Judgement judgement = judge(run, paths_of(2, path_of(PathKind::cross_socket, 63.0, 57.6)), {});
    CHECK(judgement.proven);
    CHECK(judgement.summary == "proven: 2 ordered pairs, 8 GiB of correct bytes, 39.0 GB/s; 2 warnings");
    CHECK(said(judgement, "staged").text ==
          "GPU 0 -> GPU 1: 39.0 GB/s is less than the 43.0 GB/s of a copy through host memory");
    CHECK(judgement.grades[0][1] == Grade::warn);
  }
}

TEST_CASE("bench judge: a broken 5090 pair is faster than its link") {
  Bench bench;
  bench.paths = paths_of(2, path_of(PathKind::one_socket, 63.0, 57.6));
  bench.paths[0][1].arithmetic = "Gen5 x16 63.0 GB/s, MaxPayload 256: 91.4 %";
  bench.rate(128);
  const Judgement judgement = bench.judged();
  CHECK_FALSE(judgement.proven);
  CHECK(said(judgement, "copy").text ==
        "GPU 0 -> GPU 1: 128.0 GB/s is 203 % of the raw 63.0 GB/s (Gen5 x16 63.0 GB/s, MaxPayload 256: 91.4 %); "
        "fails above 101 %: faster than the link: the data did not take it");
  CHECK(judgement.summary.starts_with("not proven: GPU 0 -> GPU 1: 128.0 GB/s is 203 %"));
  CHECK(judgement.summary.ends_with("(and 3 more)"));  // both directions, one way and both ways
}

TEST_CASE("bench judge: shares by path, at both sides of each boundary") {
  struct Row {
    PathKind kind;
    bool intel;
    double warn;
    double fail;
  };
  for (const Row& row : std::vector<Row>{{PathKind::pcie_switch, false, 85, 60},
                                         {PathKind::pcie_switch, true, 85, 60},
                                         {PathKind::one_socket, false, 75, 50},
                                         {PathKind::one_socket, true, 60, 40},
                                         {PathKind::cross_socket, true, 60, 35},
                                         {PathKind::unknown, false, 60, 35}}) {
    CAPTURE(to_string(row.kind), row.intel);
    Bench bench;
    Path path = path_of(row.kind);
    path.intel_root = row.intel;
    bench.paths = paths_of(2, path);
    const auto grade_at = [&](double rate) {
      bench.rate(rate);
      return said(bench.judged(), "copy").grade;
    };
    CHECK(grade_at(row.warn) == Grade::pass);
    CHECK(grade_at(row.warn - 0.1) == Grade::warn);
    CHECK(grade_at(row.fail) == Grade::warn);
    CHECK(grade_at(row.fail - 0.1) == Grade::fail);
    CHECK(grade_at(0) == Grade::fail);
    CHECK(grade_at(kNoNumber) == Grade::fail);
  }
  Bench bench;
  bench.rate(42);
  CHECK(said(bench.judged(), "copy").text ==
        "GPU 0 -> GPU 1: 42.0 GB/s is 42 % of 100.0 GB/s (the arithmetic); fails below 60 %");
}

TEST_CASE("bench judge: NVLink takes its rate from the pair, else from the slower GPU") {
  Bench bench;
  bench.there().nvlink_gb_s = 100;
  const auto grade_at = [&](double rate) {
    bench.rate(rate);
    return said(bench.judged(), "copy").grade;
  };
  CHECK(grade_at(80) == Grade::pass);  // the switch would warn
  CHECK(grade_at(79.9) == Grade::warn);
  CHECK(grade_at(59.9) == Grade::fail);
  bench.there().nvlink_gb_s = 0;
  bench.run.gpus[0].nvlink_gb_s = 200;
  CHECK(grade_at(80) == Grade::warn);  // the other GPU has none
  bench.run.gpus[1].nvlink_gb_s = 300;
  CHECK(grade_at(160) == Grade::pass);
  CHECK(grade_at(159.9) == Grade::warn);
}

TEST_CASE("bench judge: rules at both sides of their boundaries") {
  struct Row {
    const char* test;
    std::function<void(Bench&, double)> set;
    double good;
    double bad;
    Grade grade;
  };
  const std::vector<Row> rows = {
      {"copy", [](Bench& b, double x) { b.there().copy_gb_s = figure(x); }, 100, 100.1, Grade::warn},
      {"copy", [](Bench& b, double x) { b.there().copy_gb_s = figure(x); }, 99, 111.2, Grade::fail},
      {"store", [](Bench& b, double x) { b.there().store_gb_s = figure(x); }, 100, 100.1, Grade::warn},
      {"store", [](Bench& b, double x) { b.there().store_gb_s = figure(x); }, 1, 111.2, Grade::fail},
      {"load", [](Bench& b, double x) { b.there().load_gb_s = figure(x); }, 111, 111.2, Grade::fail},
      {"busy", [](Bench& b, double x) { b.there().busy_gb_s = figure(x); }, 20, 111.2, Grade::fail},
      {"both", [](Bench& b, double x) { b.there().copy_both_gb_s = figure(x); }, 200, 200.1, Grade::warn},
      {"both", [](Bench& b, double x) { b.there().copy_both_gb_s = figure(x); }, 200, 222.3, Grade::fail},
      {"both", [](Bench& b, double x) { b.there().copy_both_gb_s = figure(x); }, 135, 134.9, Grade::warn},
      {"asymmetry", [](Bench& b, double x) { b.back().copy_gb_s = figure(x); }, 105.8, 106, Grade::warn},
      {"asymmetry", [](Bench& b, double x) { b.there().copy_gb_s = figure(x); }, 76.6, 44.9, Grade::fail},
      {"asymmetry", [](Bench& b, double x) { b.there().copy_gb_s = figure(x); }, 90, 45.1, Grade::warn},
      {"chase", [](Bench& b, double x) { b.there().chase_ns = figure(x); }, 3000, 3001, Grade::fail},
      {"chase", [](Bench& b, double x) { b.there().chase_ns = figure(x); }, 1, kNoNumber, Grade::fail},
      {"staged", [](Bench& b, double x) { b.there().staged_gb_s = figure(x); }, 90, 90.1, Grade::warn},
  };
  for (const Row& row : rows) {
    CAPTURE(row.test, row.good, row.bad);
    Bench bench;
    row.set(bench, row.good);
    CHECK(said(bench.judged(), row.test).grade == Grade::pass);
    row.set(bench, row.bad);
    const Judgement judgement = bench.judged();
    CAPTURE(texts(judgement));
    CHECK(said(judgement, row.test).grade == row.grade);
    CHECK((judgement.grades[0][1] == row.grade || row.grade == Grade::warn));
    CHECK((row.grade != Grade::fail || !judgement.proven));
  }
}

TEST_CASE("bench judge: ACS is named where it can be, asymmetry once, latency by distance") {
  Bench bench;
  bench.there().copy_both_gb_s = figure(99);
  CHECK(said(bench.judged(), "both").text ==
        "GPU 0 -> GPU 1: 99.0 GB/s both ways is 1.10 x the 90.0 GB/s one way; warns below 1.50: ACS redirection on a "
        "port between them does that, both ways share its uplink then");
  bench.there().nvlink_gb_s = 100;
  CHECK(said(bench.judged(), "both").text.ends_with("warns below 1.50"));
  bench = {};
  bench.there().copy_gb_s = figure(45);
  bench.there().copy_both_gb_s = figure(90);
  const Judgement judgement = bench.judged();
  CHECK(std::ranges::count(judgement.remarks, "asymmetry", &Remark::test) == 1);
  CHECK(said(judgement, "asymmetry").text ==
        "GPU 0 -> GPU 1: 45.0 GB/s, and 90.0 GB/s the other way: 50 % less; warns above 15 %");
  CHECK(judgement.remarks.front().grade == Grade::fail);  // worst first: its share
  bench = {};
  bench.back().copy_gb_s = figure(500);  // impossible, and no fault of the direction that is slower
  CHECK(std::ranges::count(bench.judged().remarks, "asymmetry", &Remark::test) == 0);
  CHECK(bench.judged().grades[0][1] == Grade::pass);
  CHECK(bench.judged().grades[1][0] == Grade::fail);
  for (const PathKind kind : {PathKind::cross_socket, PathKind::unknown}) {
    bench = {};
    bench.paths = paths_of(2, path_of(kind));
    bench.there().chase_ns = figure(5000);
    CHECK(said(bench.judged(), "chase").grade == Grade::pass);
    bench.there().chase_ns = figure(5001);
    CHECK(said(bench.judged(), "chase")
              .text.starts_with("GPU 0 -> GPU 1: a dependent load takes 5.00 us; fails above 5.00 us ("));
  }
}

TEST_CASE("bench judge: a wrong word fails, and its sentence says all") {
  Bench bench;
  bench.run.wrong.push_back(
      {"store", 0, 1, 256U << 20, 4096, 512, WrongKind::misroute, "holds what GPU 2 sent to GPU 3", "0x1", "0x2"});
  bench.there().verified_bytes.erase("store");
  const Judgement judgement = bench.judged();
  CHECK_FALSE(judgement.proven);
  CHECK(judgement.remarks.size() == 1);  // and not that it was not tested as well
  CHECK(judgement.summary ==
        "fit for copies; not for nccl, custom-all-reduce; not tested for atomics, managed-memory, compressible-memory: "
        "GPU 0 -> GPU 1: "
        "store: 512 wrong words in 256 MiB, one at byte 4096: misroute (data of another "
        "pair); holds what GPU 2 sent to GPU 3; 0x1 in place of 0x2");
  CHECK(judgement.grades[0][1] == Grade::fail);
  CHECK(judgement.grades[1][0] == Grade::pass);
  for (int kind = 0; kind <= static_cast<int>(WrongKind::hung); ++kind) {
    bench.run.wrong[0].kind = static_cast<WrongKind>(kind);
    bench.run.wrong[0].to = kind % 2 == 0 ? 1 : 77;  // a GPU that is not there
    CHECK_FALSE(bench.judged().proven);
    CHECK(bench.judged().summary.find(to_string(bench.run.wrong[0].kind)) != std::string::npos);
  }
}

TEST_CASE("bench judge: a fault and a hang are named with pair and test, or as nobody's") {
  Bench bench;
  bench.there().verified_bytes.erase("store");
  bench.run.wrong.push_back(
      {"store", 0, 1, 0, 0, 0, WrongKind::faulted, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS", "", ""});
  const Judgement judgement = bench.judged();
  CHECK_FALSE(judgement.proven);
  CHECK(judgement.remarks.size() == 1);
  CHECK(judgement.grades[0][1] == Grade::fail);
  CHECK(judgement.grades[1][0] == Grade::pass);
  CHECK(judgement.summary ==
        "not proven: GPU 0 -> GPU 1: faulted at store (the driver reports an error): cuStreamSynchronize: "
        "CUDA_ERROR_ILLEGAL_ADDRESS");
  bench.run.wrong[0] = {"bytes", -1, -1, 0, 0, 0, WrongKind::hung, "the GPUs did not answer within 11 s", "", ""};
  CHECK_FALSE(bench.judged().proven);
  CHECK(bench.judged().remarks.front().text == "a GPU hung at bytes (no answer): the GPUs did not answer within 11 s");
}

TEST_CASE("bench judge: what was not tested is not proven") {
  struct Row {
    const char* what;
    std::function<void(Bench&)> set;
    const char* summary;
  };
  const std::vector<Row> rows = {
      {"never ran", [](Bench& b) { b.there().verified_bytes.erase("load"); }, "GPU 0 -> GPU 1: load was not tested"},
      {"no bytes", [](Bench& b) { b.there().verified_bytes["copy-pull"] = 0; },
       "GPU 0 -> GPU 1: copy-pull was not tested"},
      {"a reason is no proof", [](Bench& b) { b.there().not_run["store"] = "MIG"; },
       "GPU 0 -> GPU 1: store was not tested: MIG"},
      {"of the whole run", [](Bench& b) { b.run.not_run["copy-push"] = "out of memory"; },
       "GPU 0 -> GPU 1: copy-push was not tested: out of memory (and 1 more)"},
      {"a pair is missing", [](Bench& b) { b.run.pairs.pop_back(); }, "GPU 1 -> GPU 0: was not tested"},
      {"no access", [](Bench& b) { b.there().access = false; },
       "GPU 0 -> GPU 1: the driver says there is no peer access"},
      {"map refused", [](Bench& b) { b.there().refused = "CUDA_ERROR_MAP_FAILED"; },
       "GPU 0 -> GPU 1: peer access was refused: CUDA_ERROR_MAP_FAILED: BAR1 does not cover the VRAM: Resizable BAR is "
       "off, or the "
       "fork's alignment check refused it. Turn on Resizable BAR in the firmware setup and set "
       "NVreg_EnableResizableBar=1."},
      {"refused", [](Bench& b) { b.there().refused = "CUDA_ERROR_X (205)"; },
       "GPU 0 -> GPU 1: peer access was refused: CUDA_ERROR_X (205)"},
      {"one GPU",
       [](Bench& b) {
         b.run.gpus.pop_back();
         b.run.pairs.clear();
       },
       "one GPU (NVIDIA Test): there is no pair to prove"},
      {"no GPU",
       [](Bench& b) {
         b.run.gpus.clear();
         b.run.pairs.clear();
       },
       "no GPU: there is nothing to prove"},
      {"seeded fault", [](Bench& b) { b.run.fault = "skip-store"; },
       "fault \"skip-store\" was seeded: the run proves nothing"},
      {"collective",
       [](Bench& b) {
         Collective collective;
         collective.name = "all_reduce";
         collective.bytes = kGiB;
         collective.wrong = 1;
         b.run.collectives.emplace().results.push_back(collective);
       },
       "NCCL all_reduce of 1 GiB, P2P on: 1 wrong element"},
      {"collective that hangs",
       [](Bench& b) {
         b.run.collectives = Collectives{.not_run = "hangs with P2P: no answer within 60 s", .version = "2.28.3"};
         b.run.collectives->results.push_back({"all_reduce", false, kGiB, {}, {}, 0});
       },
       "NCCL 2.28.3: hangs with P2P: no answer within 60 s"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Bench bench;
    CHECK(bench.judged().proven);
    row.set(bench);
    CHECK_FALSE(bench.judged().proven);
    CHECK(bench.judged().summary.starts_with(bench.judged().limited ? "fit for " : "not proven: "));
    CHECK(bench.judged().summary.ends_with(std::string(": ") + row.summary));
  }
}

TEST_CASE("bench judge: GPUs in use and unknown paths are said once, bytes are judged all the same") {
  Measurement run = good_run(4, [](int, int) { return 1.0; });
  Bench bench;
  bench.run = run;
  bench.paths = paths_of(4, path_of(PathKind::pcie_switch));
  for (Gpu& gpu : bench.run.gpus) gpu.in_use = true;
  Judgement judgement = bench.judged();
  CHECK(judgement.proven);
  CHECK(texts(judgement) ==
        "not_judged speed: speed of 12 pairs not judged: others compute on GPU 0, GPU 1, GPU 2, GPU 3\n");
  CHECK(judgement.summary.ends_with("; speed not judged everywhere"));
  CHECK(judgement.grades[2][3] == Grade::not_judged);
  for (std::size_t i = 1; i < 4; ++i) bench.run.gpus[i].in_use = false;
  judgement = bench.judged();
  CHECK(judgement.remarks.back().text == "speed of 6 pairs not judged: others compute on GPU 0");
  CHECK(judgement.grades[0][3] == Grade::not_judged);
  CHECK(judgement.grades[2][3] == Grade::fail);

  bench.run = run;
  bench.run.pairs[0].chase_ns = figure(6000);
  bench.run.pairs[1].verified_bytes.clear();
  for (const Paths& paths : {paths_of(4, path_of(PathKind::unknown, 0, 0)), Paths{}}) {
    judgement = judge(bench.run, paths, {});
    CHECK(said(judgement, "chase").grade == Grade::fail);
    CHECK(judgement.grades[0][2] == Grade::fail);
    CHECK(std::ranges::count(judgement.remarks, Grade::not_judged, &Remark::grade) == 1);
    CHECK(
        judgement.remarks.back().text.starts_with("speed of 12 pairs not judged: the rate of the path is not known, "));
  }
}

TEST_CASE("bench judge: only a quick run may leave out the copy rate") {
  Bench bench;
  for (Pair& pair : bench.run.pairs) pair.copy_gb_s = pair.copy_both_gb_s = pair.chase_ns = std::nullopt;
  CHECK(bench.judged().remarks.at(0).text == "speed of 2 pairs not judged: no copy was timed");
  bench.run.mode = "quick";
  CHECK(bench.judged().remarks.empty());
  CHECK(bench.judged().summary == "proven: 2 ordered pairs, 8 GiB of correct bytes");
  bench.run.not_run["copy"] = "deadline";
  CHECK(bench.judged().remarks.at(0).text == "speed of 2 pairs not judged: no copy was timed: deadline");
}

TEST_CASE("bench judge: atomics count only where they are wanted") {
  Bench bench;
  bench.run.atomics = {{0, 1, false, "sum 12 in place of 20"}, {1, 0, true, ""}};
  CHECK(bench.judged().proven);
  CHECK(said(bench.judged(), "atomics").grade == Grade::warn);
  CHECK(fit(bench.judged(), P2pUse::atomics) == Fitness::Kind::unfit);
  bench.wanted = {P2pUse::nccl, P2pUse::atomics};
  CHECK(bench.judged().limited);
  CHECK(bench.judged().summary ==
        "fit for copies, nccl, custom-all-reduce; not for atomics; not tested for managed-memory, compressible-memory: "
        "GPU 0 -> GPU 1: "
        "atomics came out wrong: sum 12 in place of 20");
  bench.run.atomics[0] = {0, 1, true, ""};
  CHECK(bench.judged().remarks.empty());
  bench.run.atomics.pop_back();
  bench.back().not_run["atomics"] = "not supported";
  CHECK(bench.judged().remarks.at(0).text == "GPU 1 -> GPU 0: atomics was not tested: not supported");
  CHECK_FALSE(bench.judged().proven);
  bench.run.mode = "quick";  // which tests none
  CHECK(bench.judged().proven);
}

TEST_CASE("bench judge: managed memory counts only where it is wanted, and nothing else rests on it") {
  Bench bench;
  bench.run.not_run[kManaged] = "only where it is asked for";
  CHECK(bench.judged().proven);
  const Judgement judgement = bench.judged();
  CHECK(std::ranges::find(judgement.fit, P2pUse::managed_memory, &Fitness::use)->why == "only where it is asked for");
  bench.wanted = {P2pUse::nccl, P2pUse::managed_memory};
  CHECK(bench.judged().limited);
  CHECK(bench.judged().remarks.at(0).text == "GPU 0 -> GPU 1: managed was not tested: only where it is asked for");
  bench.run.mode = "quick";  // which tests none
  CHECK(bench.judged().proven);
  CHECK(fit(bench.judged(), P2pUse::managed_memory) == Fitness::Kind::not_tested);
  bench.run.mode = "full";
  bench.run.not_run.clear();
  for (Pair& pair : bench.run.pairs) pair.verified_bytes[kManaged] = kGiB;
  CHECK(bench.judged().proven);
  CHECK(fit(bench.judged(), P2pUse::managed_memory) == Fitness::Kind::fit);
  for (const WrongKind kind : {WrongKind::faulted, WrongKind::hung, WrongKind::lost}) {
    bench.run.wrong = {{kManaged, 0, 1, 4U << 20, 0, 0, kind, "the second process: no answer", "", ""}};
    bench.there().verified_bytes.erase(kManaged);
    CHECK(bench.judged().limited);
    CHECK(
        bench.judged().summary.starts_with("fit for copies, nccl, custom-all-reduce; not for managed-memory; not "
                                           "tested for atomics, compressible-memory: GPU 0 -> GPU 1: "));
    CHECK(bench.judged().summary.find(to_string(kind)) != std::string::npos);
    CHECK(fit(bench.judged(), P2pUse::nccl) == Fitness::Kind::fit);
  }
  CHECK_FALSE(judge(bench.run, bench.paths, {}, {"NVRM: Xid 154"}, bench.wanted).limited);
  bench.run.wrong = {{"after-managed", 0, 1, 0, 0, 0, WrongKind::faulted, "kernel fill: CUDA_ERROR_UNKNOWN", "", ""}};
  CHECK_FALSE(bench.judged().limited);  // the GPUs are down
}

TEST_CASE("bench judge: reads that are wrong leave copies and NCCL") {
  Bench bench;
  bench.run.wrong = {wrong("load-plain")};
  const Judgement judgement = bench.judged();
  CHECK_FALSE(judgement.proven);
  CHECK(judgement.limited);
  CHECK(
      judgement.summary.starts_with("fit for copies, nccl; not for custom-all-reduce; not tested for atomics, "
                                    "managed-memory, compressible-memory: GPU 0 -> GPU 1: load-plain"));
  CHECK(judgement.grades[0][1] == Grade::fail);
  bench.wanted = {P2pUse::nccl};
  CHECK(bench.judged().proven);
  CHECK(said(bench.judged(), "bytes").grade == Grade::warn);
}

TEST_CASE("bench judge: what concerns no one use, or copies, leaves none") {
  Bench bench;
  SECTION("a wrong copy: no program does without") {
    bench.run.wrong = {wrong("copy-timed")};
    CHECK_FALSE(bench.judged().limited);
    bench.wanted = {P2pUse::custom_all_reduce};
    CHECK_FALSE(bench.judged().proven);
  }
  SECTION("bytes beyond the end of a load") {
    bench.run.wrong = {wrong("load", WrongKind::guard)};
    CHECK_FALSE(bench.judged().limited);
  }
  SECTION("a fault of a GPU") { CHECK_FALSE(judge(bench.run, bench.paths, {}, {"NVRM: Xid 79"}).limited); }
  SECTION("a slow path") {
    bench.rate(10);
    CHECK_FALSE(bench.judged().limited);
  }
  SECTION("an error of the driver") {
    bench.run.wrong = {wrong("load", WrongKind::faulted)};
    CHECK_FALSE(bench.judged().limited);
  }
  SECTION("a pair that was not tested") {
    bench.run.pairs.pop_back();
    CHECK_FALSE(bench.judged().limited);
  }
  SECTION("peers that are refused") {
    bench.there().access = false;
    CHECK_FALSE(bench.judged().limited);
  }
  SECTION("one GPU") {
    bench.run = good_run(1, [](int, int) { return 90.0; });
    CHECK_FALSE(bench.judged().limited);
  }
  for (const Fitness& one : bench.judged().fit) CHECK((bench.run.gpus.size() == 2 || one.kind != Fitness::Kind::fit));
}

TEST_CASE("bench judge: names of uses") {
  CHECK(uses_from({"nccl", "nccl", "copies"}).value() == Uses{P2pUse::nccl, P2pUse::copies});
  CHECK(uses_from({"nvshmem"}).error().message ==
        "\"nvshmem\" is not a use of P2P; known: copies, nccl, custom-all-reduce, atomics, managed-memory, "
        "compressible-memory");
  CHECK(uses_from({}).error().message == "no use of P2P is given");
}
