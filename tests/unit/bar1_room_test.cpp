// SPDX-License-Identifier: MIT
// Resources that Linux reassigns above a card whose BAR1 grows, and those that stay, as in drivers/pci/setup-bus.c.
#include "made_bus.hpp"

namespace p2pd {
extern const Probe kBar1Size;
extern const Probe kBridgeWindows;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr std::uint64_t kAt = 0x2000000000;  // a multiple of 64 GiB
const Function kSmall{.bar1 = 256 * kMiB};
const Function kTight{.window = 288 * kMiB};

/// Findings on the bus: the cause for the last GPU, and whether both steps of the plan hold.
struct Told {
  std::string cause;
  bool room;
  bool windows;
  std::string next;
};
Told told(MadeBus& bus) {
  const Finding size = bus.look(kBar1Size, {{"attainable", true}});
  const Finding windows = bus.look(kBridgeWindows);
  return {size.facts["gpus"].back()["cause"], size.holds(), windows.holds(), windows.next};
}

/// A root port and a switch, with `cards` small cards below it, in windows that hold just them.
void add_switch(MadeBus& bus, int cards, std::uint64_t uplink) {
  const int last = 2 + cards;
  bus.add({.address = "0000:00:01.0",
           .type = kRoot,
           .below = 1,
           .last_below = last,
           .vendor = 0x1022,
           .at = kAt,
           .window = uplink});
  bus.add({.address = "0000:01:00.0",
           .type = kUp,
           .below = 2,
           .last_below = last,
           .vendor = 0x1000,
           .at = kAt,
           .window = static_cast<std::uint64_t>(cards) * 512 * kMiB});
  for (int i = 0; i < cards; ++i) {
    const std::uint64_t at = kAt + static_cast<std::uint64_t>(i) * 512 * kMiB;
    bus.add({.address = fmt::format("0000:02:0{}.0", i),
             .type = kDown,
             .below = 3 + i,
             .last_below = 3 + i,
             .vendor = 0x1000,
             .at = at,
             .window = 288 * kMiB});
    bus.add({.address = fmt::format("0000:0{}:00.0", 3 + i), .bar1 = 256 * kMiB, .at = at});
  }
}

}  // namespace

TEST_CASE("bar1 room: windows that hold one card grow with it, as far as the root bus has room") {
  MadeBus bus;
  bus.add_slot(1, kSmall, kTight);
  bus.add_slot(2, kSmall, kTight);
  SECTION("the host bridge passes on a terabyte") {
    bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
    bus.iomem();
    const Told found = told(bus);
    CHECK(found.cause == "driver_option");
    CHECK((found.room && found.windows));
    CHECK(bus.look(kBridgeWindows).summary ==
          "all 2 bridges above the GPUs let BAR1 through at the size that it can have; Linux recreates 2 of them when "
          "the "
          "driver resizes it");
  }
  SECTION("it passes on what firmware handed out") {
    bus.no_room();
    bus.iomem();
    const Told found = told(bus);
    CHECK(found.cause == "firmware");
    CHECK_FALSE((found.room || found.windows));
    CHECK(contains(found.next, "Above 4G Decoding"));
  }
  SECTION("it has room for one of the two") {
    bus.range(kAt + 64 * kGiB, 32 * kGiB, "PCI Bus 0000:00");
    bus.range(kAt + 128 * kGiB, 288 * kMiB, "PCI Bus 0000:00");
    bus.iomem();
    CHECK(bus.look(kBar1Size).facts["gpus"][0]["cause"] == "driver_option");
    CHECK(told(bus).cause == "firmware");
  }
  SECTION("something else lies in the only place") {
    bus.range(kAt + 64 * kGiB, 32 * kGiB, "PCI Bus 0000:00");
    bus.range(kAt + 128 * kGiB, 288 * kMiB, "PCI Bus 0000:00");
    bus.range(kAt + 80 * kGiB, kMiB, "0000:00:02.0");
    bus.iomem();
    CHECK(bus.look(kBar1Size).facts["gpus"][0]["cause"] == "firmware");
  }
  SECTION("its addresses are hidden from this user, or not recorded") {
    if (GENERATE(false, true)) bus.iomem(true);
    const Told found = told(bus);
    CHECK(found.cause == "room_unknown");
    CHECK_FALSE((found.room || found.windows));
    CHECK(contains(found.next, "as root"));
  }
}

TEST_CASE("bar1 room: a window that holds something else stays as it is") {
  MadeBus bus;
  std::string cause = "window";
  const char* fixed = "0000:01:00.0";  // the upstream port
  SECTION("another card below the switch") { add_switch(bus, 2, 2 * kGiB); }
  SECTION("the switch's own BAR, in the window of the root port") {
    add_switch(bus, 1, 2 * kGiB);
    bus.range(kAt + kGiB, 8 * kMiB, "0000:01:00.0");
    fixed = "0000:00:01.0";
  }
  SECTION("the switch's own BAR, and firmware left room there") {
    add_switch(bus, 1, 64 * kGiB);
    bus.range(kAt + kGiB, 8 * kMiB, "0000:01:00.0");
    cause = "driver_option";
  }
  SECTION("nothing else: it grows at every level") {
    add_switch(bus, 1, 2 * kGiB);
    cause = "driver_option";
  }
  bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
  bus.iomem();
  const Told found = told(bus);
  CHECK(found.cause == cause);
  CHECK(found.room == (cause == "driver_option"));
  CHECK(found.windows == found.room);
  if (!found.room)
    CHECK(contains(bus.look(kBridgeWindows).summary, fmt::format("the window of {} holds other functions", fixed)));
}

TEST_CASE("bar1 room: a BAR1 without an address is what pci=realloc is for") {
  MadeBus bus;
  bus.add_slot(1, {.bar1 = 0}, {.window = 0});
  bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
  bus.iomem();
  const Told found = told(bus);
  CHECK(found.cause == "no_address");
  CHECK(found.room);
  CHECK_FALSE(found.windows);
  CHECK(contains(found.next, "pci=realloc"));
}

TEST_CASE("bar1-room: registers of virtual functions stay, and pin the window") {
  for (const bool virtual_functions : {false, true}) {
    CAPTURE(virtual_functions);
    MadeBus bus;
    bus.add_slot(1, kSmall, kTight);
    bus.add_slot(2);
    bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
    if (virtual_functions) bus.range(kAt + 64 * kGiB + 256 * kMiB, 16 * kMiB, "0000:01:00.0");
    bus.iomem();
    const Finding size = bus.look(kBar1Size, {{"attainable", true}});
    CHECK(size.facts["gpus"][0]["cause"] == (virtual_functions ? "window" : "driver_option"));
    const Finding windows = bus.look(kBridgeWindows);
    CHECK(windows.holds() == !virtual_functions);
    CHECK(contains(windows.summary, "0000:00:01.0 holds other functions or registers") == virtual_functions);
  }
}

TEST_CASE("bar1-room: the kernel's own word that there is no space counts more than the tree of resources") {
  struct Row {
    const char* record;
    bool refused;
  };
  for (const Row& row :
       {Row{"pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space", true},
        Row{"nvidia 0000:01:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]", true},
        Row{"pci 0000:01:00.0: BAR 1 [mem size 0x400000000 64bit pref]: can't assign; no space", true},
        Row{"pci 0000:01:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space",
            false},  // more than needed
        Row{"pci 0000:01:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space", false},  // has it since
        Row{"pci 0000:02:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space", false},
        Row{"pci 0000:01:00.0: BAR 3 [mem size 0x800000000 64bit pref]: can't assign; no space", false},
        Row{"pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: assigned", false},
        Row{"x[1]: segfault pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space",
            false}}) {
    CAPTURE(row.record);
    MadeBus bus;
    bus.add_slot(1, kSmall, kTight);
    bus.add_slot(2);
    bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
    bus.iomem();
    bus.file("dev/kmsg", fmt::format("6,1,1000,-;Linux version 6.8.0\n6,339,5140900,-;{}\n", row.record));
    const Finding size = bus.look(kBar1Size, {{"attainable", true}});
    CHECK(size.facts["gpus"][0]["cause"] == (row.refused ? "refused" : "driver_option"));
    CHECK(size.holds() == !row.refused);
    CHECK_FALSE(size.impossible);
    const Finding windows = bus.look(kBridgeWindows);
    CHECK(windows.holds() == !row.refused);
    CHECK(contains(windows.summary, "Linux has tried, and found no space") == row.refused);
  }
}

TEST_CASE("bar1-room: a BAR1 without an address is not refused before Linux has looked for one") {
  MadeBus bus;
  Function none = kSmall;
  none.bar1 = 0;
  bus.add_slot(1, none, {.window = 0});
  bus.add_slot(2);
  bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
  bus.iomem();
  bus.file("dev/kmsg",
           "6,339,5140900,-;pci 0000:01:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space\n");
  CHECK(bus.look(kBar1Size).facts["gpus"][0]["cause"] == "no_address");
  bus.file("proc/cmdline", "ro quiet pci=realloc\n");
  CHECK(bus.look(kBar1Size).facts["gpus"][0]["cause"] == "refused");
}
