// SPDX-License-Identifier: MIT
// PCI listings that people posted, as the configuration space and sysfs behind them: p2pd reads no text of lspci.
#include "made_bus.hpp"

namespace p2pd {
extern const Probe kAcsRedirection;
extern const Probe kBar1Size;
extern const Probe kBridgeWindows;
extern const Probe kGpuInventory;
extern const Probe kIommu;
extern const Probe kPcieLinks;
extern const Probe kVirtualization;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

Function port(const std::string& address, int type, int below, int last, std::uint16_t vendor = 0x1022) {
  return {.address = address, .type = type, .below = below, .last_below = last, .vendor = vendor};
}

constexpr std::uint64_t kPiWindow = 0x600000000;
constexpr std::uint16_t k3090 = 0x2204, k5090 = 0x2b85;
const Function kSmall{.bar1 = 256 * kMiB};

/// A switch at bus 1 with an RTX 4090 at 03, in windows for 256 MiB; the root bus has a terabyte.
void add_arc(MadeBus& bus, bool own_bar) {
  constexpr std::uint64_t kAt = 0x2000000000;
  Function root = port("0000:00:01.0", kRoot, 1, 3), up = port("0000:01:00.0", kUp, 2, 3, 0x8086);
  Function down = port("0000:02:01.0", kDown, 3, 3, 0x8086);
  root.window = 512 * kMiB;
  up.window = down.window = 288 * kMiB;
  for (const Function& one : {root, up, down}) bus.add(one);
  bus.add({.address = "0000:03:00.0", .bar1 = 256 * kMiB});
  bus.range(kAt, 1024 * kGiB, "PCI Bus 0000:00");
  if (own_bar) {
    bus.resource("0000:01:00.0", fmt::format("{:#x} {:#x} 0x14220c\n", kAt + 504 * kMiB, kAt + 512 * kMiB - 1));
    bus.range(kAt + 504 * kMiB, 8 * kMiB, "0000:01:00.0");
  }
  bus.iomem();
}

/// A switch of two RTX 3090: its upstream port on `bus`, downstream ports 08.0 and 10.0.
void add_plx(MadeBus& made, int bus) {
  constexpr std::uint16_t kPlx = 0x10b5;
  made.add(port(fmt::format("0000:00:{:02x}.0", bus), kRoot, bus, bus + 3, 0x8086));
  made.add(port(fmt::format("0000:{:02x}:00.0", bus), kUp, bus + 1, bus + 3, kPlx));
  for (int i = 0; i < 2; ++i) {
    made.add(
        port(fmt::format("0000:{:02x}:{}.0", bus + 1, i == 0 ? "08" : "10"), kDown, bus + 2 + i, bus + 2 + i, kPlx));
    made.add({.address = fmt::format("0000:{:02x}:00.0", bus + 2 + i), .device = k3090});
  }
}

/// A card with a small BAR1 below a port that has no room for more.
std::vector<BusCase> small_windows() {
  Function tight = port("0000:00:01.0", kRoot, 1, 1, 0x14e4);
  tight.at = kPiWindow;
  tight.window = 288 * kMiB;
  return {
      {"4090-raspberrypi-disabled-bars",  // placed, decoding off (command register 0), no I/O ports
       [tight](MadeBus& bus) {
         bus.add(tight);
         bus.add({.address = "0000:01:00.0", .bar1 = 256 * kMiB, .at = kPiWindow});
         bus.resource("0000:01:00.0", fmt::format("0x610000000 0x610ffffff 0x40200\n{:#x} {:#x} 0x14220c\n0x0 0x0 0x0\n"
                                                  "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x7f 0x20040101\n",
                                                  kPiWindow, kPiWindow + 256 * kMiB - 1));
         bus.no_room();
         bus.iomem();
       },
       {{&kGpuInventory, Verdict::fail, "1 x NVIDIA GeForce RTX 4090; at least 2"},
        {&kBar1Size, Verdict::fail, "has 256 MiB of BAR1 for 24576 MiB", "Above 4G Decoding"},
        {&kBridgeWindows, Verdict::fail, "0000:00:01.0 lets 288 MiB through, 32768 MiB are needed"}}},
      {"the same, sized and not placed",
       [tight](MadeBus& bus) {
         bus.add(tight);
         bus.add({.address = "0000:01:00.0", .bar1 = 256 * kMiB});
         bus.resource("0000:01:00.0", "0x0 0xffffff 0x20040200\n0x0 0xfffffff 0x2014220c\n");
         bus.no_room();
         bus.iomem();
       },
       {{&kBar1Size, Verdict::fail, "has 0 MiB of BAR1 for 24576 MiB", "Above 4G Decoding"}}},
  };
}

}  // namespace

TEST_CASE("PCI cases: Resizable BAR") {
  const auto two = [](const Function& gpu) {
    return [gpu](MadeBus& bus) {
      bus.add_slot(1, gpu);
      bus.add_slot(2, gpu);
    };
  };
  Function silent = kSmall;
  silent.sizes = {};
  check({
      {"4090-32G-bar-v-access-denied",
       [](MadeBus& bus) {
         for (const int slot : {1, 2}) bus.add_slot(slot, {.bytes = 64}, {.bytes = 64});
       },
       {{&kBar1Size, Verdict::pass, "BAR1 covers the VRAM"},
        {&kAcsRedirection, Verdict::unknown, "not readable for this user", "as root"},
        {&kPcieLinks, Verdict::unknown, "is not readable", "as root"}}},
      {"pciutils-cap-rebar",  // the same list of capabilities, on a test's card: it is found among others
       [](MadeBus& bus) {
         const std::vector<std::pair<std::size_t, std::uint32_t>> list = {{0x100, 0x27010001}, {0x270, 0x2b010019},
                                                                          {0x2b0, 0x2c01000f}, {0x2c0, 0x2d010013},
                                                                          {0x2d0, 0x3281001b}, {0x328, 0x2001000e}};
         bus.add(port("0000:00:01.0", kRoot, 1, 1));
         bus.add({.address = "0000:01:00.0", .bar1 = 256 * kMiB}, list);
         bus.add({.address = "0000:02:00.0", .vendor = 0x1002, .device = 0x7300}, list);
       },
       {{&kBar1Size, Verdict::fail, "it was not resized", "NVreg_EnableResizableBar=1"},
        {&kGpuInventory, Verdict::fail, "1 x NVIDIA GeForce RTX 4090; at least 2"}}},
      {"rebar-no-supported-list-vs-list",
       two(silent),
       {{&kBar1Size, Verdict::fail, "its vBIOS offers only smaller sizes", "Update the vBIOS"}}},
      {"rebar-no-supported-list-vs-list (fixed)",
       two(kSmall),
       {{&kBar1Size, Verdict::fail, "it was not resized", "NVreg_EnableResizableBar=1"}}},
      {"4x3090-rebar-32G-grep-context",
       [](MadeBus& bus) {
         for (const int slot : {1, 2, 3, 4}) bus.add_slot(slot, {.device = k3090});
       },
       {{&kBar1Size, Verdict::pass, "has 32768 MiB of BAR1 for 24576 MiB of VRAM, and 3 more like it"}}},
      {"nvidia-smi-bar1-256MiB-4x3090",
       [](MadeBus& bus) {
         for (const int slot : {1, 2, 3, 4})
           bus.add_slot(slot, {.device = k3090, .bar1 = 256 * kMiB}, {.window = 288 * kMiB});
         bus.no_room();
         bus.iomem();
       },
       {{&kBar1Size, Verdict::fail, "has 256 MiB of BAR1 for 24576 MiB of VRAM, and 3 more", "Resizable BAR"}}},
  });
  check(small_windows());
}

TEST_CASE("PCI cases: what shares a window") {
  check({
      {"arc-a380-behind-switch-rebar-window-conflict",
       [](MadeBus& bus) { add_arc(bus, true); },
       {{&kBridgeWindows, Verdict::fail, "the window of 0000:00:01.0 holds other functions", "Above 4G Decoding"},
        {&kBar1Size, Verdict::fail, "the window of a bridge above is too small and shared", "another slot"}}},
      {"the same without the switch's own BAR",
       [](MadeBus& bus) { add_arc(bus, false); },
       {{&kBridgeWindows, Verdict::pass, "Linux recreates 3 of them"}}},
  });
}

TEST_CASE("PCI cases: what a GPU is") {
  check({
      {"nn-4x-rtxpro6000-server-3d-controller",
       [](MadeBus& bus) {
         for (const int slot : {1, 2, 3, 4}) bus.add_slot(slot, {.device = 0x2bb5, .kind = 0x0302});
         bus.add({.address = "0000:c8:00.0", .vendor = 0x1a03, .device = 0x2000, .resizable = false});
       },
       {{&kGpuInventory, Verdict::pass, "4 x NVIDIA RTX PRO 6000 Blackwell Server Edition"},
        {&kBar1Size, Verdict::not_applicable, "this card has P2P without a patched driver"}}},
      {"a4000-arm-domain-0004-iommu-group",
       [](MadeBus& bus) {
         bus.add(port("0004:00:01.0", kRoot, 1, 1, 0x1def));
         bus.add({.address = "0004:01:00.0", .device = 0x24b0, .bar1 = 256 * kMiB, .at = 0x380000000000});
         bus.group("0004:01:00.0", "DMA");
       },
       {{&kGpuInventory, Verdict::fail, "1 x NVIDIA RTX A4000; at least 2"},
        {&kBar1Size, Verdict::not_applicable, "0004:01:00.0 has 256 MiB"},
        {&kIommu, Verdict::fail, "the IOMMU translates for 0004:01:00.0 (DMA)", "iommu=pt"}}},
      {"arc-a750-pi5-256M",
       [](MadeBus& bus) {
         bus.add(port("0001:00:00.0", kRoot, 1, 1, 0x14e4));
         bus.add({.address = "0001:01:00.0", .vendor = 0x8086, .device = 0x56a1, .width = 1, .bar1 = 256 * kMiB});
       },
       {{&kGpuInventory, Verdict::fail, "no NVIDIA GPU on the PCI bus"},
        {&kPcieLinks, Verdict::not_applicable, "fewer than two NVIDIA GPUs"}}},
      {"5090-5090-host-and-guest-names",  // by id, whatever pci.ids has
       [](MadeBus& bus) {
         for (const int slot : {1, 2}) bus.add_slot(slot, {.device = k5090});
         bus.add({.address = "0000:0e:00.0", .vendor = 0x1002, .device = 0x164e, .resizable = false});
         bus.file("proc/cpuinfo", "flags\t\t: fpu vme\n");
       },
       {{&kGpuInventory, Verdict::pass, "2 x NVIDIA GeForce RTX 5090"},
        {&kVirtualization, Verdict::pass, "on bare metal"}}},
      {"5090-5090-host-and-guest-names (guest)",
       [](MadeBus& bus) {
         bus.add({.address = "0000:00:01.0", .vendor = 0x1b36, .device = 0x0100, .resizable = false});
         bus.add({.address = "0000:00:05.0", .device = k5090});
         bus.add({.address = "0000:00:06.0", .device = k5090});
         bus.file("proc/cpuinfo", "flags\t\t: fpu hypervisor vme\n");
       },
       {{&kGpuInventory, Verdict::pass, "2 x NVIDIA GeForce RTX 5090"},
        {&kVirtualization, Verdict::fail, "drivers refuse P2P behind its emulated chipset", "x-nv-gpudirect-clique"}}},
      {"3090-nnk-wrapped-in-report",
       [](MadeBus& bus) { bus.add_slot(1, {.device = k3090}); },
       {{&kGpuInventory, Verdict::fail, "1 x NVIDIA GeForce RTX 3090; at least 2"}}},
  });
}

TEST_CASE("PCI cases: trees and links") {
  check({
      {"tree-2x5090-am5-lspci-t",
       [](MadeBus& bus) {
         bus.add_slot(1, {.device = k5090});
         bus.add_slot(3, {.device = k5090});
         bus.add(port("0000:00:08.0", kRoot, 8, 11));
         bus.add(port("0000:08:00.0", kUp, 9, 11));  // the chipset
         bus.add(port("0000:09:00.0", kDown, 10, 10));
         bus.add({.address = "0000:0a:00.0", .vendor = 0x10ec, .device = 0x8125, .kind = 0x0200, .resizable = false});
       },
       {{&kPcieLinks, Verdict::pass, "2 links at their full width, the narrowest x16"},
        {&kAcsRedirection, Verdict::pass, "none of the 2 ports"}}},
      {"topo-m-4gpu-phb-fedora",
       [](MadeBus& bus) {
         for (const int slot : {1, 2, 3, 4}) bus.add_slot(slot);
       },
       {{&kPcieLinks, Verdict::pass, "4 links at their full width"}}},
      {"plx-pex8747-list",
       [](MadeBus& bus) {
         add_plx(bus, 2);
         add_plx(bus, 6);
       },
       {{&kGpuInventory, Verdict::pass, "4 x NVIDIA GeForce RTX 3090"},
        {&kAcsRedirection, Verdict::pass, "none of the 6 ports"}}},
      {"tree-2x5090-alder-lake-x1-slot",
       [](MadeBus& bus) {
         bus.add_slot(1, {.device = k5090});
         bus.add_slot(5, {.device = k5090, .width = 1}, {.width = 1, .width_most = 1});
       },
       {{&kPcieLinks, Verdict::pass, "the narrowest x1 at 0000:05:00.0"}}},
  });
  MadeBus slots;
  for (const int slot : {1, 2, 3, 4}) slots.add_slot(slot);
  const Finding links = slots.look(kPcieLinks);
  for (const auto& pair : links.facts["pairs"]) CHECK(pair["topology"] == "PHB");
  MadeBus plx;
  add_plx(plx, 2);
  CHECK(plx.look(kPcieLinks).facts["pairs"][0]["kind"] == "pcie_switch");
  CHECK(plx.look(kPcieLinks).facts["pairs"][0]["topology"] == "PIX");
}

TEST_CASE("PCI cases: ACS") {
  const auto slots = [](const std::vector<int>& controls) {
    return [controls](MadeBus& bus) {
      for (std::size_t i = 0; i < controls.size(); ++i) bus.add_slot(static_cast<int>(i) + 1, {}, {.acs = controls[i]});
    };
  };
  // at 0x140 behind AER, every service supported and none on, then L1 substates and secondary PCI Express
  const std::vector<std::pair<std::size_t, std::uint32_t>> root = {
      {0x100, 0x14020001}, {0x140, 0x2001000d}, {0x144, 0x0000000f}, {0x200, 0x2201001e}, {0x220, 0x00010019}};
  const auto intel = [&](MadeBus& bus, std::uint32_t acs) {
    auto patches = root;
    patches[2].second = acs;
    for (const int slot : {1, 2}) {
      bus.add(port(fmt::format("0000:00:0{}.0", slot), kRoot, slot, slot, 0x8086), patches);
      bus.add({.address = fmt::format("0000:0{}:00.0", slot)});
    }
  };
  check({
      {"pciutils-cap-exp-dev2-rootport-acs",
       [&](MadeBus& bus) { intel(bus, 0x0000000f); },
       {{&kAcsRedirection, Verdict::pass, "none of the 2 ports"}}},
      {"the same, redirecting",
       [&](MadeBus& bus) { intel(bus, 0x000c000f); },
       {{&kAcsRedirection, Verdict::fail, "2 of 2 ports", "disable_acs_redir=0000:00:01.0;0000:00:02.0"}}},
      {"pciutils-cap-pcie-2",  // an endpoint's own ACS is on no path between two GPUs
       [&](MadeBus& bus) {
         intel(bus, 0);
         bus.add(port("0000:00:03.0", kRoot, 3, 3, 0x8086));
         bus.add(
             {.address = "0000:03:00.0", .vendor = 0x8086, .device = 0x10c9, .kind = 0x0200, .resizable = false},
             {{0x100, 0x15010001}, {0x150, 0x1601000e}, {0x160, 0x1d010010}, {0x1d0, 0x0001000d}, {0x1d4, 0x001d005f}});
       },
       {{&kAcsRedirection, Verdict::pass, "none of the 2 ports"}}},
      {"acsctl-grep-redirect-on",
       slots({0x1d, 0, 0x1d, 0x01}),
       {{&kAcsRedirection, Verdict::fail, "ACS redirect is enabled on 2 of 4 ports",
         "disable_acs_redir=0000:00:01.0;0000:00:03.0"}}},
  });
  MadeBus bus;
  intel(bus, 0x0000000f);
  CHECK(bus.look(kAcsRedirection).evidence[0].value == "control 0x0000");
}
