// SPDX-License-Identifier: MIT
// The page of `p2pctl report`: what is in it for machines and runs of every kind, and what a stranger's text cannot do.
// P2PD_REPORT_PAGES names a directory in which the pages are left to be looked at.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "catch.hpp"
#include "engine/journal.hpp"
#include "fake_gpu_host.hpp"
#include "fake_runner.hpp"
#include "report/document.hpp"
#include "report/page.hpp"

using namespace p2pd;
using namespace p2pd::ctl;
using nlohmann::json;

namespace {

constexpr const char* kUuid = "GPU-5b694366-fbc1-9c4e-3eaf-2f5dc446840";

json two_gpus() {
  std::ifstream file(P2PD_SOURCE_DIR "/tests/sim/two-gpus.report.json");
  return json::parse(file);
}

json figure(double median) { return {{"median", median}, {"low", median}, {"high", median}, {"repetitions", 3}}; }

/// A real report, its pairs copied for so many GPUs: four to a switch, two switches on two sockets.
json bench_of(std::size_t gpus) {
  json bench = two_gpus();
  const json gpu = bench["gpus"][0], pair = bench["pairs"][0], path = bench["paths"][0][1];
  for (const char* key : {"gpus", "pairs", "paths"}) bench[key] = json::array();
  bench["judgement"]["grades"] = json(gpus, json(gpus, "pass"));
  bench["advice"] = {"NCCL_P2P_LEVEL=SYS: recent NCCL uses P2P up to PXB only",
                     "Tensor parallelism (NCCL rings), not NVSHMEM (DeepEP): atomics are NS on every pair"};
  for (std::size_t from = 0; from < gpus; ++from) {
    bench["gpus"].push_back(gpu);
    bench["gpus"].back().update({{"index", from},
                                 {"uuid", kUuid + std::to_string(from)},
                                 {"address", fmt::format("0000:{:02x}:00.0", from + 1)}});
    bench["paths"].push_back(json::array());
    for (std::size_t to = 0; to < gpus; ++to) {
      const bool far = from / 4 != to / 4;
      bench["paths"].back().push_back(path);
      bench["paths"].back().back().update({{"kind", far ? "cross_socket" : "pcie_switch"},
                                           {"payload_gb_s", 28.8},
                                           {"raw_gb_s", 31.5},
                                           {"arithmetic", "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"}});
      if (from == to) continue;
      bench["pairs"].push_back(pair);
      bench["pairs"].back().update({{"from", from},
                                    {"to", to},
                                    {"copy_gb_s", figure(far ? 21.4 : 26.1)},
                                    {"chase_ns", figure(far ? 2100 : 1180)},
                                    {"busy_gb_s", figure(far ? 6.2 : 13.9)}});
      if (far && from == 1) bench["judgement"]["grades"][from][to] = "warn";
    }
  }
  return bench;
}

/// The same machine before it was fixed: no P2P.
json before_of(json bench) {
  for (json& pair : bench["pairs"])
    for (const char* key : {"copy_gb_s", "copy_both_gb_s", "chase_ns", "store_gb_s", "load_gb_s", "busy_gb_s"})
      pair[key] = nullptr;
  return bench;
}

json event(const char* time, const char* boot, const char* type, const char* step = "", const char* text = "") {
  return {{"time", time}, {"boot_id", boot}, {"run", 1}, {"type", type}, {"step", step}, {"text", text}};
}

json plan() {
  return {{"steps",
           {{{"gate", "acs"},
             {"title", "No port where two GPUs' ways part redirects their traffic"},
             {"why", "Half the bandwidth, or no P2P at all."}},
            {{"goal", "p2p-proven"},
             {"title", "Every pair of GPUs moved correct bytes on this boot"},
             {"why", "Only data that was looked at proves P2P."}}}}};
}

json finding(const char* verdict, const std::string& summary, json facts = json::object()) {
  return {{"verdict", verdict},
          {"summary", summary},
          {"facts", std::move(facts)},
          {"next", ""},
          {"evidence", {{{"source", "/sys/x"}, {"value", summary}}}}};
}

/// What is left of a run of two steps that ended so.
Sources run_of(const char* state, const char* result, const json& acs, const json& proof) {
  Sources sources;
  sources.made = "2026-11-22T12:00:00Z";
  sources.plans = json::array({plan()});
  sources.status = {{"run", 1},
                    {"plan", "geforce-p2p"},
                    {"state", state},
                    {"result", result},
                    {"reason", "as told"},
                    {"next", "\"p2pctl history\" shows every step of it"},
                    {"steps", json::array()}};
  json steps = json::array();
  for (const auto& [id, one] : {std::pair("acs", &acs), std::pair("p2p-proven", &proof)}) {
    sources.status["steps"].push_back({{"id", id},
                                       {"title", ""},
                                       {"kind", "gate"},
                                       {"status", "holds"},
                                       {"verdict", (*one)["verdict"]},
                                       {"summary", (*one)["summary"]},
                                       {"next", ""}});
    steps.push_back({{"step", id}, {"status", std::string("acs") == id ? "fixed" : "holds"}, {"finding", *one}});
  }
  sources.history = {
      {"runs",
       {{{"id", 1},
         {"plan", "geforce-p2p"},
         {"state", state},
         {"result", result},
         {"reason", "as told"},
         {"reboots", 1},
         {"started", "2026-11-22T11:00:00Z"},
         {"ended", "2026-11-22T11:09:00Z"},
         {"steps", steps}}}},
      {"events",
       {event("2026-11-22T11:00:00Z", "b-1", "begun", "", "GeForce P2P"),
        event("2026-11-22T11:00:01Z", "b-1", "boot", "", "5b694366-fbc1-9c4e-3eaf-2f5dc4468404"),
        event("2026-11-22T11:01:00Z", "b-1", "fixing", "acs"), event("2026-11-22T11:01:05Z", "b-1", "fixed", "acs"),
        event("2026-11-22T11:02:00Z", "b-1", "reboot-due", "", "takes effect with a reboot: acs"),
        event("2026-11-22T11:06:00Z", "b-2", "boot"),
        event("2026-11-22T11:08:00Z", "b-2", "proof", "p2p-proven", "12 pairs"),
        event("2026-11-22T11:09:00Z", "b-2", "proven", "", "as told")}}};
  return sources;
}

Sources ready_run(std::size_t gpus) {
  Sources sources =
      run_of("ready", "ready", finding("pass", "no port redirects"), finding("pass", "proven", bench_of(gpus)));
  sources.baseline = before_of(bench_of(gpus));
  return sources;
}

json machine_of(std::size_t gpus) {
  json machine = {{"environment", {{{"name", "Kernel"}, {"value", "6.8.0-60-generic"}}}},
                  {"gpus", json::array()},
                  {"topology", json::array()},
                  {"pairs", json::array()}};
  for (std::size_t i = 0; i < gpus; ++i) {
    const std::size_t half = i / 4;
    const std::string cpu = fmt::format("cpu {}", half), bridge = fmt::format("0000:a{}:00.0", half),
                      address = fmt::format("0000:{:02x}:00.0", i + 1);
    if (i % 4 == 0) {
      machine["topology"].push_back({{"id", cpu},
                                     {"above", ""},
                                     {"kind", "cpu"},
                                     {"title", "CPU"},
                                     {"detail", fmt::format("NUMA node {}", half)}});
      machine["topology"].push_back(
          {{"id", bridge},
           {"above", cpu},
           {"kind", "switch"},
           {"title", "Switch"},
           {"detail", bridge},
           {"port", "0000:16:02.0"},
           {"redirects", true},
           {"link", {{"generation", 4}, {"width", 16}, {"generation_most", 4}, {"width_most", 16}}}});
    }
    machine["topology"].push_back(
        {{"id", address},
         {"above", bridge},
         {"kind", "gpu"},
         {"title", fmt::format("GPU {}", i)},
         {"detail", address},
         {"port", "0000:18:00.0"},
         {"redirects", false},
         {"link", {{"generation", 1}, {"width", i == 2 ? 8 : 16}, {"generation_most", 4}, {"width_most", 16}}}});
    machine["gpus"].push_back({{"address", address},
                               {"name", "NVIDIA GeForce RTX 4090"},
                               {"uuid", kUuid + std::to_string(i)},
                               {"driver", "nvidia"},
                               {"vram_mib", 24576},
                               {"bar1_mib", 32768}});
    machine["pairs"].push_back(json::array());
    for (std::size_t to = 0; to < gpus; ++to)
      machine["pairs"].back().push_back(i == to ? json()
                                                : json{{"kind", "pcie_switch"},
                                                       {"topology", half == to / 4 ? "PIX" : "SYS"},
                                                       {"limit_gb_s", 28.8},
                                                       {"arithmetic", "Gen4 x16"}});
  }
  return machine;
}

/// The page of `sources`; what a browser needs of every page is checked here.
std::string page_of(const char* name, const Sources& sources,
                    const Identity& identity = {"box7", "0123456789abcdef0123456789abcdef"}) {
  json document = report_document(sources);
  redact(document, identity);
  const std::string page = report_page(document);
  if (const char* directory = std::getenv("P2PD_REPORT_PAGES"))
    std::ofstream(std::string(directory) + "/" + name + ".html") << page;
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  for (const char* outside : {"http:", "https:", "<script", " src=", "url(", "@import", "<link"})
    CHECK(page.find(outside) == std::string::npos);
  for (std::size_t at = page.find("href"); at != std::string::npos; at = page.find("href", at + 1))
    CHECK(page.compare(at, 7, "href=\"#") == 0);
  for (const char* tag :
       {"main", "section", "table", "tr",   "td",    "th",   "ul", "ol", "li", "p",  "div", "figure",  "figcaption",
        "svg",  "small",   "b",     "span", "tspan", "text", "dl", "dd", "h2", "h3", "nav", "details", "pre"}) {
    const auto count = [&](const std::string& pattern) {
      const std::regex searched(pattern);
      return std::distance(std::sregex_iterator(page.begin(), page.end(), searched), std::sregex_iterator());
    };
    INFO(name << ": " << tag);
    CHECK(count(fmt::format("<{}[ >]", tag)) == count(fmt::format("</{}>", tag)));
  }
  return page;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("report: nothing that the host says becomes markup") {
  const std::string evil = "<script>alert(1)</script><img/src=x onerror=alert(1)>\"'>";
  Sources sources = ready_run(2);
  sources.machine = machine_of(2);
  const std::function<void(json&)> spoil = [&](json& value) {
    if (value.is_string() && value.get<std::string>().find("p2pd.") != 0) value = value.get<std::string>() + evil;
    if (value.is_structured())
      for (json& inner : value) spoil(inner);
  };
  for (json* part : {&sources.status, &sources.machine, &sources.plans}) spoil(*part);
  for (json& entry : sources.history["events"]) spoil(entry["text"]), spoil(entry["step"]), spoil(entry["time"]);
  json& bench = sources.history["runs"][0]["steps"][1]["finding"]["facts"];
  for (const char* key : {"judgement", "advice", "wrong"}) spoil(bench[key]);
  bench["kernel_log"] = {evil};
  bench["pairs"][0]["access"] = false;
  bench["wrong"] = {{{"from", 1}, {"to", 0}, {"kind", evil}}};
  sources.notes = {evil};
  const std::string page = page_of("evil", sources);
  CHECK(!holds(page, "<script"));
  CHECK(!holds(page, "<img"));
  CHECK(holds(page, "&lt;script&gt;"));
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
    sources.status = sources.history = sources.diagnosis = sources.plans = sources.baseline = sources.machine = shape;
    CHECK(holds(page_of("shape", sources), "<h1>"));
  }
  Sources sources = ready_run(2);
  json& bench = sources.history["runs"][0]["steps"][1]["finding"]["facts"];
  bench["pairs"][0] = {{"from", -1}, {"to", 1e300}, {"copy_gb_s", "fast"}};
  bench["paths"] = {{1, 2}};
  bench["judgement"] = 3;
  page_of("broken", sources);
}

TEST_CASE("report: serials, UUIDs, host name and machine id are left out") {
  Sources sources = run_of(
      "failed", "failed",
      finding("fail", "box7: GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404 hangs, machine 0123456789abcdef0123456789abcdef"),
      finding("unknown", "usb 1-1: SerialNumber: AB12 of /home/jo/x at 52:54:00:ab:cd:ef"));
  sources.machine = machine_of(2);
  sources.machine["environment"] = {
      {{"name", "Host name"}, {"value", "box7"}},
      {{"name", "Machine id"}, {"value", "0123456789abcdef0123456789abcdef"}},
      {{"name", "Kernel arguments"}, {"value", "root=UUID=5b694366-fbc1-9c4e-3eaf-2f5dc4468404 ip=10.0.0.7 quiet"}}};
  const std::string page = page_of("redacted", sources);
  for (const char* secret : {"5b694366", "box7", "0123456789abcdef", "AB12", "/home/jo", "ab:cd:ef", "10.0.0.7"})
    CHECK(!holds(page, secret));
  CHECK(holds(page, "quiet"));
  CHECK(!holds(page, "Not redacted"));
  const std::string whole = report_page(report_document(sources));
  for (const char* known : {"box7", "0123456789abcdef", "GPU-5b694366", "Not redacted"}) CHECK(holds(whole, known));
}

/// What p2pctl(1) says is left out of a report, and a word of that kind.
constexpr struct {
  const char* promise;
  const char* sentinel;
} kLeftOut[] = {{"serial numbers", "XK1234567"},
                {"UUIDs", "5b694366"},
                {"GUIDs", "e41d:2d03:0065:1234"},
                {"MAC", "52:54:00:ab:cd:ef"},
                {"IP addresses", "203.0.113.9"},
                {"IP addresses", "2001:db8::7334"},
                {"names of disks by id", "S7KGNJ0W"},
                {"host name", "box7"},
                {"domain", "nfs1"},
                {"machine id", "0123456789abcdef"},
                {"accounts with a user id from 1000 on", "jodoe"},
                {"full names", "Jo Doe"},
                {"home directories", "homer"},
                {"USER@HOST", "alice"},
                {"user and password of URLs", "s3cret"},
                {"hosts of URLs", "mirror.corp"},
                {"names of processes", "torchrun"},
                {"containers", "pod-a7"},
                {"units", "acme-train"},
                {"private kernel arguments", "/exports/pxe"}};

TEST_CASE("report: of a list of sentinels none is in any form of a redacted report") {
  const Identity identity{"box7.acme.example", "0123456789abcdef0123456789abcdef", {"jodoe", "Jo Doe"}};
  const std::string all =
      "at 203.0.113.9 and 2001:db8::7334 (52:54:00:ab:cd:ef), guid e41d:2d03:0065:1234, "
      "https://me:s3cret@mirror.corp/x of jodoe, Jo Doe, /home/homer/x, nfsroot=10.0.0.1:/exports/pxe "
      "alice@corp, acme-train.service on box7 and nfs1.acme.example; SerialNumber: XK1234567, "
      "GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404, "
      "0123456789abcdef0123456789abcdef, /dev/disk/by-id/nvme-x_S7KGNJ0W, container lxc pod-a7, torchrun (process "
      "4711)";
  json proof = finding("fail", all);
  proof["evidence"] = {{{"source", "/proc/4711/fd"}, {"value", "torchrun: /dev/nvidia0"}},
                       {{"source", all}, {"value", all}}};
  proof["next"] = all;
  Sources sources = run_of("failed", "failed", proof, proof);
  sources.machine = machine_of(2);
  sources.machine["environment"] = {{{"name", "Kernel arguments"}, {"value", all}}};
  sources.notes = {all};
  sources.status["reason"] = sources.status["next"] = all;
  for (json& one : sources.history["events"]) one["text"] = all;
  json document = report_document(sources);
  const std::string whole = document.dump();
  redact(document, identity);
  const std::string text = document.dump(), page = report_page(document);
  for (const auto& [promise, sentinel] : kLeftOut) {
    INFO(promise << ": " << sentinel);
    CHECK(holds(whole, sentinel));
    CHECK(!holds(text, sentinel));
    CHECK(!holds(page, sentinel));
  }
}

TEST_CASE("report: the manual page says what a redacted report leaves out, and no more") {
  std::ifstream file(P2PD_SOURCE_DIR "/units/man/p2pctl.1");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::ranges::replace(text, '\n', ' ');
  const std::string begin = "Left out, as far as their form or the accounts of this machine tell them: ";
  const std::size_t at = text.find(begin), end = text.find(". What stays:", at);
  REQUIRE(end != std::string::npos);
  std::string list = text.substr(at + begin.size(), end - at - begin.size());
  for (const auto& row : kLeftOut) {
    INFO(row.promise);
    CHECK(holds(text.substr(at, end - at), row.promise));
    if (const std::size_t found = list.find(row.promise); found != std::string::npos)
      list.erase(found, std::string_view(row.promise).size());
  }
  for (const char c : {',', '(', ')'}) std::ranges::replace(list, c, ' ');
  std::istringstream rest(list);
  for (std::string word; rest >> word;) {
    INFO("without a sentinel: " << word);
    CHECK(std::set<std::string>{"and", "but", "people", "the", "their", "NVIDIA's", "GitHub's", "distributions'",
                                "system's"}
              .contains(word));
  }
  json document = report_document(ready_run(2));
  redact(document, {});
  CHECK(holds(report_page(document), "p2pctl(1) lists them"));
}

TEST_CASE("report: nothing has run") {
  Sources sources;
  sources.made = "2026-11-22T12:00:00Z";
  sources.plans = json::array({plan()});
  sources.status = {
      {"run", 0}, {"state", "idle"}, {"reason", "nothing has run on this machine yet"}, {"steps", json::array()}};
  sources.history = {{"runs", json::array()}, {"events", json::array()}};
  json gate = finding("fail", "port 0000:16:02.0 redirects");
  gate.update({{"step", "acs"}, {"standing", "fixable"}, {"next", "p2pctl apply geforce-p2p  (1 reboot)"}});
  sources.diagnosis = {
      {"plan", "geforce-p2p"}, {"holds", false}, {"proven", false}, {"conclusion", gate}, {"steps", {gate}}};
  sources.machine = machine_of(2);
  const std::string page = page_of("nothing-ran", sources);
  for (const char* told : {"P2P cannot work as this machine is", "port 0000:16:02.0 redirects", "Half the bandwidth",
                           "p2pctl apply geforce-p2p", "Nothing has run on this machine yet"})
    CHECK(holds(page, told));
}

TEST_CASE("report: a run that ended ready, two GPUs") {
  Sources sources = ready_run(2);
  sources.machine = machine_of(2);
  sources.machine["text"] = "2 x GeForce RTX 4090; Linux 6.8.0-60-generic";
  sources.machine["emulated"] = "This machine is emulated: its figures say nothing about real hardware.";
  sources.in_place = {{{"run", 1},
                       {"step", "acs"},
                       {"summary", "boot with pci=disable_acs_redir"},
                       {"cost", "pass no device to a guest"},
                       {"reboot", true},
                       {"files", {"/etc/default/grub.d/zz-p2pd.cfg"}},
                       {"packages", {"gcc-12 installed"}}}};
  const std::string page = page_of("ready-2", sources);
  CHECK(page.find("This machine is emulated") < page.find("<dl"));
  for (const char* told : {"2 x GeForce RTX 4090", "in effect since a reboot", "boot with pci=disable_acs_redir",
                           "zz-p2pd.cfg", "gcc-12 installed", "pass no device", "<code>sudo p2pctl revert</code>"})
    CHECK(holds(page, told));
  for (const char* told : {"Ready: P2P is proven", "Boot 1, run 1: 2 min 0 s, from 2026-11-22 11:00:00 UTC",
                           "+1 min 4 s", "4 min 0 s after the last event of boot 1", "Boot 2, run 1: 3 min 0 s",
                           "Copy, one way: <b>26.1 GB/s each way</b>, 91 % of the 28.8 that", "17.8 GB/s each",
                           "through host memory", "Bytes both ways: right", "Tensor parallelism", "Gen4 x16", "2 of 2"})
    CHECK(holds(page, told));
  CHECK(!holds(page, "class=\"heat\""));
  CHECK(!holds(page, "fixing"));
}

TEST_CASE("report: a run that waits for its restart says what it has changed") {
  Sources sources = run_of("rebooting", "", finding("fail", "port 0000:16:02.0 redirects"), finding("unknown", ""));
  sources.history["runs"][0]["steps"][0]["status"] = to_string(StepStatus::pending_reboot);
  const std::string page = page_of("rebooting", sources);
  CHECK(holds(page, "with the next reboot"));
  CHECK(!holds(page, "Nothing on this machine is changed"));
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
  const std::string page = page_of("ready-8", sources);
  for (const char* told : {"GPU 7", "ACS redirects", "56 of 56", "SYS", "PIX", "x8 of x16", "slower than it should be",
                           "Copy, one way: before, through host memory", "Copy, one way: after", "of 28.8"})
    CHECK(holds(page, told));
}

TEST_CASE("report: one GPU") {
  Sources sources =
      run_of("blocked", "", finding("fail", "1 x RTX 4090; at least 2 NVIDIA GPUs are needed"), finding("unknown", ""));
  sources.machine = machine_of(1);
  const std::string page = page_of("one-gpu", sources);
  for (const char* told : {"Blocked: a person is needed", "at least 2 NVIDIA GPUs", "GPU 0"}) CHECK(holds(page, told));
  CHECK(!holds(page, "Paths and their limits"));
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
  const std::string page = page_of("failed", sources);
  for (const char* told : {"Failed", "dropped", "11 of 12", "64 wrong words", "Xid", "Before: no CUDA driver",
                           "Only data that was looked at"})
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
  sources.plans.insert(sources.plans.begin(),
                       json{{"steps", {{{"goal", "p2p-proven"}, {"title", "Of the plan of each boot"}}}}});
  const json document = report_document(sources);
  CHECK(document["looks"] == 38);
  CHECK(document["proof"]["run"] == 1);
  CHECK(document["proof"]["again"]["run"] == 40);
  CHECK(document["changes"][0]["step"] == "acs");
  CHECK(document["changes"][0]["title"] == "No port where two GPUs' ways part redirects their traffic");
  CHECK(document["changes"][1]["step"] == "a-later-one");
  CHECK(holds(page_of("looks", sources), "Measured again"));
}

TEST_CASE("report: the machine as files tell it") {
  test::FakeGpuHost fake;
  fake.write("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  fake.write("etc/hostname", "box7\n");
  test::FakeRunner runner;
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
