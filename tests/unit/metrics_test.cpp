// SPDX-License-Identifier: MIT
// The text of `p2pctl metrics` for machines that are ready, blocked and new, and what strange names do to it.
#include "ctl/metrics.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "catch.hpp"
#include "made_bus.hpp"

using namespace p2pd;
using namespace p2pd::ctl;
using namespace p2pd::test;
using nlohmann::json;

namespace {

json step(const char* id, const char* status) { return {{"id", id}, {"status", status}}; }

json status_of_run(const char* state, json steps) {
  return {{"run", 3},
          {"plan", "geforce-p2p"},
          {"state", state},
          {"started", "2026-11-22T11:00:00Z"},
          {"ended", ""},
          {"reboots", 1},
          {"reboots_at_most", 4},
          {"reboot_required", false},
          {"steps", std::move(steps)}};
}

json pair(int from, int to, double copy_gb_s, json chase_ns) {
  return {{"from", from}, {"to", to}, {"copy_gb_s", {{"median", copy_gb_s}}}, {"chase_ns", std::move(chase_ns)}};
}

json bench(const char* mode, bool proven, json pairs) {
  return {{"schema", "p2pd.bench/1"},
          {"mode", mode},
          {"gpus", {{{"address", "0000:03:00.0"}}, {{"address", "0000:04:00.0"}}}},
          {"pairs", std::move(pairs)},
          {"judgement", {{"proven", proven}}}};
}

json run_with(int id, const char* ended, json facts) {
  const json proof = {{"step", "p2p-proven"}, {"finding", {{"facts", std::move(facts)}}}};
  return {{"id", id}, {"ended", ended}, {"steps", {{{"step", "acs"}, {"finding", json::object()}}, proof}}};
}

/// A full proof, a quick one at a later boot, and a measurement after that which proved nothing.
json proven_history() {
  const json latency = {{"median", 1180.0}};
  return {
      {"runs",
       {run_with(3, "2026-11-24T11:00:00Z", bench("quick", false, json::array({pair(0, 1, 3, nullptr)}))),
        run_with(2, "2026-11-23T11:00:00Z", bench("quick", true, {pair(0, 1, 24, nullptr), pair(1, 0, 23.5, nullptr)})),
        run_with(1, "2026-11-22T11:09:00Z",
                 bench("full", true, {pair(0, 1, 26.1, latency), pair(1, 0, 25.5, nullptr)}))}},
      {"events", json::array()}};
}

json idle_status() {
  return {{"run", 0},     {"plan", ""},           {"state", "idle"},          {"started", ""},         {"ended", ""},
          {"reboots", 0}, {"reboots_at_most", 0}, {"reboot_required", false}, {"steps", json::array()}};
}

std::string ready_text() {
  json status = status_of_run("ready", {step("gpus", "holds"), step("acs", "fixed"), step("p2p-proven", "holds")});
  status["ended"] = "2026-11-22T11:09:00Z";
  return exposition(metrics_of_runs(status, proven_history(), Proof{false, {"copies", "nccl"}}));
}

std::string blocked_text() {
  const json steps = {step("gpus", "holds"), step("secure-boot", "blocked"), step("driver", "blocked"),
                      step("proof", "waiting")};
  return exposition(metrics_of_runs(status_of_run("blocked", steps), nullptr, std::nullopt));
}

std::string strange_text() {
  json status = status_of_run("blocked", json::array({step("a\"b\\c\nd\xff\x1b", "blocked")}));
  status["plan"] = "\"}\np2pd_ready 1";
  return exposition(metrics_of_runs(status, nullptr, std::nullopt));
}

/// Metrics of a ready machine with two GPUs.
const std::string kReadyText =
    "# HELP p2pd_info Version of p2pd, and the plan of the last run.\n"
    "# TYPE p2pd_info gauge\n"
    "p2pd_info{version=\"" P2PD_VERSION
    "\",plan=\"geforce-p2p\"} 1\n"
    R"(# HELP p2pd_state Whether the last run is in this state.
# TYPE p2pd_state gauge
p2pd_state{state="blocked"} 0
p2pd_state{state="failed"} 0
p2pd_state{state="idle"} 0
p2pd_state{state="limited"} 0
p2pd_state{state="paused"} 0
p2pd_state{state="ready"} 1
p2pd_state{state="rebooting"} 0
p2pd_state{state="reverting"} 0
p2pd_state{state="walking"} 0
# HELP p2pd_ready Whether P2P is proven on this boot, with what is here now.
# TYPE p2pd_ready gauge
p2pd_ready 1
# HELP p2pd_fit_for Whether P2P is proven on this boot for this use.
# TYPE p2pd_fit_for gauge
p2pd_fit_for{use="atomics"} 0
p2pd_fit_for{use="compressible-memory"} 0
p2pd_fit_for{use="copies"} 1
p2pd_fit_for{use="custom-all-reduce"} 0
p2pd_fit_for{use="managed-memory"} 0
p2pd_fit_for{use="nccl"} 1
# HELP p2pd_reboot_required Whether changes wait for a reboot.
# TYPE p2pd_reboot_required gauge
p2pd_reboot_required 0
# HELP p2pd_run_reboots Reboots of the last run, crashes included.
# TYPE p2pd_run_reboots gauge
p2pd_run_reboots 1
# HELP p2pd_run_reboots_max Reboots that the plan of the last run allows.
# TYPE p2pd_run_reboots_max gauge
p2pd_run_reboots_max 4
# HELP p2pd_run_start_timestamp_seconds When the last run began.
# TYPE p2pd_run_start_timestamp_seconds gauge
p2pd_run_start_timestamp_seconds 1795345200
# HELP p2pd_run_end_timestamp_seconds When the last run ended.
# TYPE p2pd_run_end_timestamp_seconds gauge
p2pd_run_end_timestamp_seconds 1795345740
# HELP p2pd_steps Steps of the last run with this status.
# TYPE p2pd_steps gauge
p2pd_steps{status="blocked"} 0
p2pd_steps{status="failed"} 0
p2pd_steps{status="fixed"} 1
p2pd_steps{status="holds"} 2
p2pd_steps{status="pending-reboot"} 0
p2pd_steps{status="reverted"} 0
p2pd_steps{status="waiting"} 0
# HELP p2pd_last_proof_timestamp_seconds When P2P was proven last.
# TYPE p2pd_last_proof_timestamp_seconds gauge
p2pd_last_proof_timestamp_seconds 1795431600
# HELP p2pd_pair_copy_bytes_per_second Rate of a copy from one GPU to another, in the last proof.
# TYPE p2pd_pair_copy_bytes_per_second gauge
p2pd_pair_copy_bytes_per_second{from="0000:03:00.0",to="0000:04:00.0"} 24000000000
p2pd_pair_copy_bytes_per_second{from="0000:04:00.0",to="0000:03:00.0"} 23500000000
# HELP p2pd_pair_latency_seconds Latency of a load by one GPU from another, in the last full proof.
# TYPE p2pd_pair_latency_seconds gauge
p2pd_pair_latency_seconds{from="0000:03:00.0",to="0000:04:00.0"} 1.18e-06
)";

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("metrics: a ready machine") { CHECK(ready_text() == kReadyText); }

TEST_CASE("metrics: a blocked machine") {
  const std::string text = blocked_text();
  for (const char* told : {"p2pd_ready 0\n", "p2pd_state{state=\"blocked\"} 1\n",
                           "p2pd_blocked_step{step=\"driver\"} 1\n", "p2pd_blocked_step{step=\"secure-boot\"} 1\n",
                           "p2pd_steps{status=\"blocked\"} 2\n", "p2pd_steps{status=\"waiting\"} 1\n"})
    CHECK(holds(text, told));
  for (const char* unknown : {"p2pd_run_end", "p2pd_last_proof", "p2pd_pair"}) CHECK(!holds(text, unknown));
}

TEST_CASE("metrics: nothing has run") {
  const std::string text =
      exposition(metrics_of_runs(idle_status(), {{"runs", json::array()}, {"events", json::array()}}, std::nullopt));
  for (const char* told : {"p2pd_info{version=\"" P2PD_VERSION "\"} 1\n", "p2pd_state{state=\"idle\"} 1\n",
                           "p2pd_ready 0\n", "p2pd_reboot_required 0\n"})
    CHECK(holds(text, told));
  for (const char* unknown : {"p2pd_run", "p2pd_steps", "p2pd_blocked_step", "p2pd_last_proof", "p2pd_pair"})
    CHECK(!holds(text, unknown));
}

TEST_CASE("metrics: what the machine tells by itself") {
  MadeBus bus;
  bus.add_slot(3);
  bus.add_slot(4);
  const auto text = [&] { return bus.see([](const Host& host) { return exposition(metrics_of_machine(host)); }); };
  CHECK(text().empty());
  bus.file("proc/stat", "cpu  1 2 3\nintr 5 0 0\nctxt 7\nbtime 1795345100\nprocesses 9\n");
  bus.file("run/p2pd/ready", R"({"machine_id": "", "boot_id": "", "gpus": [], "modules": {}, "without": []})");
  bus.file("sys/bus/pci/devices/0000:03:00.0/aer_dev_correctable", "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n");
  bus.file("sys/bus/pci/devices/0000:00:03.0/aer_dev_fatal", "DLP 4\nTOTAL_ERR_FATAL 4\n");
  bus.file("sys/bus/pci/devices/0000:00:03.0/aer_dev_nonfatal", "DLP 4\n");
  bus.file("sys/bus/pci/devices/0000:04:00.0/aer_dev_correctable", "TOTAL_ERR_COR many\n");
  CHECK(text() == R"(# HELP p2pd_boot_timestamp_seconds When this machine was booted.
# TYPE p2pd_boot_timestamp_seconds gauge
p2pd_boot_timestamp_seconds 1795345100
# HELP p2pd_drift Whether this differs from the state in which P2P was proven on this boot.
# TYPE p2pd_drift gauge
p2pd_drift{part="boot_id"} 0
p2pd_drift{part="build_ids"} 0
p2pd_drift{part="gpus"} 1
p2pd_drift{part="machine_id"} 0
p2pd_drift{part="modules"} 0
# HELP p2pd_pci_errors_total PCI errors that the kernel counted since boot at this end of the link of a GPU.
# TYPE p2pd_pci_errors_total counter
p2pd_pci_errors_total{gpu="0000:03:00.0",end="gpu",kind="correctable"} 3
p2pd_pci_errors_total{gpu="0000:03:00.0",end="port",kind="fatal"} 4
)");
}

TEST_CASE("metrics: names from elsewhere stay within their quotes") {
  const std::string text = strange_text();
  CHECK(holds(text, "p2pd_blocked_step{step=\"a\\\"b\\\\c\\nd\xef\xbf\xbd?\"} 1\n"));
  CHECK(holds(text, "plan=\"\\\"}\\np2pd_ready 1\"} 1\n"));
  CHECK(!holds(text, "\np2pd_ready 1"));
}

TEST_CASE("metrics: JSON of any shape makes a text") {
  const json shapes[] = {
      nullptr,
      1,
      "x",
      json::array({1, json::object()}),
      {{"runs", {1, {{"steps", {1, "x"}}}}}},
      {{"run", "3"}, {"steps", {1, nullptr}}, {"started", 5}, {"reboot_required", "no"}, {"state", 1}}};
  for (const json& shape : shapes) {
    const std::string text = exposition(metrics_of_runs(shape, shape, std::nullopt));
    CHECK(holds(text, "p2pd_ready 0\n"));
    CHECK(!holds(text, "p2pd_state"));
  }
}

TEST_CASE("metrics: promtool takes them") {
  if (std::system("command -v promtool >/dev/null") != 0) return;  // package prometheus
  for (const std::string& text : {ready_text(), blocked_text(), strange_text()}) {
    std::FILE* promtool = ::popen("promtool check metrics 2>&1", "w");
    REQUIRE(promtool != nullptr);
    std::fputs(text.c_str(), promtool);
    INFO(text);
    CHECK(::pclose(promtool) == 0);
  }
}
