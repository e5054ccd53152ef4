// SPDX-License-Identifier: MIT
// Thresholds: their settings, rates on both sides of each, and cases in which a speed is not judged.
#include <algorithm>
#include <functional>

#include "bench_example.hpp"
#include "catch.hpp"
#include "probes/bench/report/judge.hpp"

using namespace p2pd;
using namespace p2pd::bench;

TEST_CASE("bench judge: every threshold can be set by its name") {
  const nlohmann::json defaults = to_json(Thresholds{});
  CHECK(defaults.size() == 16);
  CHECK(defaults["one_socket.warn"] == 0.75);
  for (const auto& [name, value] : defaults.items()) {
    CAPTURE(name);
    const nlohmann::json other = value.is_boolean() ? nlohmann::json(true) : nlohmann::json(value.get<double>() / 2);
    const auto changed = thresholds_from({{name, other}});
    REQUIRE(changed);
    nlohmann::json expected = defaults;
    expected[name] = other;
    CHECK(to_json(*changed) == expected);
  }
  CHECK(to_json(thresholds_from(defaults).value()) == defaults);
}

TEST_CASE("bench judge: thresholds that make no sense are errors") {
  struct Row {
    const char* json;
    const char* message;
  };
  for (const Row& row : std::vector<Row>{
           {R"({"one_soket.warn": 0.5})", R"(unknown threshold "one_soket.warn"; did you mean "one_socket.warn"?)"},
           {R"({"xyzzy": 1})", R"(unknown threshold "xyzzy")"},
           {R"({"nvlink.fail": "0.5"})", R"(threshold "nvlink.fail" is not a number)"},
           {R"({"nvlink.fail": 2.1})", R"(threshold "nvlink.fail" is 2.1; it must be in 0 to 2)"},
           {R"({"nvlink.fail": -0.1})", R"(threshold "nvlink.fail" is -0.1; it must be in 0 to 2)"},
           {R"({"chase_ns": -1})", R"(threshold "chase_ns" is -1; it must be in 0 to 1000000000)"},
           {R"([])", "thresholds are not a mapping"}}) {
    const auto thresholds = thresholds_from(nlohmann::json::parse(row.json));
    REQUIRE_FALSE(thresholds);
    CHECK(thresholds.error().message == row.message);
  }
  CHECK(thresholds_from({{"nvlink.fail", 2}, {"over_raw", 0}}));
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
  CHECK(grade_at(80) == Grade::pass);  // the switch threshold would warn
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
  CHECK(judgement.remarks.front().grade == Grade::fail);  // the worst is first: its share
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
