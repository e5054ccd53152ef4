// SPDX-License-Identifier: MIT
// The simulated driver of a host reports that P2P works if every gate holds, and each failing gate has its effect in
// CUDA and in NVML. p2p-bench queries them, as it does on a real host.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/command.hpp"
#include "catch.hpp"
#include "fake_gpu_host.hpp"
#include "tests/sim/host/gates.hpp"

#ifndef P2PD_SIM_LIBCUDA
#define P2PD_SIM_LIBCUDA ""
#define P2PD_SIM_LIBNVML ""
#define P2PD_BENCH ""
#endif

namespace fs = std::filesystem;
using namespace p2pd;
using nlohmann::json;
using test::FakeGpuHost;

namespace {

/// A library of the build as NAME.so.VERSION, and the link that programs look for.
void lay_down(const fs::path& folder, const std::string& name, const char* built) {
  fs::create_directories(folder);
  const std::string file = name + ".so." + FakeGpuHost::kVersion;
  fs::copy_file(built, folder / file, fs::copy_options::overwrite_existing);
  if (!fs::is_symlink(folder / (name + ".so.1"))) fs::create_symlink(file, folder / (name + ".so.1"));
}

CommandResult bench(const FakeGpuHost& host, std::vector<std::string> options) {
  lay_down(host.libraries(), "libcuda", P2PD_SIM_LIBCUDA);
  lay_down(host.libraries(), "libnvidia-ml", P2PD_SIM_LIBNVML);
  Command command;
  command.argv = {P2PD_BENCH, "--json", "--root", host.root()};
  command.argv.insert(command.argv.end(), options.begin(), options.end());
  command.environment = {{"LD_LIBRARY_PATH", host.libraries()}, {"P2PD_SIM_ROOT", host.root()}};
  command.deadline = std::chrono::seconds(120);
  ProcessRunner runner;
  auto result = runner.run(command);
  REQUIRE(result);
  return *std::move(result);
}

/// The failing remarks of a quick run, or the error if there is no run; empty: proven.
std::vector<std::string> problems(const FakeGpuHost& host, const std::string& mode = "--quick") {
  const CommandResult result = bench(host, {mode});
  const json report = json::parse(result.output);
  if (report.contains("error")) return {report["error"]};
  std::vector<std::string> found;
  for (const json& remark : report["judgement"]["remarks"])
    if (remark["grade"] != "pass" && remark["grade"] != "not_judged") found.push_back(remark["text"]);
  CHECK((result.status == 0) == report["judgement"]["proven"].get<bool>());
  return found;
}

/// NVML's status of reads and writes of every pair; one word if all are equal.
std::string nvml_status(const FakeGpuHost& host) {
  const json peers = json::parse(bench(host, {"--driver-peers"}).output);
  if (peers.contains("not_available")) return peers["not_available"];
  std::string found;
  for (const json& pair : peers["pairs"])
    for (const char* way : {"read", "write"}) {
      const std::string status = pair[way].is_string() ? pair[way].get<std::string>() : "none";
      if (!found.empty() && found != status) return "differs";
      found = status;
    }
  return found;
}

/// Checks that a sentence contains `text`; for an empty text, that there is none.
bool says(const std::vector<std::string>& sentences, const std::string& text) {
  if (text.empty()) return sentences.empty();
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& s) { return s.find(text) != s.npos; });
}

struct Row {
  const char* name;
  std::function<void(FakeGpuHost&)> change;
  const char* cuda;  ///< text in p2p-bench's remarks
  const char* nvml;
};

constexpr char kNoAccess[] = "there is no peer access";
constexpr char kLost[] = "copy-push";
constexpr char kSlow[] = "fails below 50 %";

const Row kRows[] = {
    {"all gates are open", [](FakeGpuHost&) {}, "", "OK"},
    {"no module", [](FakeGpuHost& host) { host.remove("proc/driver"); }, "CUDA_ERROR_NO_DEVICE", "NVML does not start"},
    {"no control device", [](FakeGpuHost& host) { host.remove("dev"); }, "CUDA_ERROR_NO_DEVICE", "NVML does not start"},
    {"another module", [](FakeGpuHost& host) { host.module("570.124.06"); }, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "NVML does not start"},
    {"no unified memory", [](FakeGpuHost& host) { host.write("proc/devices", "195 nvidia\n"); }, "CUDA_ERROR_UNKNOWN",
     "OK"},
    {"stock modules", [](FakeGpuHost& host) { host.write("dev/nvidiactl", "p2p 0x00\n"); }, kNoAccess, "CNS"},
    {"an override of reads only", [](FakeGpuHost& host) { host.write("dev/nvidiactl", "p2p 0x01\n"); }, kNoAccess,
     "CNS"},
    {"a small BAR1", [](FakeGpuHost& host) { host.gpu(FakeGpuHost::kSecond, 0x2684, 16); }, kNoAccess, "GNS"},
    {"two generations", [](FakeGpuHost& host) { host.gpu(FakeGpuHost::kSecond, 0x2204); }, kNoAccess, "NS"},
    {"the mailbox, before 575",
     [](FakeGpuHost& host) {
       host.write("proc/driver/nvidia/params", "RegistryDwords: \"ForceP2P=0x11;RMForceP2PType=1;\"\n");
     },
     kLost, "OK"},
    {"BAR1 by its number of before 575",
     [](FakeGpuHost& host) { host.write("proc/driver/nvidia/params", "RegistryDwords: \"RMForceP2PType=2\"\n"); }, "",
     "OK"},
    {"an IOMMU that translates", [](FakeGpuHost& host) { host.iommu(FakeGpuHost::kSecond, "DMA-FQ"); }, kLost, "OK"},
    {"an IOMMU that lets through",
     [](FakeGpuHost& host) {
       host.iommu(FakeGpuHost::kFirst, "identity");
       host.iommu(FakeGpuHost::kSecond, "identity");
     },
     "", "OK"},
    {"ACS that redirects at a root port", [](FakeGpuHost& host) { host.port("0000:00:01.0", 1, 0x1d); }, kSlow, "OK"},
    {"ACS that redirects nothing", [](FakeGpuHost& host) { host.port("0000:00:01.0", 1, 0x11); }, "", "OK"},
};

}  // namespace

TEST_CASE("a gate that fails has its consequence, in CUDA and in NVML") {
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    FakeGpuHost host;
    row.change(host);
    const std::vector<std::string> found = problems(host);
    CAPTURE(found);
    CHECK(says(found, row.cuda));
    CHECK(nvml_status(host) == row.nvml);
  }
}

TEST_CASE("groups of peers: two of each generation are proven, a card alone takes no part, and lies are named") {
  FakeGpuHost host;  // two RTX 4090
  for (int bus = 3; bus <= 5; ++bus) {
    host.port(fmt::format("0000:00:0{}.0", bus), static_cast<unsigned>(bus));
    host.gpu(fmt::format("0000:00:0{0}.0/0000:0{0}:00.0", bus), bus < 5 ? 0x2204 : 0x2b85);
  }
  const auto report_of = [&](std::vector<std::string> options) {
    json report = json::parse(bench(host, std::move(options)).output);
    CAPTURE(report.dump());
    REQUIRE(report.contains("judgement"));
    return report;
  };
  SECTION("proven") {
    const json report = report_of({"--quick"});
    CHECK(report["judgement"]["proven"] == true);
    const std::string summary = report["judgement"]["summary"];
    CAPTURE(summary);  // every simulated card has one name in procfs
    CHECK(summary.starts_with("proven in 2 groups (2 x RTX 4090, 2 x RTX 4090): 4 ordered pairs"));
    CHECK(report["gpus"].size() == 4);
    CHECK(report["pairs"].size() == 4);
    CHECK(report["gpus"][0]["group"] == "Ada");
    CHECK(report["gpus"][3]["group"] == "Ampere");
    CHECK(report["judgement"]["grades"][0][2] == "not_judged");
  }
  SECTION("every pair") {
    const json report = report_of({"--quick", "--all-pairs", "--exclude", "0000:05:00.0"});
    CHECK(report["judgement"]["proven"] == false);
    CHECK(report["pairs"].size() == 12);
  }
  SECTION("a card that is left out leaves its peer alone") {
    const json report = report_of({"--quick", "--exclude", "0000:04:00.0"});
    CHECK(report["judgement"]["proven"] == true);
    CHECK(report["gpus"].size() == 2);
  }
  SECTION("an IOMMU that translates, for the second group alone") {
    host.iommu("0000:00:04.0/0000:04:00.0", "DMA-FQ");
    const json report = report_of({"--quick"});
    CHECK(report["judgement"]["proven"] == false);
    for (const json& wrong : report["wrong"]) CHECK(wrong["from"].get<int>() + wrong["to"].get<int>() == 5);
    CHECK_FALSE(report["wrong"].empty());
  }
}

TEST_CASE("professional boards need neither the override nor BAR1") {
  FakeGpuHost host;
  for (const char* way : {FakeGpuHost::kFirst, FakeGpuHost::kSecond}) host.gpu(way, 0x2230, 16);
  host.write("dev/nvidiactl", "p2p 0x00\n");
  CHECK(problems(host).empty());
  CHECK(nvml_status(host) == "OK");
}

TEST_CASE("a whole run on a host with open gates passes every judgement") {
  CHECK(problems(FakeGpuHost(), "--full") == std::vector<std::string>());
}

TEST_CASE("below a switch, the ports below it matter and no others") {
  constexpr int kUpstream = 5;
  constexpr int kDownstream = 6;
  const std::string up = "0000:00:03.0/0000:03:00.0";
  FakeGpuHost host;
  for (const char* name : {"0000:01:00.0", "0000:02:00.0"}) host.remove(std::string("sys/bus/pci/devices/") + name);
  host.port("0000:00:03.0", 3, 0x1d);
  host.port(up, 4, 0, kUpstream);
  host.port(up + "/0000:04:00.0", 5, 0, kDownstream);
  host.port(up + "/0000:04:01.0", 6, 0, kDownstream);
  host.gpu(up + "/0000:04:00.0/0000:05:00.0", 0x2684);
  host.gpu(up + "/0000:04:01.0/0000:06:00.0", 0x2684);
  CHECK(nvml_status(host) == "OK");
  CHECK(json::parse(bench(host, {"--driver-peers"}).output)["pairs"][0]["topology"] == "PIX");
  CHECK(problems(host) == std::vector<std::string>());
  host.port(up + "/0000:04:01.0", 6, 0x1d, kDownstream);
  CHECK(says(problems(host), "fails below 60 %"));
}

TEST_CASE("NVML tells of each GPU what sysfs tells") {
  const FakeGpuHost host;
  const json gpu = json::parse(bench(host, {"--driver-peers"}).output)["gpus"][1];
  CHECK(gpu == json({{"address", "0000:02:00.0"},
                     {"persistence", false},
                     {"bar1_bytes", 32ULL << 30},
                     {"vram_bytes", 24ULL << 30},
                     {"generation", 4},
                     {"generation_most", 4},
                     {"width", 16},
                     {"width_most", 16}}));
}

TEST_CASE("NVIDIA's own modules between RTX 50: 570, 580 and later, and with every key that it takes") {
  struct Case {
    const char* module;
    const char* registry;
    unsigned device;
    std::uint64_t bar1_gib;
    bool open;
  };
  const std::string all = "ForceP2P=0x11;RMPcieP2PType=1;RMForceStaticBar1=1";
  static const sim::Board kBoards[] = {{0x2b85, 12, 0, 170, 32768, true}, {0x2684, 8, 9, 128, 24564, true}};
  const sim::Gates gates = sim::Gates::read();
  const auto& gate = *std::ranges::find(gates.pair, "p2p-modules", &sim::PairGate::name);
  for (const Case& row : {Case{"595.45.04", all.c_str(), 0x2b85, 32, true},
                          {"580.95.05", all.c_str(), 0x2b85, 32, true},
                          {"575.64.05", all.c_str(), 0x2b85, 32, false},
                          {"570.211.01", all.c_str(), 0x2b85, 32, false},
                          {"570.211.01", "ForceP2P=0x11;RMForceP2PType=2", 0x2b85, 64, true},
                          {"595.45.04", all.c_str(), 0x2684, 32, false},
                          {"595.45.04", "ForceP2P=17;RMPcieP2PType=1", 0x2b85, 32, false},
                          {"595.45.04", "ForceP2P=17;RMPcieP2PType=1", 0x2b85, 64, true},
                          {"595.45.04", "ForceP2P=17;RMForceStaticBar1=1", 0x2b85, 32, false},
                          {"595.45.04", "", 0x2b85, 64, false}}) {
    CAPTURE(row.module, row.registry, row.bar1_gib);
    const FakeGpuHost files;
    sim::GpuHost host;
    host.module = row.module;
    host.registry = row.registry;
    for (const char* way : {FakeGpuHost::kFirst, FakeGpuHost::kSecond}) {
      files.gpu(way, row.device, row.bar1_gib);
      host.gpus.push_back({sim::PciFunction(files.root() / FakeGpuHost::folder(way)),
                           std::ranges::find(kBoards, row.device, &sim::Board::id), "", ""});
    }
    CHECK(gate.open(host, host.gpus[0], host.gpus[1]) == row.open);
    host.quirks.patched_only = true;
    CHECK_FALSE(gate.open(host, host.gpus[0], host.gpus[1]));
  }
}

TEST_CASE("NVIDIA's own modules between RTX 50: keys of single GPUs count for these") {
  static const sim::Board kBoard{0x2b85, 12, 0, 170, 32768, true};
  const sim::Gates gates = sim::Gates::read();
  const auto& gate = *std::ranges::find(gates.pair, "p2p-modules", &sim::PairGate::name);
  const FakeGpuHost files;
  sim::GpuHost host;
  host.module = "580.95.05";
  host.registry = "ForceP2P=0x11;RMPcieP2PType=1";
  for (const char* way : {FakeGpuHost::kFirst, FakeGpuHost::kSecond}) {
    files.gpu(way, 0x2b85, 32);
    host.gpus.push_back({sim::PciFunction(files.root() / FakeGpuHost::folder(way)), &kBoard, "", ""});
  }
  const std::string one = "pci=0000:01:00.0;RMForceStaticBar1=1";
  host.device_registry = one;
  CHECK_FALSE(gate.open(host, host.gpus[0], host.gpus[1]));
  host.device_registry = one + ";pci=0000:02:00.0;Other=2;RMForceStaticBar1=1";
  CHECK(gate.open(host, host.gpus[0], host.gpus[1]));
}

TEST_CASE("a narrow link is as slow as it is, and no fault") {
  FakeGpuHost host;
  host.write(FakeGpuHost::folder("0000:00:02.0") + "current_link_width", "4\n");
  CHECK(says(problems(host), kSlow));
}

TEST_CASE("quirks of a scenario") {
  FakeGpuHost host;
  const auto quirks = [&](const std::string& text) { host.write("etc/driver-world/quirks.json", text); };
  SECTION("a fault") {
    quirks(R"({"faults": [{"kind": "wrong-byte", "from": 0, "to": 1, "engine": "copy", "at": 700}]})");
    CHECK(says(problems(host), "GPU 0 -> GPU 1: copy-push"));
  }
  SECTION("identity is not enough") {
    quirks(R"({"gates": {"iommu": "absent"}})");
    CHECK(problems(host).empty());
    host.iommu(FakeGpuHost::kFirst, "identity");
    CHECK(says(problems(host), kLost));
  }
  SECTION("crashes, counted") {
    quirks(R"({"crash": 2})");
    for (int i = 0; i < 2; ++i) CHECK(bench(host, {"--quick"}).status != 0);
    CHECK(fs::exists(host.root() / "var/lib/driver-world/crashes"));
    CHECK(problems(host).empty());
  }
  SECTION("what nobody knows") {
    for (const char* text :
         {R"({"rain": 1})", R"({"gates": {"acs": "absent"}})", R"({"gates": {"iommu": "off"}})",
          R"({"gates": {"p2p-modules": "stock"}})", R"({"faults": [{"kind": "rain"}]})", R"({"faults": {}})", "{"}) {
      CAPTURE(text);
      quirks(text);
      CHECK(says(problems(host), "CUDA_ERROR_UNKNOWN"));
    }
  }
}

TEST_CASE("the file of gates and their predicates fit") {
  const sim::Gates gates = sim::Gates::read();
  CHECK(gates.start.size() + gates.pair.size() == 9);
  std::ifstream file(fs::path(P2PD_SOURCE_DIR) / "tests/sim/gates.json");
  const json whole = json::parse(file);
  const auto broken = [](const json& changed) {
    try {
      sim::Gates::read(changed.dump());
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(broken(whole).empty());
  json changed = whole;
  changed["pair"].erase(0);
  CHECK(broken(changed) == "gates.json lacks the gate \"same-generation\"");
  changed = whole;
  changed["pair"][0]["name"] = "weather";
  CHECK(broken(changed) == "pair[0] is \"weather\", which has no predicate");
  changed = whole;
  changed["pair"][1]["failing"]["nvml"] = "NO";
  CHECK(broken(changed).find("unknown status") != std::string::npos);
  changed = whole;
  changed["start"][0].erase("source");
  CHECK(broken(changed) == "start[0] has no source");
}
