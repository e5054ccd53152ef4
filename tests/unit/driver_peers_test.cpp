// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kDriverPeers;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kBench[] = "p2p-bench --driver-peers";
constexpr char kSmi[] = "nvidia-smi topo -p2p r";

std::string answer(const std::string& read, const std::string& write) {
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [from, to] : {std::pair("0000:01:00.0", "0000:02:00.0"), std::pair("0000:02:00.0", "0000:01:00.0")})
    pairs.push_back({{"from", from}, {"to", to}, {"read", read}, {"write", write}, {"atomics", "NS"}});
  return nlohmann::json{{"gpus", {{{"address", "0000:01:00.0"}}}}, {"pairs", pairs}}.dump();
}

/// Two RTX 4090; never changed.
const ChangedRecord& healthy() {
  static const ChangedRecord machine("rtx4090-x2-healthy");
  return machine;
}

Result<Finding> told(const std::string& bench) {
  FakeRunner runner;
  runner.on(kBench, bench);
  return healthy().check(kDriverPeers, runner);
}

Result<Finding> printed(const std::string& matrix) {
  FakeRunner runner;
  runner.on(kSmi, matrix);
  return healthy().check(kDriverPeers, runner);
}

}  // namespace

TEST_CASE("driver-peers: machine records") {
  CHECK(ChangedRecord("no-gpu").look(kDriverPeers).verdict == Verdict::not_applicable);
  CHECK(ChangedRecord("one-4090").look(kDriverPeers).verdict == Verdict::not_applicable);
  CHECK(ChangedRecord("rtx3090-x2-nouveau").look(kDriverPeers).verdict == Verdict::not_applicable);
  const Finding finding = ChangedRecord("h200-x4-vm").look(kDriverPeers);
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary == "the driver reports OK for all 12 ordered pairs");
  CHECK(finding.facts["source"] == kSmi);
  CHECK(finding.facts["pairs"][0] == nlohmann::json{{"from", "0000:00:06.0"}, {"to", "0000:00:07.0"}, {"read", "OK"}});
  const Finding unrecorded = healthy().look(kDriverPeers);
  CHECK(unrecorded.verdict == Verdict::not_applicable);
  CHECK(holds(unrecorded.summary, "not recorded"));
}

TEST_CASE("driver-peers: every ordered pair must be OK for reads and writes, atomics need not") {
  CHECK(told(answer("OK", "OK"))->verdict == Verdict::pass);
  CHECK(told(answer("OK", "OK"))->facts["source"] == kBench);
  const auto write = told(answer("OK", "NS"));
  CHECK(write->verdict == Verdict::fail);
  CHECK(holds(write->summary, "refuses 2 of 2 ordered pairs: 0000:01:00.0 to 0000:02:00.0 NS (not supported"));
}

TEST_CASE("driver-peers: each refusal has its meaning and its next step") {
  std::vector<std::string> nexts;
  for (const char* code : {"CNS", "GNS", "TNS", "DR", "NS", "U"}) {
    const auto finding = told(answer(code, "OK"));
    CAPTURE(code);
    CHECK(finding->verdict == Verdict::fail);
    CHECK(holds(finding->summary, std::string(" ") + code + " ("));
    CHECK_FALSE(finding->next.empty());
    CHECK(std::ranges::count(nexts, finding->next) == 0);
    nexts.push_back(finding->next);
  }
  CHECK(holds(told(answer("XYZ", "OK"))->summary, " U ("));
}

TEST_CASE("driver-peers: a library that does not fit, and answers that are none, are unknown") {
  CHECK(holds(told(R"({"gpus": [], "pairs": [], "not_available": "NVML does not start"})").error().message,
              "NVML does not start"));
  CHECK(holds(
      told(R"({"gpus": [], "pairs": [], "not_available": "NVML does not start: Driver/library version mismatch"})")
          .error()
          .next,
      "Reboot"));
  const std::vector<std::string> answers = {"",
                                            "{",
                                            "[]",
                                            "3",
                                            "{\"pairs\": 3, \"gpus\": []}",
                                            "{\"pairs\": [3], \"gpus\": []}",
                                            "{\"pairs\": [{\"from\": 1, \"to\": 2}], \"gpus\": []}",
                                            "\xff\xfe"};
  for (const std::string& bad : answers) {
    CAPTURE(bad);
    CHECK_FALSE(told(bad));
  }
  const auto one = told(R"({"gpus": [{}], "pairs": []})");  // a card that vfio-pci drives, or that is too old
  CHECK(one->verdict == Verdict::fail);
  CHECK(one->summary == "the driver answers for 0 of 2 ordered pairs: it does not drive all 2 GPUs");
  const auto named = told(R"({"gpus": [{"address": "0000:01:00.0"}], "pairs": []})");
  CHECK(named->summary == "the driver answers for 0 of 2 ordered pairs: it does not drive 0000:02:00.0 (nvidia)");
  CHECK(named->next == "Read in the kernel log why the driver does not have 0000:02:00.0.");  // two have to stay
  const auto number = told(R"({"gpus": [], "pairs": [{"from": "a", "to": "b", "read": 3, "write": "OK"},
                                                     {"from": "b", "to": "a", "read": "OK", "write": "OK"}]})");
  CHECK(holds(number->summary, "the driver refuses 1 of 2 ordered pairs: a to b U ("));
}

TEST_CASE("driver-peers: for a card of a virtual machine the driver has no word") {
  const Finding finding = ChangedRecord("rtx4090-x2-vfio").look(kDriverPeers);
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(holds(finding.summary, "does not drive 0000:02:00.0 (vfio-pci)"));
  CHECK(holds(finding.next, "Take 0000:02:00.0 out of the guest"));
  CHECK_FALSE(holds(finding.next, "exclude"));
}

TEST_CASE("driver-peers: who does not answer in time is not asked by another tool") {
  FakeRunner runner;
  runner.on(kBench, [](const Command& command) -> Result<CommandResult> {
    CHECK(command.deadline <= std::chrono::seconds(30));
    return fail(ErrorCode::timeout, "no answer");
  });
  CHECK(healthy().check(kDriverPeers, runner).error().code == ErrorCode::timeout);
  CHECK(runner.ran.size() == 1);
}

TEST_CASE("driver-peers: nvidia-smi's matrix") {
  const auto finding = printed(" \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n");
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->facts["pairs"][0]["to"] == "0000:02:00.0");
  CHECK(holds(finding->next, "x-nv-gpudirect-clique"));
  const auto three = printed("\tGPU0 GPU1 GPU2\nGPU0 X OK OK\nGPU1 OK X OK\nGPU2 OK OK X\n");
  CHECK(three->facts["pairs"][5] ==
        nlohmann::json{{"from", "GPU2"}, {"to", "GPU1"}, {"read", "OK"}});  // one more than PCI shows
  for (const char* bad : {"", "GPU0 GPU1\n", "GPU0 GPU1\nGPU0 X OK\n", "GPU0 GPU1\nGPU0 X\nGPU1 OK X\n", "GPU0 X OK\n",
                          "GPU0 GPU1\nGPU1 OK X\nGPU0 X OK\n", "No devices were found\n", "\x1b[4mGPU0", "\x1b["}) {
    CAPTURE(bad);
    CHECK_FALSE(printed(bad));
  }
}

TEST_CASE("driver-peers: OK may come without a mapping, and the settings tell when") {
  const auto warning = [](const std::string& machine, const std::string& keys) {
    ChangedRecord record(machine);
    if (!keys.empty())
      record.file("proc/driver/nvidia/params", "RegistryDwords: \"" + keys + "\"\nRegistryDwordsPerDevice: \"\"\n");
    const Finding finding = record.look(kDriverPeers);
    CHECK(finding.verdict == Verdict::pass);
    return finding.facts.value("warnings", nlohmann::json::array()).dump();
  };
  CHECK(warning("rtx5090-x2-driver-ok", "") == "[]");  // forced keys, static BAR1
  CHECK(warning("rtxpro6000-x2", "") == "[]");
  CHECK(holds(warning("rtx4090-x2-hand-patched", "ForceP2P=17;RMPcieP2PType=1"),
              "RMPcieP2PType=1 leaves the mailbox out"));
  CHECK(holds(warning("rtx4090-x2-hand-patched", "ForceP2P=17"), "works on GA102 alone"));
  CHECK(warning("rtx4090-x2-hand-patched", "") == "[]");  // patched: no key
}
