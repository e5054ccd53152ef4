// SPDX-License-Identifier: MIT
#include <random>

#include "made_bus.hpp"

namespace p2pd {
extern const Probe kAcsRedirection;
extern const Probe kBar1Size;
extern const Probe kBridgeWindows;
extern const Probe kPcieLinks;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("pcie-links: machine records") {
  for (const auto& [machine, verdict, links] :
       std::vector<std::tuple<const char*, Verdict, std::size_t>>{{"h200-x4-vm", Verdict::pass, 4},
                                                                  {"rtx4090-x2-link-x4", Verdict::pass, 2},
                                                                  {"rtx4090-x2-gen1-slot", Verdict::fail, 2},
                                                                  {"rtx4090-x2-lost-card", Verdict::unknown, 2},
                                                                  {"no-gpu", Verdict::not_applicable, 0},
                                                                  {"one-4090", Verdict::not_applicable, 0},
                                                                  {"rtx3090-x4-epyc", Verdict::pass, 4},
                                                                  {"rtx4090-x2-am5", Verdict::pass, 2},
                                                                  {"rtx4090-x2-rebar-off", Verdict::pass, 2},
                                                                  {"rtx4090-x8-two-socket", Verdict::pass, 10},
                                                                  {"rtx5090-x2-genoa", Verdict::pass, 2}}) {
    CAPTURE(machine);
    const Finding finding = MadeBus::recorded(kPcieLinks, machine);
    CHECK(finding.verdict == verdict);
    CHECK(finding.evidence.size() == links);
  }
  const Finding eight = MadeBus::recorded(kPcieLinks, "rtx4090-x8-two-socket");
  CHECK(eight.facts["pairs"].size() == 28);
  CHECK(eight.facts["pairs"][0]["kind"] == "pcie_switch");
  CHECK(contains(eight.summary, "8 at a lower speed now"));
}

TEST_CASE("pcie-links: lanes that did not train are a warning with the price, a narrow slot is a fact") {
  MadeBus bus;
  bus.add_slot(1, {.width = 4}, {.width = 4, .width_most = 4});
  bus.add_slot(2);
  const Finding slot = bus.look(kPcieLinks);
  CHECK(slot.verdict == Verdict::pass);
  CHECK(contains(slot.summary, "narrowest x4 at 0000:01:00.0"));
  CHECK(slot.facts["links"][0]["max_payload_bytes"] == 256);

  bus.add_slot(3, {.width = 8}, {.width = 8});
  const Finding riser = bus.look(kPcieLinks);
  CHECK(riser.verdict == Verdict::pass);  // P2P works there, at a part of the rate
  CHECK(riser.summary ==
        "fewer lanes than both ends support: 0000:03:00.0 runs x8 of x16, 15.8 of 31.5 GB/s; reseat the card, or try "
        "another slot or riser; 3 at a lower speed now, as idle GPUs do; host bridge 1022:2684 (AMD Zen)");
  CHECK(riser.facts.value("warnings", nlohmann::json()).size() == 1);  // doctor shows it
  CHECK_FALSE(slot.facts.contains("warnings"));
  CHECK(riser.facts["links"][2]["upper"] == "0000:00:03.0");
}

TEST_CASE("pcie-links: the host bridges between the GPUs are named, with what is known of them") {
  struct Row {
    std::uint32_t id;  ///< device and vendor of 00:00.0
    const char* says;
    std::size_t warnings;
  };
  for (const Row& row :
       {Row{0x14801022, "; host bridge 1022:1480 (AMD Zen)", 0},
        Row{0x20208086, "; host bridge 8086:2020 (Intel Xeon, Skylake-E)", 0},
        Row{0x2f018086, "; host bridge 8086:2f01 (Intel Haswell-E, X99)", 0},  // one: what Linux asks for
        Row{0x46688086, "; host bridge 8086:4668 (Intel Alder Lake-S), not in Linux's list for peer traffic", 1},
        Row{0x46608086, "; host bridge 8086:4660, not in Linux's list for peer traffic", 0}}) {
    MadeBus bus;
    bus.add({.address = "0000:00:00.0"}, {{0x00, row.id}, {0x08, 0x06000000}});
    bus.add_slot(1);
    bus.add_slot(2);
    const Finding finding = bus.look(kPcieLinks);
    CAPTURE(finding.summary);
    CHECK(finding.verdict == Verdict::pass);
    CHECK(contains(finding.summary, row.says));
    CHECK(finding.facts["host_bridges"].size() == 1);
    CHECK(finding.facts.value("warnings", nlohmann::json::array()).size() == row.warnings);
  }
  const Finding below_switch = MadeBus::recorded(kPcieLinks, "rtx4090-x2-switch-acs");
  CHECK(below_switch.facts["host_bridges"].empty());
  const Finding raptor = MadeBus::recorded(kPcieLinks, "rtx4090-x2-vtd-strict");
  CHECK(raptor.facts["host_bridges"][0]["linux"] == "no");
  CHECK(
      contains(raptor.facts["warnings"][0].get<std::string>(), "host bridge 8086:a700 (Intel Raptor Lake-S): vLLM's"));
}

TEST_CASE("pcie-links: Haswell-E is in Linux's list for traffic through one host bridge, not between two") {
  MadeBus bus;
  for (const int root : {0, 0x40}) {
    bus.add({.address = fmt::format("0000:{:02x}:00.0", root)}, {{0x00, 0x2f018086}, {0x08, 0x06000000}});
    bus.add({.address = fmt::format("0000:{:02x}:01.0", root),
             .type = kRoot,
             .below = root + 1,
             .last_below = root + 1,
             .vendor = 0x8086});
    bus.add({.address = fmt::format("0000:{:02x}:00.0", root + 1)});
  }
  const Finding finding = bus.look(kPcieLinks);
  CHECK(finding.facts["host_bridges"].size() == 2);
  CHECK(contains(finding.summary, "8086:2f01 (Intel Haswell-E, X99), not in Linux's list"));
}

TEST_CASE("pcie-links: the link of a switch counts, too") {
  MadeBus bus;
  bus.add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 3, .vendor = 0x1022, .generation = 4});
  bus.add({.address = "0000:01:00.0",
           .type = kUp,
           .below = 2,
           .last_below = 3,
           .vendor = 0x1000,
           .width = 8,
           .generation = 4});
  bus.add({.address = "0000:02:00.0", .type = kDown, .below = 3, .last_below = 3, .vendor = 0x1000, .generation = 4});
  bus.add({.address = "0000:03:00.0", .generation = 4});
  bus.add_slot(5, {.generation = 4});
  const Finding finding = bus.look(kPcieLinks);
  CHECK(finding.verdict == Verdict::pass);
  CHECK(contains(finding.summary, "0000:01:00.0 runs x8 of x16, 15.8 of 31.5 GB/s"));
}

TEST_CASE("pcie-links: what cannot be read is unknown") {
  MadeBus bus;
  bus.add_slot(1);
  SECTION("by a user") { bus.add_slot(2, {.bytes = 64}); }
  SECTION("because it fell off the bus") { bus.add_slot(2, {.lost = true}); }
  SECTION("because it makes no sense") { bus.add_slot(2, {.width = 0}); }
  const Finding finding = bus.look(kPcieLinks);
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(contains(finding.summary, "0000:02:00.0 is not readable"));
  CHECK(contains(finding.next, "as root"));
}

TEST_CASE("pcie probes: no bytes crash them, hang them or make them pass all the time") {
  std::mt19937 random(11);
  std::size_t passes = 0, looks = 0;
  for (int round = 0; round < 60; ++round) {
    MadeBus bus;
    for (int i = 1; i <= 6; ++i) {
      const auto any = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
      bus.add({.address = fmt::format("0000:{:02x}:00.0", i),
               .type = any(8),
               .below = any(9),
               .last_below = any(9),
               .width = any(33),
               .width_most = any(33),
               .acs = any(256),
               .bar1 = kMiB << any(40),
               .at = kMiB << any(40),
               .window = kMiB << any(40),
               .sizes = {kMiB << any(20)},
               .bytes = i % 3 == 0 ? 256U : 4096U});
    }
    for (const Probe* probe : {&kAcsRedirection, &kBar1Size, &kBridgeWindows, &kPcieLinks}) {
      const auto finding = bus.try_look(*probe);
      REQUIRE(finding);
      CHECK_FALSE(finding->summary.empty());
      CHECK((finding->verdict != Verdict::fail || !finding->next.empty()));
      passes += finding->verdict == Verdict::pass ? 1U : 0U;
      ++looks;
    }
  }
  CHECK(passes < looks / 2);
}
