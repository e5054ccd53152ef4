// SPDX-License-Identifier: MIT
#include "machine/hardware/pci.hpp"
#include "made_bus.hpp"

namespace p2pd {
extern const Probe kBridgeWindows;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr std::uint64_t kAt = 0x2000000000;

/// A root port, a switch and two cards below it: buses 1 to 4. `uplink` is the window of the root port, without the
/// 1 MiB that the switch's own BAR takes of it.
void add_switch(MadeBus& bus, std::uint64_t uplink, std::uint64_t bar1) {
  bus.add({.address = "0000:00:01.0",
           .type = kRoot,
           .below = 1,
           .last_below = 4,
           .vendor = 0x1022,
           .at = kAt,
           .window = uplink});
  bus.add({.address = "0000:01:00.0",
           .type = kUp,
           .below = 2,
           .last_below = 4,
           .vendor = 0x1000,
           .at = kAt,
           .window = uplink});
  bus.resource("0000:01:00.0", fmt::format("{:#x} {:#x} 0x14220c\n", kAt + uplink - kMiB, kAt + uplink - 1));
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t at = kAt + static_cast<std::uint64_t>(i) * 32 * kGiB;
    bus.add({.address = fmt::format("0000:02:0{}.0", i),
             .type = kDown,
             .below = 3 + i,
             .last_below = 3 + i,
             .vendor = 0x1000,
             .at = at,
             .window = 32 * kGiB});
    bus.add({.address = fmt::format("0000:0{}:00.0", 3 + i), .bar1 = bar1, .at = at});
  }
}

}  // namespace

TEST_CASE("bridge-windows: machine records") {
  for (const auto& [machine, verdict, bridges] :
       std::vector<std::tuple<const char*, Verdict, std::size_t>>{{"h200-x4-vm", Verdict::not_applicable, 0},
                                                                  {"rtx4090-x2-above4g-off", Verdict::fail, 2},
                                                                  {"rtx4090-x2-switch-window", Verdict::fail, 4},
                                                                  {"rtxa6000-x2", Verdict::pass, 2},
                                                                  {"no-gpu", Verdict::not_applicable, 0},
                                                                  {"one-4090", Verdict::pass, 1},
                                                                  {"rtx3090-x4-epyc", Verdict::pass, 4},
                                                                  {"rtx4090-x2-am5", Verdict::pass, 2},
                                                                  {"rtx4090-x2-rebar-off", Verdict::pass, 2},
                                                                  {"rtx4090-x8-two-socket", Verdict::pass, 12},
                                                                  {"rtx5090-x2-genoa", Verdict::pass, 2}}) {
    CAPTURE(machine);
    const Finding finding = MadeBus::recorded(kBridgeWindows, machine);
    CHECK(finding.verdict == verdict);
    CHECK(finding.evidence.size() == bridges);
    CHECK(finding.next.empty() == (verdict != Verdict::fail));
  }
  const Finding off = MadeBus::recorded(kBridgeWindows, "rtx4090-x2-rebar-off");
  CHECK(off.facts["bridges"][1]["window_bytes"] == 288 * kMiB);
  CHECK(off.facts["bridges"][1]["needed_bytes"] == 32800 * kMiB);
  CHECK(off.facts["bridges"][1]["moves"] == true);  // the firmware's is small, Linux recreates it
  CHECK(contains(MadeBus::recorded(kBridgeWindows, "rtx4090-x2-above4g-off").next, "Above 4G Decoding"));
  CHECK(contains(MadeBus::recorded(kBridgeWindows, "rtx4090-x2-switch-window").summary, "holds other functions"));
}

TEST_CASE("bridge-windows: the bridge that is too small is named") {
  MadeBus bus;
  bus.add_slot(1, {.bar1 = 256 * kMiB});
  bus.add_slot(2, {.bar1 = 256 * kMiB}, {.window = 32 * kGiB - kMiB});
  bus.no_room();
  bus.iomem();
  const Finding finding = bus.look(kBridgeWindows);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(contains(finding.summary, "0000:00:02.0"));
  CHECK_FALSE(contains(finding.summary, "0000:00:01.0"));
  CHECK(finding.facts["bridges"][0]["holds"] == true);
}

TEST_CASE("bridge-windows: all that is below a bridge shares its window") {
  struct Row {
    std::uint64_t uplink;
    Verdict verdict;
  };
  for (const Row& row : std::vector<Row>{{64 * kGiB + kMiB, Verdict::pass},
                                         {64 * kGiB, Verdict::unknown},  // the switch's own BAR is in the way
                                         {33 * kGiB, Verdict::unknown}}) {
    CAPTURE(row.uplink);
    MadeBus bus;
    add_switch(bus, row.uplink, 256 * kMiB);
    const Finding finding = bus.look(kBridgeWindows);
    CHECK(finding.verdict == row.verdict);
    CHECK(finding.facts["bridges"][0]["needed_bytes"] == 64 * kGiB + kMiB);
    CHECK(finding.facts["bridges"][2]["needed_bytes"] == 32 * kGiB);
  }
}

TEST_CASE("bridge-windows: what need not grow is fine where it lies") {
  MadeBus bus;
  SECTION("BAR1 covers the VRAM") { bus.add_slot(1, {}, {.window = 32 * kGiB}); }
  SECTION("a card that cannot be resized") {
    bus.add_slot(1, {.bar1 = 256 * kMiB, .resizable = false}, {.window = 256 * kMiB});
  }
  SECTION("a professional card") { bus.add_slot(1, {.device = 0x2230, .bar1 = 256 * kMiB}, {.window = 256 * kMiB}); }
  CHECK(bus.look(kBridgeWindows).verdict == Verdict::pass);
}

TEST_CASE("bridge-windows: BAR1 outside the window, or none") {
  MadeBus bus;
  SECTION("outside") {
    bus.add({.address = "0000:00:01.0",
             .type = kRoot,
             .below = 1,
             .last_below = 1,
             .vendor = 0x1022,
             .at = kAt + 64 * kGiB});
  }
  SECTION("closed") {
    bus.add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 1, .vendor = 0x1022, .window = 0});
  }
  bus.add({.address = "0000:01:00.0"});
  CHECK(bus.look(kBridgeWindows).verdict == Verdict::fail);
}

TEST_CASE("bridge-windows: registers are enough for a user, sysfs for the sizes") {
  MadeBus bus;
  bus.add_slot(1, {.bar1 = 256 * kMiB, .bytes = 64}, {.window = 300 * kMiB, .bytes = 64});
  CHECK(bus.look(kBridgeWindows).verdict == Verdict::unknown);  // only root can read whether Linux recreates it
  CHECK(contains(bus.look(kBridgeWindows).summary, "0000:00:01.0 lets 300 MiB through"));
  MadeBus blind;
  blind.add_slot(1);
  blind.remove("sys/bus/pci/devices/0000:01:00.0/resource");
  const Finding finding = blind.look(kBridgeWindows);
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(contains(finding.summary, "the functions in the window of 0000:00:01.0 are not readable"));
}

TEST_CASE("bridge-windows: sizes that overflow do not pass") {
  MadeBus bus;
  add_switch(bus, 64 * kGiB + kMiB, 256 * kMiB);
  bus.resource("0000:01:00.0", "0x0 0xfffffffffffffffe 0x14220c\n");
  CHECK(bus.look(kBridgeWindows).verdict == Verdict::unknown);
}

TEST_CASE("pci: windows of a bridge") {
  PciDevice bridge;
  bridge.config.assign(64, 0);
  const auto put = [&](std::size_t offset, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bridge.config.at(offset + i) = static_cast<std::uint8_t>(value >> (8 * i));
  };
  put(0x20, 0xf7f0f600);  // 32 MiB from 0xf6000000
  put(0x24, 0xfff10001);
  put(0x28, 0x20);
  put(0x2c, 0x27);
  CHECK(memory_window(bridge).first == 0xf6000000);
  CHECK(memory_window(bridge).length == 32 * kMiB);
  CHECK(prefetchable_window(bridge).first == 0x2000000000);
  CHECK(prefetchable_window(bridge).length == 32768 * kMiB);
  put(0x24, 0xfff00000);  // 32 bits wide: the upper halves do not count
  CHECK(prefetchable_window(bridge).length == 4096 * kMiB);
  put(0x24, 0x0001fff1);
  put(0x2c, 0x1f);
  CHECK(prefetchable_window(bridge).length == 0);  // closed
}
