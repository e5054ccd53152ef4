// SPDX-License-Identifier: MIT
// Content of `p2pctl report` for machines and runs of every kind, and untrusted text in it. What its script draws:
// cli/report.
#include <functional>

#include "catch.hpp"
#include "engine/journal.hpp"
#include "fake_gpu_host.hpp"
#include "fake_runner.hpp"
#include "report_sources.hpp"

using namespace p2pd;
using namespace p2pd::ctl;
using namespace p2pd::test;
using nlohmann::json;

TEST_CASE("report: nothing that the host says becomes markup") {
  const std::string evil = "<script>alert(1)</script><img/src=x onerror=alert(1)>\"'>";
  Sources sources = ready_run(2);
  sources.machine = machine_of(2);
  const std::function<void(json&)> spoil = [&](json& value) {
    if (value.is_string() && value.get<std::string>().find("p2pd.") != 0) value = value.get<std::string>() + evil;
    if (value.is_structured())
      for (json& inner : value) spoil(inner);
  };
  for (json* part : {&sources.status, &sources.machine}) spoil(*part);
  for (Step& step : sources.plans[0].steps) step.title += evil, step.why += evil;
  for (json& entry : sources.history["events"]) spoil(entry["text"]), spoil(entry["step"]), spoil(entry["time"]);
  json& bench = sources.history["runs"][0]["steps"][1]["finding"]["facts"];
  for (const char* key : {"judgement", "advice", "wrong"}) spoil(bench[key]);
  bench["kernel_log"] = {evil};
  bench["pairs"][0]["access"] = false;
  bench["wrong"] = {{{"from", 1}, {"to", 0}, {"kind", evil}}};
  sources.notes = {evil};
  const std::string page = page_of(sources);
  CHECK(holds(page, "&lt;script&gt;"));
  CHECK(holds(page, "\\u003cscript>"));
  sources.status["reason"] = "\x1b[1m\xff \xe2\x80\xae";
  CHECK(holds(page_of(sources), "<p>?[1m\xff ?</p>"));
}

TEST_CASE("report: JSON of any shape makes a page") {
  const json shapes[] = {nullptr,
                         1,
                         "x",
                         json::array(),
                         json::array({1, json::object()}),
                         {{"runs", 1}},
                         {{"steps", {1, "x", nullptr}}},
                         {{"events", {{{"boot_id", 3}}}}}};
  for (const json& shape : shapes) {
    Sources sources;
    sources.status = sources.history = sources.diagnosis = sources.baseline = sources.machine = shape;
    CHECK(holds(page_of(sources), "<h1>"));
  }
  Sources sources = ready_run(2);
  json& bench = sources.history["runs"][0]["steps"][1]["finding"]["facts"];
  bench["pairs"][0] = {{"from", -1}, {"to", 1e300}, {"copy_gb_s", "fast"}};
  bench["paths"] = {{1, 2}};
  bench["judgement"] = 3;
  page_of(sources);
}

TEST_CASE("report: nothing has run") {
  Sources sources;
  sources.made = "2026-11-22T12:00:00Z";
  sources.plans = {plan()};
  sources.status = {
      {"run", 0}, {"state", "idle"}, {"reason", "nothing has run on this machine yet"}, {"steps", json::array()}};
  sources.history = {{"runs", json::array()}, {"events", json::array()}};
  json gate = finding("fail", "port 0000:16:02.0 redirects");
  gate.update({{"step", "acs"}, {"standing", "fixable"}, {"next", "p2pctl apply geforce-p2p  (1 reboot)"}});
  sources.diagnosis = {
      {"plan", "geforce-p2p"}, {"holds", false}, {"proven", false}, {"conclusion", gate}, {"steps", {gate}}};
  sources.machine = machine_of(2);
  const std::string page = page_of(sources);
  CHECK(report_document(sources)["ran"] == false);
  for (const char* told : {"P2P cannot work as this machine is", "port 0000:16:02.0 redirects", "Half the bandwidth",
                           "p2pctl apply geforce-p2p"})
    CHECK(holds(page, told));
}

TEST_CASE("report: a run that ended ready, two GPUs") {
  Sources sources = ready_run(2);
  sources.machine = machine_of(2);
  sources.machine["text"] = "2 x GeForce RTX 4090; Linux 6.8.0-60-generic";
  sources.machine["emulated"] = "This machine is emulated: its figures say nothing about real hardware.";
  sources.in_place = {{1,
                       "acs",
                       "boot with pci=disable_acs_redir",
                       "pass no device to a guest",
                       true,
                       {"/etc/default/grub.d/zz-p2pd.cfg"},
                       {"gcc-12 installed"}}};
  const std::string page = page_of(sources);
  for (const char* told :
       {"2 x GeForce RTX 4090", "This machine is emulated", "boot with pci=disable_acs_redir", "zz-p2pd.cfg",
        "gcc-12 installed", "pass no device", "Ready: P2P is proven",
        "<td>Copy, one way</td><td>GPU 0 to 1</td><td>26.10 GB/s</td>", "Tensor parallelism", "Gen4 x16", "2 of 2"})
    CHECK(holds(page, told));
  const json document = report_document(sources);
  const json& copy = document["proof"]["matrices"][0];
  CHECK(copy["id"] == "copy");
  CHECK(copy["before_by"] == "through host memory");
  CHECK(copy["limits"][0][1] == 28.8);
  CHECK(document["changes"][0]["reboot"] == true);
  CHECK(document["events"].front()["boot"] == 1);
  CHECK(document["events"].back()["boot"] == 2);
  for (const json& one : document["events"]) CHECK(one["type"] != "fixing");
}

TEST_CASE("report: a run that waits for its restart says what it has changed") {
  Sources sources = run_of("rebooting", "", finding("fail", "port 0000:16:02.0 redirects"), finding("unknown", ""));
  sources.history["runs"][0]["steps"][0]["status"] = to_string(StepStatus::pending_reboot);
  CHECK(report_document(sources)["changes"][0]["status"] == to_string(StepStatus::pending_reboot));
}

TEST_CASE("steps: every status has a name, and the name leads back to it") {
  for (int number = 0; number <= static_cast<int>(StepStatus::reverted); ++number) {
    const auto status = static_cast<StepStatus>(number);
    CHECK(step_status(to_string(status)) == status);
  }
  CHECK(!step_status("pending_reboot"));
}

TEST_CASE("report: eight GPUs") {
  Sources sources = ready_run(8);
  sources.machine = machine_of(8);
  const std::string page = page_of(sources);
  for (const char* told : {"GPU 7", "56 of 56", "SYS", "PIX"}) CHECK(holds(page, told));
}

TEST_CASE("report: one GPU") {
  Sources sources =
      run_of("blocked", "", finding("fail", "1 x RTX 4090; at least 2 NVIDIA GPUs are needed"), finding("unknown", ""));
  sources.machine = machine_of(1);
  const std::string page = page_of(sources);
  for (const char* told : {"Blocked: a person is needed", "at least 2 NVIDIA GPUs", "GPU 0"}) CHECK(holds(page, told));
}

TEST_CASE("report: a run that failed") {
  json bench = bench_of(4);
  bench["wrong"] = {{{"test", "store"}, {"from", 0}, {"to", 1}, {"kind", "dropped"}}};
  bench["judgement"]["proven"] = false;
  bench["judgement"]["summary"] = "not proven: GPU 0 -> GPU 1 lost bytes";
  bench["judgement"]["remarks"] = {
      {{"grade", "fail"}, {"from", 0}, {"to", 1}, {"test", "bytes"}, {"text", "GPU 0 -> GPU 1: 64 wrong words"}}};
  bench["kernel_log"] = {"NVRM: Xid (PCI:0000:01:00): 31"};
  Sources sources = run_of("failed", "failed", finding("pass", "no port redirects"),
                           finding("fail", "not proven: GPU 0 -> GPU 1 lost bytes", bench));
  sources.baseline = {{"not_measured", "no CUDA driver"}};
  sources.machine = machine_of(4);
  const std::string page = page_of(sources);
  for (const char* told :
       {"Failed", "dropped", "11 of 12", "64 wrong words", "Xid", "no CUDA driver", "Only data that was looked at"})
    CHECK(holds(page, told));
}

TEST_CASE("report: looks at every boot do not hide what was done") {
  Sources sources = ready_run(2);
  json quick = bench_of(2);
  quick["mode"] = "quick";
  quick["judgement"]["summary"] = "proven again";
  json apply = sources.history["runs"][0];
  apply["steps"].insert(apply["steps"].begin(), json{{"step", "a-later-one"}, {"status", "fixed"}});
  sources.history["events"].push_back(event("2026-11-22T11:08:30Z", "b-2", "fixed", "a-later-one"));
  sources.history["runs"] = json::array();
  for (int id = 40; id > 1; --id)
    sources.history["runs"].push_back(
        {{"id", id},
         {"plan", "verify"},
         {"started", "2026-12-01T00:00:00Z"},
         {"steps",
          {{{"step", "p2p-proven"}, {"status", "holds"}, {"finding", finding("pass", "proven again", quick)}}}}});
  sources.history["runs"].push_back(apply);
  Plan of_each_boot;
  of_each_boot.steps.emplace_back().id = "p2p-proven";
  of_each_boot.steps.back().title = "Of the plan of each boot";
  sources.plans.insert(sources.plans.begin(), of_each_boot);
  const json document = report_document(sources);
  CHECK(document["looks"] == 38);
  CHECK(document["proof"]["run"] == 1);
  CHECK(document["proof"]["again"]["run"] == 40);
  CHECK(document["changes"][0]["step"] == "acs");
  CHECK(document["changes"][0]["title"] == "No port where two GPUs' ways part redirects their traffic");
  CHECK(document["changes"][1]["step"] == "a-later-one");
}

TEST_CASE("report: the machine as files tell it") {
  FakeGpuHost fake;
  fake.write("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  fake.write("etc/hostname", "box7\n");
  FakeRunner runner;
  const Host host(Root::open(fake.root()).value(), runner);
  const json facts = machine_facts(host);
  CHECK(identity_of(host).host_name == "box7");
  REQUIRE(facts["gpus"].size() == 2);
  CHECK(facts["gpus"][0]["name"] == "NVIDIA GeForce RTX 4090");
  CHECK(facts["gpus"][0]["bar1_mib"] == 32768);
  CHECK(facts["topology"].size() == 3);
  CHECK(facts["topology"][0]["kind"] == "cpu");
  CHECK(facts["topology"][1]["port"] == "0000:00:01.0");
  CHECK(facts["topology"][1]["link"]["width"] == 16);
  CHECK(facts["pairs"][0][1]["kind"] == "one_socket");
  CHECK(holds(facts["environment"].dump(), "Debian GNU/Linux 12"));
}
