// SPDX-License-Identifier: MIT
#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/action.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kP2pBench;
extern const Probe kP2pBaseline;
extern const Action kP2pBaselineAction;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kFile[] = "/var/lib/p2pd/baseline.json";

/// A running host whose root is a directory of the test.
struct Live {
  Live() {
    std::filesystem::create_directories(directory / "var/lib/p2pd");
    std::filesystem::create_directories(directory / "proc/driver/nvidia");
    auto root = live_root(directory.path());
    if (root) host.emplace(std::move(*root), runner);
  }
  void write(const std::string& path, std::string_view text) const {
    std::ofstream(directory / path.substr(1)) << text;
  }

  TemporaryDirectory directory;
  FakeRunner runner;
  std::optional<Host> host;
};

std::string shipped_report() {
  std::ifstream file(P2PD_SOURCE_DIR "/tests/sim/two-gpus.report.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("p2p-bench: the program's judgement is the verdict") {
  Live live;
  if (!live.host) return;  // a live root takes chroot
  live.runner.on("p2p-bench --json", shipped_report());
  auto finding = kP2pBench.check(*live.host, Parameters::object());
  REQUIRE(finding);
  CHECK(finding->verdict == Verdict::pass);
  CHECK(finding->summary.starts_with("proven: 2 ordered pairs"));

  auto report = nlohmann::json::parse(shipped_report());
  report["judgement"]["proven"] = false;
  report["judgement"]["summary"] = "not proven: GPU 0 -> GPU 1: store: lost";
  live.runner.on("p2p-bench --json", report.dump(), 3);
  finding = kP2pBench.check(*live.host, Parameters::object());
  REQUIRE(finding);
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->summary == "not proven: GPU 0 -> GPU 1: store: lost");
  CHECK_FALSE(finding->next.empty());
}

TEST_CASE("p2p-bench: what could not be tried is no pass") {
  Live live;
  if (!live.host) return;
  live.runner.on("p2p-bench --json", R"({"schema": "p2pd.error/1", "error": "no CUDA driver", "next": "install it"})",
                 4);
  const auto finding = kP2pBench.check(*live.host, Parameters::object());
  REQUIRE(finding);
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->summary == "no CUDA driver");
  CHECK(finding->next == "install it");
  for (const std::string output : {"", "garbage", "[1]", "{}"}) {
    live.runner.on("p2p-bench --json", output, 1, "it broke");
    const auto broken = kP2pBench.check(*live.host, Parameters::object());
    CHECK((!broken || broken->verdict == Verdict::fail));
    live.runner.on("p2p-bench --json", output, 0);
    CHECK(kP2pBench.check(*live.host, Parameters::object())->summary == "p2p-bench printed no report");
  }
  // case nvbandwidth-8x4090-545-crash: a driver that claims peers, and a program that dies of them
  live.runner.on("p2p-bench --json", "", 134, "Aborted (core dumped)");
  const auto died = kP2pBench.check(*live.host, Parameters::object());
  CHECK((!died || died->verdict == Verdict::fail));
}

TEST_CASE("p2p-bench: mode, thresholds and the saved report are passed on") {
  Live live;
  if (!live.host) return;
  const Parameters with = {{"mode", "full"}, {"thresholds", {{"chase_ns", 9000}}}, {"against", kFile}};
  live.runner.on("p2p-bench --json --full --thresholds '{\"chase_ns\":9000}'", shipped_report());
  CHECK(kP2pBench.check(*live.host, with)->verdict == Verdict::pass);
  live.write(kFile, "{}");
  auto report = nlohmann::json::parse(shipped_report());
  report["gain"] = {"GPU 0 -> GPU 1: ...", "median gain x2"};
  live.runner.on(std::string("p2p-bench --json --full --thresholds '{\"chase_ns\":9000}' --against ") + kFile,
                 report.dump());
  CHECK(kP2pBench.check(*live.host, with)->summary.ends_with("; median gain x2"));
  CHECK_FALSE(kP2pBench.validate({{"mode", "fast"}}));
  report["collectives"] = {{"summary", "NCCL: not tested (no libnccl found)"}};
  live.runner.on("p2p-bench --json --full --nccl /opt/libnccl.so.2", report.dump());
  const auto finding = kP2pBench.check(*live.host, {{"mode", "full"}, {"nccl", "/opt/libnccl.so.2"}});
  CHECK(finding->evidence.at(1).value == "NCCL: not tested (no libnccl found)");
  live.runner.on("p2p-bench --json --quick", report.dump());  // a quick proof does not run NCCL
  CHECK(kP2pBench.check(*live.host, {{"mode", "quick"}, {"nccl", "/opt/libnccl.so.2"}}));
  CHECK(live.runner.unexpected.empty());
}

TEST_CASE("p2p-baseline: measured once, where a driver is loaded") {
  Live live;
  if (!live.host) return;
  const Parameters with = {{"file", kFile}};
  CHECK(kP2pBaseline.check(*live.host, with)->verdict == Verdict::not_applicable);
  live.write("/proc/driver/nvidia/version", "NVRM version\n");
  CHECK(kP2pBaseline.check(*live.host, with)->verdict == Verdict::fail);
  const std::string command = std::string("p2p-bench --save ") + kFile;
  live.runner.on(command, [&](const Command&) -> Result<CommandResult> {
    live.write(kFile, shipped_report());
    return CommandResult{3, "", ""};  // P2P does not work yet: measured anyway
  });
  REQUIRE(kP2pBaselineAction.apply(*live.host, with));
  CHECK(kP2pBaseline.check(*live.host, with)->verdict == Verdict::pass);
  CHECK(live.runner.ran.size() == 1);
}

TEST_CASE("p2p-baseline: a machine that cannot be measured is asked once") {
  Live live;
  if (!live.host) return;
  const Parameters with = {{"file", kFile}};
  live.write("/proc/driver/nvidia/version", "NVRM version\n");
  live.runner.on(std::string("p2p-bench --save ") + kFile, "", 1,
                 "p2p-bench: the CUDA driver does not start\n  next: reboot\n");
  REQUIRE(kP2pBaselineAction.apply(*live.host, with));
  const auto finding = kP2pBaseline.check(*live.host, with);
  CHECK(finding->verdict == Verdict::pass);
  CHECK(finding->summary == "the first measurement failed: the CUDA driver does not start");
}

TEST_CASE("p2p-bench: memory that the installed build is known to break is not tested") {
  Live live;
  if (!live.host) return;
  const Catalogue all = catalogue(*live.host).value();
  const auto breaks = [](const CatalogueEntry& entry) {
    return std::ranges::any_of(entry.defects, [](const Defect& one) { return one.use == "compressible-memory"; });
  };
  const auto entry = std::ranges::find_if(all.entries, breaks);
  REQUIRE(entry != all.entries.end());
  const std::string source = "/usr/src/p2pd-nvidia-" + entry->base_version;
  std::filesystem::create_directories(live.directory / source.substr(1));
  live.write(source + "/dkms.conf", "# Written by p2pd for " + entry->id + ", commit " + entry->commit + "; gone\n");
  const auto ran = [&] {
    return std::ranges::count(live.runner.ran, "p2p-bench",
                              [](const std::string& command) { return command.substr(0, 9); });
  };
  const Parameters with = {{"mode", "full"}, {"fit_for", {"nccl", "compressible-memory"}}};
  const auto finding = kP2pBench.check(*live.host, with);
  REQUIRE(finding);
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->summary.starts_with("compressible-memory is not tested with " + entry->id + ": peer access to"));
  CHECK(ran() == 0);
  live.runner.on("p2p-bench --json --full --for nccl", shipped_report());
  CHECK(kP2pBench.check(*live.host, {{"mode", "full"}, {"fit_for", {"nccl"}}}));
  CHECK(ran() == 1);
}
