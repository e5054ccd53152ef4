// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/json_struct.hpp"
#include "bench_example.hpp"
#include "catch.hpp"
#include "temporary.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

/// A two-GPU run with every part that a report can have.
Report full() {
  Report report = example(2);
  Measurement& run = report.measurement;
  run.collectives = nccl({{"P2P/CUMEM", 24}}, "SYS", 20.6);
  run.all_to_all_gb_s = figure(49.5);
  run.swept_bytes["GPU-0"] = std::uint64_t{20} << 30;
  run.not_run["ipc"] = "exclusive mode";
  run.pairs[0].not_run["pool"] = "no pools";
  run.pairs[0].copy_both_gb_s = figure(48.9);
  run.pairs[0].ping_pong_ns = figure(1400);
  run.wrong.push_back({"store", 1, 0, 4096, 128, 32, WrongKind::mirror, "of the writer", "0x1", "0x2"});
  run.atomics.push_back({0, 1, false, "sum 9 of 10"});
  run.all_reduces.push_back({0, 1, 8192, 2000, 6100.5, 3});
  run.soak.emplace(
      Soak{0.5, "complete", {{30, 9, 1U << 30, 0, 24.1, {{"0000:01:00.0 fatal", 0}}, {{16, 16, 61, 0, {}}}}}});
  run.phases.push_back({"copies", 12.5, 240.04});
  run.wall_ms = 1700.5;
  run.host_peak_bytes = 200'000'000;
  Link& link = report.paths[0][1].links.emplace_back();
  link.address = "0000:01:00.0";
  link.generation = link.generation_most = 4;
  link.width = 16;
  link.max_payload_bytes = 256;
  report.paths[0][1].shared = {"0000:00:01.1"};
  report.judgement.proven = false;
  report.judgement.grades[1][0] = Grade::fail;
  report.judgement.remarks.push_back({Grade::fail, 1, 0, "bytes", "GPU 1 -> GPU 0: store: 32 wrong words"});
  report.kernel_log.push_back("NVRM: Xid 31");
  return report;
}

/// Output of a Python program that validates each document against the schema: "ok" or "bad" for each.
std::string validated(const p2pd::test::TemporaryDirectory& directory, const std::vector<nlohmann::json>& documents) {
  std::string command =
      "python3 -c 'import json, jsonschema, sys\n"
      "schema = jsonschema.Draft202012Validator(json.load(open(sys.argv[1])))\n"
      "print(*(\"ok\" if schema.is_valid(json.load(open(f))) else \"bad\" for f in sys.argv[2:]))' " P2PD_SOURCE_DIR
      "/config/schema/bench.schema.json";
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string file = directory / fmt::format("{}.json", i);
    std::ofstream(file) << documents[i].dump();
    command += " " + file;
  }
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe));
  CHECK(pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("bench report: a measurement survives JSON") {
  const nlohmann::json json = json_of(full().measurement);
  CHECK(json["wrong"][0]["kind"] == "mirror");
  CHECK(json["pairs"][0]["chase_ns"]["median"] == 1201);
  CHECK(json["pairs"][0]["store_gb_s"].is_null());
  CHECK(json_of(measurement_from(json).value()) == json);
  const nlohmann::json bare = json_of(Measurement());
  CHECK(bare["collectives"].is_null());
  CHECK(json_of(measurement_from(bare).value()) == bare);
}

TEST_CASE("bench report: one of an earlier version lacks what was added since") {
  Measurement run = full().measurement;
  run.collectives.emplace().version = "2.28.3";
  nlohmann::json earlier = json_of(run);
  earlier.erase("all_reduces");
  for (const char* added : {"library", "pairs", "notes"}) earlier["collectives"].erase(added);
  const auto read = measurement_from(earlier);
  REQUIRE(read);
  CHECK(read->collectives->version == "2.28.3");
  CHECK(read->all_reduces.empty());
  earlier.erase("pairs");  // of the measurement: every version has it
  CHECK_FALSE(measurement_from(earlier));
}

TEST_CASE("bench report: every kind of wrong word has a text that is read back") {
  for (int i = 0; i <= static_cast<int>(WrongKind::hung); ++i) {
    Measurement run;
    run.wrong.push_back({"copy-push", 0, 1, 8, 0, 1, static_cast<WrongKind>(i), "", "", ""});
    CHECK(measurement_from(json_of(run))->wrong[0].kind == static_cast<WrongKind>(i));
  }
  CHECK(to_string(WrongKind::unsupported_request) == "unsupported-request");
}

TEST_CASE("bench report: JSON that lacks a key, or means another type or number, is an error that names it") {
  nlohmann::json bad = json_of(full().measurement);
  std::string where;
  const auto put = [&](const char* pointer, nlohmann::json value) {
    where = pointer;
    bad[nlohmann::json::json_pointer(where)] = std::move(value);
  };
  SECTION("a missing key") { bad["pairs"][1].erase(where = "chase_ns"); }
  SECTION("another type") { put("/gpus/0/index", "0"); }
  SECTION("an unknown kind") { put("/wrong/0/kind", "odd"); }
  SECTION("no object") { bad = 3; }
  SECTION("a list in the place of an object") { put("/swept_bytes", nlohmann::json::array()); }
  // json::get casts these, which is undefined
  SECTION("out of range") { put("/expendable_process", 5.03316e+56); }
  SECTION("below range") { put("/host_peak_bytes", -1); }
  SECTION("above range") { put("/gpus/0/sm_major", std::uint64_t{1} << 40); }
  SECTION("a fraction") { put("/pairs/0/verified_bytes/ipc-vmm", 1.5); }
  const auto read = measurement_from(bad);
  REQUIRE_FALSE(read);
  CHECK(read.error().message.find(where) != std::string::npos);
}

TEST_CASE("bench report: of one from elsewhere, what can be read is read") {
  nlohmann::json odd = to_json(full());
  odd["pairs"][0]["copy_gb_s"] = "fast";
  odd["pairs"][1]["from"] = 9;  // no such GPU
  odd["wrong"][0].update({{"from", 9}, {"kind", "odd"}});
  odd["judgement"]["grades"][0] = {"warn", 5, "odd"};
  odd["judgement"]["remarks"] = 7;
  odd["paths"][0][1]["kind"] = "wormhole";
  const BenchReport read = bench_report_from(odd);
  REQUIRE(read.measurement.pairs.size() == 1);
  CHECK_FALSE(read.measurement.pairs[0].copy_gb_s);
  CHECK(read.measurement.pairs[0].chase_ns->median == 1201);
  CHECK(read.measurement.wrong[0].from == -1);
  CHECK(read.measurement.wrong[0].kind == WrongKind::garbled);
  CHECK(read.judgement.grades[0] == std::vector{Grade::warn, Grade::pass, Grade::pass});
  CHECK(read.judgement.remarks.empty());
  CHECK(read.paths[0][1].kind == PathKind::unknown);
  CHECK(read.paths[0][1].links[0].width == 16);
  for (const nlohmann::json& shape : {nlohmann::json(), nlohmann::json(1), nlohmann::json::array({1, "x"})})
    CHECK(bench_report_from(shape).measurement.gpus.empty());
}

TEST_CASE("bench report: the document fits its schema, and seeded mistakes do not") {
  const nlohmann::json good = to_json(full());
  CHECK(good["schema"] == "p2pd.bench/1");
  std::vector<nlohmann::json> documents = {good, to_json(Report())};
  std::string wanted = "ok ok";
  const auto mistake = [&](const char* path, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(path)] = value;
    documents.push_back(std::move(bad));
    wanted += " bad";
  };
  mistake("/schema", "p2pd.bench/2");
  mistake("/extra", 1);
  mistake("/gpus/0/speed", 1);
  mistake("/pairs/0/from", -1);
  mistake("/pairs/0/copy_gb_s/unit", "GB/s");
  mistake("/wrong/0/kind", "odd");
  mistake("/judgement/grades/0/1", "good");
  mistake("/judgement/remarks/0/from", "0");
  mistake("/paths/0/1/kind", "switch");
  mistake("/paths/0/1/links/0/lanes", 16);
  mistake("/thresholds/one_socket.best", 1);
  mistake("/collectives/results/0/p2p", 1);
  mistake("/atomics/0/exact", "yes");
  mistake("/all_reduces/0/wrong", -1);
  mistake("/soak/ended", "tired");
  mistake("/soak/samples/0/gpus/0/replays", -1);
  mistake("/phases/0/length_ms", -1);
  mistake("/machine/kernel", 6);
  documents.push_back(good);
  documents.back().erase("judgement");
  wanted += " bad";
  const p2pd::test::TemporaryDirectory directory;
  CHECK(validated(directory, documents) == wanted + "\n");
}

TEST_CASE("bench report: what was not run is said, equal reasons once") {
  Report report = example(4);
  for (Pair& pair : report.measurement.pairs) pair.not_run["ipc"] = "exclusive mode";
  report.measurement.collectives = Collectives();
  report.measurement.collectives->not_run = "no libnccl";
  for (const std::string& text : {matrices(report, false), bug_report(report)}) {
    CHECK(holds(text, "ipc not run on 12 pairs: exclusive mode\n"));
    CHECK(holds(text, "NCCL: not tested (no libnccl)\n"));
  }
}

TEST_CASE("bench report: what a driver or the kernel says cannot steer a terminal") {
  Report report = full();
  const std::string evil =
      "\x1b[2J\x7f\x07"
      "evil\r\n\xff\xc3\xa4\x9b";
  report.measurement.gpus[0].name = evil;
  report.measurement.gpus[1].uuid = evil;
  report.measurement.driver = evil;
  report.measurement.not_run["x"] = evil;
  report.measurement.pairs[0].refused = evil;
  report.measurement.phases[0].name = evil;
  report.measurement.collectives->version = evil;
  report.kernel_log = {evil};
  report.judgement.summary = evil;
  report.judgement.remarks.push_back({Grade::warn, 0, 1, "copy", evil});
  report.machine["srcversion"] = evil;
  std::string all =
      matrices(report, false) + bug_report(report) + phase_table(report.measurement) + to_json(report).dump();
  for (const std::string& line : advice(report)) all += line;
  for (const std::string& line : gain(to_json(example(2)), report)) all += line;
  CHECK(holds(all, "[2Jevil ????"));
  CHECK(std::all_of(all.begin(), all.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST_CASE("bench report: the bug report of two GPUs") {
  Report report = full();
  report.judgement.summary = "not proven: GPU 1 -> GPU 0";
  report.machine["acs"]["0000:00:03.1"] = {"request redirect", "completion redirect"};
  report.machine["registry_options"] = "ForceP2P=17";
  CHECK(bug_report(report) == R"(p2pd 0.2.0 p2p-bench, not proven: GPU 1 -> GPU 0
driver 550.90.07 open modules, srcversion 0123456789ABCDEF, CUDA 12.4
kernel 6.8.0-60-generic, IOMMU domain identity, arguments: amd_iommu=on, iommu=pt
RegistryDwords: ForceP2P=17
ACS: 1 port redirecting: 0000:00:03.1 (request redirect, completion redirect)
seed 0x1f2e3d4c5b6a7988, mode default
GPU 0 0000:01:00.0 NVIDIA GeForce RTX 4090 24 GiB, BAR1 32 GiB, node 0
GPU 1 0000:11:00.0 NVIDIA GeForce RTX 4090 24 GiB, BAR1 32 GiB, node 1
0->1 writer ok owner ok 25.0 GB/s 1.2 us
1->0 writer ok owner LOST 25.1 GB/s 1.2 us fail
NCCL 2.28.3: P2P on 2 of 2, all-reduce 20.6 GB/s, 14.5 without; P2P/CUMEM x 24, NCCL_P2P_LEVEL=SYS
Atomics: FAILED, GPU 0 -> GPU 1: sum 9 of 10
ipc not run: exclusive mode
pool not run on 1 pair: no pools
kernel: NVRM: Xid 31
)");
}

TEST_CASE("bench report: writer and owner are told apart, other tests named") {
  Report report = example(2);
  Measurement& run = report.measurement;
  run.pairs[0].verified_bytes = {{"copy-push", 8}};
  run.wrong.push_back({"copy-pull", 0, 1, 8, 0, 1, WrongKind::stale, "", "", ""});
  run.wrong.push_back({"store", 1, 0, 8, 0, 1, WrongKind::dropped, "", "", ""});
  run.wrong.push_back({"store-writer-reads", 1, 0, 8, 0, 1, WrongKind::alias, "", "", ""});
  run.pairs[1].copy_gb_s.reset();
  const std::string text = bug_report(report);
  CHECK(holds(text, "\n0->1 writer - owner -, copy-pull stale 25.0 GB/s 1.2 us\n"));
  CHECK(holds(text, "\n1->0 writer alias owner dropped - GB/s 1.2 us\n"));
  run.pairs[0].access = false;
  run.pairs[1].refused = "too many peers";
  CHECK(holds(bug_report(report), "\n0->1 no peer access 25.0"));
  CHECK(holds(bug_report(report), "\n1->0 refused: too many peers"));
}

TEST_CASE("bench report: the bug report keeps to forty lines of ASCII, the worst first") {
  Report report = example(16);
  Measurement& run = report.measurement;
  run.collectives = nccl({{"SHM/direct", 8}}, "", 14);
  constexpr WrongKind kLast = WrongKind::hung;
  for (std::size_t i = 0; i < run.pairs.size(); i += 4) {  // many kinds of broken pairs
    const Pair& pair = run.pairs[i];
    const auto kind = static_cast<WrongKind>(i / 4 % (static_cast<std::size_t>(kLast) + 1));
    run.wrong.push_back({i % 8 == 0 ? "store" : "load", pair.from, pair.to, 8, 0, 1, kind, "", "", ""});
    report.judgement.grades[static_cast<std::size_t>(pair.from)][static_cast<std::size_t>(pair.to)] = Grade::fail;
    run.pairs[i + 1].refused = fmt::format("error {}", i);
  }
  for (int i = 0; i < 50; ++i) {
    run.not_run[fmt::format("test{}", i)] = fmt::format("{}{:x>500}", i, "");
    report.kernel_log.push_back(fmt::format("NVRM: Xid {}", i));
    report.machine["acs"][fmt::format("0000:{:02x}:01.0", i)] = {"request redirect"};
  }
  const std::string text = bug_report(report);
  const std::vector<std::string> lines = lines_of(text);
  CHECK(lines.size() == 40);
  for (const std::string& line : lines) CHECK(line.size() <= 240);
  CHECK(holds(lines[4], "ACS: 50 ports redirecting: 0000:00:01.0"));
  CHECK(holds(lines[14], " fail"));
  CHECK(holds(text, "kernel: NVRM: Xid 0\n"));
  const std::string healthy = bug_report(example(16));
  CHECK(holds(healthy, "\n240 pairs: 0->1 0->2 "));
  CHECK(holds(healthy, " ... and 229 more writer ok owner ok 25.0 to 26.5 GB/s 1.2 us\n"));
}

TEST_CASE("bench report: of a forged list the first items count", "[attack]") {
  std::vector<int> read;
  CHECK(JsonReader(false).read(nlohmann::json(std::vector<int>(100'000, 1)), read));
  CHECK(read.size() == JsonReader::kMostItems);
  const auto pairs = bench_report_from({{"gpus", {{{"uuid", "a"}}, {{"uuid", "b"}}}},
                                        {"pairs", {{{"from", "x"}, {"to", 1}}, 0, {{"from", 0}, {"to", 1}}}}})
                         .measurement.pairs;
  REQUIRE(pairs.size() == 1);  // a number that cannot be read is no GPU
  CHECK(pairs[0].from == 0);
}

TEST_CASE("bench report: phases only when asked, with where the time went") {
  const Report report = full();
  CHECK(phase_table(report.measurement) ==
        "phase                             start ms length ms\n"
        "copies                                12.5     240.0\n"
        "all                                           1700.5\n");
  CHECK_FALSE(holds(matrices(report, false), "1700.5"));
}
