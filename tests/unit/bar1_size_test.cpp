// SPDX-License-Identifier: MIT
#include "machine/hardware/bar1.hpp"

#include "made_bus.hpp"

namespace p2pd {
extern const Probe kBar1Size;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Finding of the probe on two cards in slots with `port`, on a root bus that has no more room.
Finding two(const Function& gpu, const Function& port = {}) {
  MadeBus bus;
  bus.add_slot(1, gpu, port);
  bus.add_slot(2, gpu, port);
  bus.no_room();
  bus.iomem();
  return bus.look(kBar1Size);
}

const Function kSmall{.bar1 = 256 * kMiB};
const Function kTight{.window = 288 * kMiB};

}  // namespace

TEST_CASE("bar1-size: machine records") {
  struct Row {
    const char* machine;
    Verdict verdict;
    const char* gpu;
    const char* cause;
  };
  for (const Row& row : std::vector<Row>{
           {"h200-x4-vm", Verdict::not_applicable, "0000:00:06.0", "not_needed"},
           {"no-gpu", Verdict::not_applicable, nullptr, nullptr},
           {"rtx2080ti-x2", Verdict::not_applicable, "0000:01:00.0", "old_geforce"},
           {"one-4090", Verdict::pass, "0000:02:00.0", "covers"},
           {"rtx3090-x4-epyc", Verdict::fail, "0000:c1:00.0", "vbios"},
           {"rtx4090-x2-am5", Verdict::pass, "0000:01:00.0", "covers"},
           {"rtx4090-x2-rebar-off", Verdict::fail, "0000:01:00.0", "driver_option"},
           {"rtx4090-x8-two-socket", Verdict::pass, "0000:9a:00.0", "covers"},
           {"rtx5090-x2-genoa", Verdict::pass, "0000:81:00.0", "covers"},
           {"rtx4090-48g-x2", Verdict::fail, "0000:01:00.0", "converted"},  // an id of 24 GB, the driver reports 48
           {"rtx4090-48g-x2-allowed", Verdict::pass, "0000:01:00.0", "dynamic_bar1"},
           {"rtx4090-x2-vbios-sizes", Verdict::fail, "0000:02:00.0", "vbios_sizes"},
           {"rtx4090-x2-bar1-refused", Verdict::fail, "0000:02:00.0", "refused"},
           {"rtx4090-x2-above4g-off", Verdict::fail, "0000:01:00.0", "firmware"},
           {"rtx4090-x2-lost-card", Verdict::unknown, nullptr, nullptr},
           {"rtx5060ti-x2-first-day", Verdict::pass, "0000:01:00.0", "largest"},
           {"rtx4090-x2-switch-window", Verdict::fail, "0000:04:00.0", "window"},
           {"rtxa6000-x2", Verdict::not_applicable, nullptr, nullptr},
       }) {
    CAPTURE(row.machine);
    const Finding finding = MadeBus::recorded(kBar1Size, row.machine);
    CHECK(finding.verdict == row.verdict);
    CHECK(finding.next.empty() == finding.holds());
    bool seen = row.gpu == nullptr;
    for (const auto& gpu : finding.facts.value("gpus", nlohmann::json())) {
      if (row.gpu == nullptr || gpu["address"] != row.gpu) continue;
      CHECK(gpu["cause"] == row.cause);
      seen = true;
    }
    CHECK(seen);
  }
}

TEST_CASE("bar1-size: who can help is told apart") {
  struct Row {
    Function gpu;
    Function port;
    const char* cause;
    const char* next;
  };
  Function vbios = kSmall, limited = kSmall, silent = kSmall, user = kSmall, none = kSmall;
  vbios.resizable = false;
  limited.sizes = {256 * kMiB, 16 * kGiB};
  silent.sizes = {};  // real capabilities do that
  user.bytes = 64;
  none.bar1 = 0;
  for (const Row& row : std::vector<Row>{{kSmall, kTight, "firmware", "Above 4G Decoding"},
                                         {kSmall, {}, "driver_option", "NVreg_EnableResizableBar=1"},
                                         {none, kTight, "firmware", "Above 4G Decoding"},
                                         {vbios, kTight, "vbios", "Update the vBIOS"},
                                         {limited, {}, "vbios_sizes", "Update the vBIOS"},
                                         {silent, {}, "vbios_sizes", "Update the vBIOS"},
                                         {user, {}, "unreadable", "as root"}}) {
    CAPTURE(row.cause);
    const Finding finding = two(row.gpu, row.port);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.facts["gpus"][1]["cause"] == row.cause);
    CHECK_FALSE(finding.impossible);  // a person can help
    CHECK(contains(finding.next, row.next));
    CHECK(contains(finding.summary,
                   row.gpu.bar1 == 0 ? "has 0 MiB" : "has 256 MiB of BAR1 for 24576 MiB of VRAM, and 1"));
    CHECK(contains(finding.summary, "maps all VRAM at once"));
  }
}

TEST_CASE("bar1-size: a converted card needs a build with dynamic BAR1, and is impossible only without one") {
  const auto look = [](std::uint16_t device, std::uint64_t bar1, const char* allowed) {
    MadeBus bus;
    std::string smi;
    for (int slot = 1; slot <= 2; ++slot) {
      bus.add_slot(slot, {.device = device, .bar1 = bar1});
      smi += fmt::format("GPU 00000000:0{}:00.0\n    FB Memory Usage\n        Total  : 49140 MiB\n", slot);
    }
    bus.range(0x2000000000, 1024 * kGiB, "PCI Bus 0000:00");
    bus.iomem();
    bus.file("sys/module/nvidia/version", "570.86.16\n");
    bus.file("commands/nvidia-smi-q.json",
             nlohmann::json{{"argv", {"nvidia-smi", "-q"}}, {"status", 0}, {"output", smi}, {"errors", ""}}.dump());
    if (allowed != nullptr) bus.file("etc/p2pd/catalogue.d/allowed.yaml", allowed);
    return bus.look(kBar1Size);
  };
  constexpr const char* kAllowed =
      "schema: p2pd.catalogue/2\nallowed:\n  Duanyll/595.71.05-p2p-48g:\n"
      "    base_commit: 51edebee79919b54f498c19a0be31982cd97646e\n"
      "    commit: 23b7fb8244e1c4d62ae374cbdbd41756364241bd\n"
      "    runfile_sha256: 36203b8960b7e49c8a42f6ba1f5863cde34a05e93d2b24b798af06dd846f6b82\n";
  const Finding refused = look(0x2684, 32 * kGiB, nullptr);
  CHECK(refused.verdict == Verdict::fail);
  CHECK_FALSE(refused.impossible);
  CHECK(contains(refused.next, "\"sudo p2pctl catalogue allow Duanyll/595.71.05-p2p-48g\""));
  CHECK(look(0x2684, 32 * kGiB, kAllowed).verdict == Verdict::pass);
  CHECK(look(0x2684, 256 * kMiB, kAllowed).facts["gpus"][0]["cause"] == "driver_option");  // not its largest yet
  const Finding ampere = look(0x2204, 32 * kGiB, kAllowed);                                // no such build knows Ampere
  CHECK(ampere.verdict == Verdict::fail);
  CHECK(ampere.impossible);
  CHECK(contains(ampere.next, "Use cards with the memory that their maker gave them."));
}

TEST_CASE("bar1-size: a user without root can see that it covers") {
  Function gpu;
  gpu.bytes = 64;
  const Finding finding = two(gpu);
  CHECK(finding.verdict == Verdict::pass);
}

TEST_CASE("bar1-size: one MiB too small is too small") {
  Function gpu{.bar1 = 24 * kGiB};
  CHECK(two(gpu).verdict == Verdict::pass);
  gpu.bar1 -= kMiB;
  CHECK(two(gpu).verdict == Verdict::fail);
}

TEST_CASE("bar1-size: what cannot be known is not a pass") {
  SECTION("a model that is not in the table") { CHECK(two({.device = 0x1234}).verdict == Verdict::unknown); }
  SECTION("a model that sells with 8 and with 16 GB") {
    CHECK(two({.device = 0x2d04}).facts["gpus"][0]["cause"] == "largest");  // no such card has more
    CHECK(two({.device = 0x2d04}).verdict == Verdict::pass);
    const Finding user = two({.device = 0x2d04, .bytes = 64});
    CHECK(user.verdict == Verdict::unknown);
    CHECK(contains(user.next, "as root"));
    CHECK(contains(user.next, "ubuntu-drivers install"));
    const Finding small = two({.device = 0x2d04, .bar1 = 256 * kMiB}, kTight);
    CHECK(small.verdict == Verdict::fail);  // less than any card
    CHECK(small.facts["gpus"][0]["cause"] == "firmware");
  }
  SECTION("one that fell off the bus") {
    const Finding finding = two({.lost = true});
    CHECK(finding.verdict == Verdict::unknown);
    CHECK(contains(finding.summary, "fell off the bus"));
  }
  SECTION("a listing without sysfs has the capability, as root; one of a user has nothing") {
    MadeBus bus;
    bus.add_slot(1);
    bus.remove("sys/bus/pci/devices/0000:01:00.0/resource");
    CHECK(bus.look(kBar1Size).verdict == Verdict::pass);
    bus.add_slot(2, {.bytes = 256});
    bus.remove("sys/bus/pci/devices/0000:02:00.0/resource");
    CHECK(bus.look(kBar1Size).verdict == Verdict::unknown);
    CHECK(bus.look(kBar1Size).facts["gpus"][1]["cause"] == "bar1_unknown");
  }
  SECTION("no bus") {
    const TemporaryDirectory empty;
    CHECK_FALSE(MadeBus::look_at(kBar1Size, empty.path()));
  }
}

TEST_CASE("bar1-size: a virtual machine hides what its host has") {
  MadeBus bus;
  bus.add({.address = "0000:00:05.0", .bar1 = 256 * kMiB, .resizable = false});
  const Finding finding = bus.look(kBar1Size);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.facts["gpus"][0]["cause"] == "virtual_machine");  // not the vBIOS
  CHECK(contains(finding.next, "host of this virtual machine"));
}

TEST_CASE("bar1-size: one card of a mixed machine decides") {
  MadeBus bus;
  bus.add_slot(1);
  bus.add_slot(2, {.device = 0x2230, .bar1 = 256 * kMiB});  // RTX A6000: its driver has P2P without
  CHECK(bus.look(kBar1Size).verdict == Verdict::pass);
  bus.add_slot(3, {.device = 0x1234});
  CHECK(bus.look(kBar1Size).verdict == Verdict::unknown);
  bus.add_slot(4, kSmall, kTight);
  bus.add_slot(5, {.bar1 = 256 * kMiB, .resizable = false}, kTight);
  bus.no_room();
  bus.iomem();
  const Finding finding = bus.look(kBar1Size);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(contains(finding.summary, "0000:04:00.0"));  // the cause that one setting fixes is first
}

TEST_CASE("bar1: the size to have") {
  PciDevice device;
  Bar1 bar1;
  bar1.gpu = &device;
  CHECK_FALSE(bar1.goal_bytes());
  bar1.model = GpuModel{"10de:2684", "x", "GeForce", "Ada", 24576};
  CHECK(bar1.goal_bytes() == 32 * kGiB);  // not readable: a power of two
  device.extended_readable = true;
  CHECK_FALSE(bar1.goal_bytes());
  bar1.resizable = ResizableBar{256 * kMiB, {256 * kMiB, 64 * kGiB, 128 * kGiB}};
  CHECK(bar1.goal_bytes() == 64 * kGiB);
  bar1.range = PciRange{0, 24 * kGiB, true};
  CHECK(bar1.goal_bytes() == 24 * kGiB);
  bar1.told_bytes = 24564 * kMiB;  // a little less than nominal
  CHECK(bar1.vram_bytes() == 24 * kGiB);
  bar1.told_bytes = 48 * kGiB;
  CHECK(bar1.goal_bytes() == 64 * kGiB);
  bar1.model->vram_mib.reset();
  CHECK(bar1.vram_bytes() == 48 * kGiB);
  bar1.model.reset();
  CHECK(bar1.vram_bytes() == 48 * kGiB);  // the driver's value is enough
  bar1.told_bytes = 0;
  CHECK_FALSE(bar1.vram_bytes());
  CHECK(bar1.goal_bytes() == 128 * kGiB);  // the largest
  bar1.resizable->supported_bytes = {64 * kMiB, 256 * kMiB};
  CHECK_FALSE(bar1.goal_bytes());
}

TEST_CASE("pci: BAR length from sysfs resource") {
  const TemporaryDirectory directory;
  const Root root = Root::open(directory.path()).value();
  RecordedRunner runner(root);
  const Host host(root, runner);
  PciDevice device;
  device.address = "0000:01:00.0";
  const std::string resource = "sys/bus/pci/devices/0000:01:00.0/resource";
  const auto bytes = [&](std::string_view content) {
    directory.put(resource, content);
    return pci_bar_bytes(host, device, 0);
  };
  CHECK(bytes("0x0000002000000000 0x00000027ffffffff 0x000000000014220c\n").value() == 32768 * kMiB);
  CHECK(bytes("0x0000000000000000 0x0000000000000000 0x0000000000000000\n").value() == 0);
  CHECK(bytes("0x0000000000000000 0x000000000fffffff 0x000000002014220c\n").value() == 0);  // no address found
  for (const char* broken : {"", "\n", "0x1 0x2\n", "x y z\n", "0x1", "0x10000000000000000 0x2 0x3\n"})
    CHECK_FALSE(bytes(broken));
  CHECK_FALSE(pci_bar_bytes(host, device, 3));
  std::filesystem::remove(directory / resource);
  CHECK(pci_bar_bytes(host, device, 0).error().code == ErrorCode::not_found);
}
