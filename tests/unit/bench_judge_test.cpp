// SPDX-License-Identifier: MIT
// Judgement of a run: whether it proves P2P, what was tested, what failed, and the uses that the machine is fit for.
#include "probes/bench/report/judge.hpp"

#include <algorithm>
#include <functional>

#include "bench_example.hpp"
#include "catch.hpp"

using namespace p2pd;
using namespace p2pd::bench;

TEST_CASE("bench judge: pairs of two groups are not expected, and never fail") {
  const Paths paths = paths_of(4, path_of(PathKind::one_socket, 31.5, 28.8));
  Measurement run = good_run(4, [](int, int) { return 25.8; });
  for (Gpu& gpu : run.gpus) gpu.group = gpu.index < 2 ? "Ada" : "Ampere";
  const auto across = [&](const Pair& pair) { return !may_be_peers(run, pair.from, pair.to); };
  SECTION("not measured") {
    std::erase_if(run.pairs, across);
    const Judgement judgement = judge(run, paths, {});
    CHECK(judgement.proven);
    CHECK(texts(judgement).empty());
    CHECK(judgement.summary ==
          "proven in 2 groups (2 x Test, 2 x Test): 4 ordered pairs, 16 GiB of correct bytes, 25.8 GB/s");
    CHECK(judgement.grades[0][2] == Grade::not_judged);
    run.pairs.pop_back();
    CHECK_FALSE(judge(run, paths, {}).proven);
  }
  SECTION("measured, wrong and slow") {
    run.wrong.push_back({"store", 0, 2, 64, 0, 8, WrongKind::dropped, "", "0x0", "0x1"});
    for (Pair& pair : run.pairs)
      if (across(pair)) pair.copy_gb_s = figure(1);
    const Judgement judgement = judge(run, paths, {});
    CHECK(judgement.proven);
    CHECK(judgement.grades[0][2] == Grade::warn);
    CHECK(judgement.summary.find("4 ordered pairs") != std::string::npos);
    run.wrong.back().to = 1;
    CHECK_FALSE(judge(run, paths, {}).proven);
  }
}

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

TEST_CASE("bench judge: a wrong word fails, and its sentence says all") {
  Bench bench;
  bench.run.wrong.push_back(
      {"store", 0, 1, 256U << 20, 4096, 512, WrongKind::misroute, "holds what GPU 2 sent to GPU 3", "0x1", "0x2"});
  bench.there().verified_bytes.erase("store");
  const Judgement judgement = bench.judged();
  CHECK_FALSE(judgement.proven);
  CHECK(judgement.remarks.size() == 1);  // no second one, that it was not tested
  CHECK(judgement.summary ==
        "fit for copies; not for nccl, custom-all-reduce; not tested for atomics, managed-memory, compressible-memory: "
        "GPU 0 -> GPU 1: "
        "store: 512 wrong words in 256 MiB, one at byte 4096: misroute (data of another "
        "pair); holds what GPU 2 sent to GPU 3; 0x1 in place of 0x2");
  CHECK(judgement.grades[0][1] == Grade::fail);
  CHECK(judgement.grades[1][0] == Grade::pass);
  for (int kind = 0; kind < static_cast<int>(WrongKind::hung); ++kind) {
    bench.run.wrong[0].kind = static_cast<WrongKind>(kind);
    bench.run.wrong[0].to = kind % 2 == 0 ? 1 : 77;  // a GPU that does not exist
    CHECK_FALSE(bench.judged().proven);
    CHECK(bench.judged().summary.find(to_string(bench.run.wrong[0].kind)) != std::string::npos);
  }
  bench.run.wrong = {
      {"handshake-ll", 0, 1, 64, 8, 0, WrongKind::lost, "the flag of round 2 did not arrive within 200 ms", "", ""}};
  CHECK(bench.judged().remarks.front().text ==
        "GPU 0 -> GPU 1: handshake-ll: the flag of round 2 did not arrive within 200 ms");
}

TEST_CASE("bench judge: a run of requested tests proves nothing, and each of them counts") {
  Bench bench;
  bench.run.tests = {"copy-push", "ping-pong"};
  bench.run.not_run["store"] = "not requested";
  for (Pair& pair : bench.run.pairs) {
    pair.verified_bytes = {{"copy-push", kGiB}};
    pair.copy_gb_s.reset();
  }
  CHECK(bench.judged().summary == "not proven: ping-pong was not tested");
  bench.there().ping_pong_ns = figure(900);
  CHECK(bench.judged().summary == "right in what was tested: copy-push, ping-pong; not a proof");
  CHECK(bench.judged().remarks.empty());
  CHECK_FALSE((bench.judged().proven || bench.judged().limited || bench.judged().fails()));
  for (const Fitness& one : bench.judged().fit) CHECK(one.kind == Fitness::Kind::not_tested);
  bench.run.tests.emplace_back("atomics");
  bench.run.atomics = {{0, 1, false, "the sum is 1, not 2"}};  // wanted by nobody, but requested
  CHECK(bench.judged().summary == "not proven: GPU 0 -> GPU 1: atomics failed: the sum is 1, not 2");
  CHECK_FALSE(bench.judged().limited);
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
  CHECK(bench.judged().remarks.front().text == "a GPU did not answer in bytes: the GPUs did not answer within 11 s");
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
      {"one GPU", [](Bench& b) { b.run = good_run(1, {}); }, "one GPU (NVIDIA Test): there is no pair to prove"},
      {"no GPU", [](Bench& b) { b.run = good_run(0, {}); }, "no GPU: there is nothing to prove"},
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
        "atomics failed: sum 12 in place of 20");
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
  CHECK(std::ranges::find(judgement.fit, "managed-memory", &Fitness::use)->why == "only where it is asked for");
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
                                           "tested for atomics, compressible-memory: GPU 0 -> GPU 1"));
    CHECK(holds(bench.judged().summary, kind == WrongKind::hung ? "did not answer in managed" : "managed"));
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
