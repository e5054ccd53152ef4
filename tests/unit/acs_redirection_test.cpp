// SPDX-License-Identifier: MIT
#include "made_bus.hpp"

namespace p2pd {
extern const Probe kAcsRedirection;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Two cards below one switch, 03 and 04, and one in a slot of its own, 05, if wanted.
void add_switch(MadeBus& bus, int root_acs, int down_acs, bool third) {
  bus.add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 4, .vendor = 0x1022, .acs = root_acs});
  bus.add({.address = "0000:01:00.0", .type = kUp, .below = 2, .last_below = 4, .vendor = 0x1000, .acs = 0x1d});
  for (int i = 0; i < 2; ++i) {
    bus.add({.address = fmt::format("0000:02:0{}.0", i),
             .type = kDown,
             .below = 3 + i,
             .last_below = 3 + i,
             .vendor = 0x1000,
             .acs = down_acs});
    bus.add({.address = fmt::format("0000:0{}:00.0", 3 + i)});
  }
  if (third) bus.add_slot(5, {}, {.acs = 0});
}

nlohmann::json array(std::initializer_list<const char*> items) {
  return nlohmann::json(std::vector<std::string>(items.begin(), items.end()));
}

}  // namespace

TEST_CASE("acs-redirection: machine records") {
  for (const auto& [machine, verdict, redirecting] :
       std::vector<std::tuple<const char*, Verdict, std::size_t>>{{"h200-x4-vm", Verdict::not_applicable, 0},
                                                                  {"rtx4090-x2-acs-elsewhere", Verdict::pass, 0},
                                                                  {"rtx4090-x2-switch-acs", Verdict::fail, 2},
                                                                  {"no-gpu", Verdict::not_applicable, 0},
                                                                  {"one-4090", Verdict::not_applicable, 0},
                                                                  {"rtx3090-x4-epyc", Verdict::fail, 4},
                                                                  {"rtx4090-x2-am5", Verdict::fail, 2},
                                                                  {"rtx4090-x2-rebar-off", Verdict::pass, 0},
                                                                  {"rtx4090-x8-two-socket", Verdict::fail, 10},
                                                                  {"rtx5090-x2-genoa", Verdict::fail, 2}}) {
    CAPTURE(machine);
    const Finding finding = MadeBus::recorded(kAcsRedirection, machine);
    CHECK(finding.verdict == verdict);
    CHECK(finding.facts["redirecting"].size() == redirecting);
    CHECK(finding.next.empty() == (verdict != Verdict::fail));
  }
}

TEST_CASE("acs-redirection: only ports at which a pair parts count") {
  MadeBus bus;
  SECTION("below one switch, the port above it does not") {
    add_switch(bus, 0x1d, 0x01, false);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::pass);
    CHECK(finding.facts["ports"].size() == 2);
    CHECK(finding.facts["ports"][0]["kind"] == "switch");
    CHECK(finding.facts["ports"][0]["harmless"] == array({"source_validation"}));
  }
  SECTION("with a card elsewhere, it does") {
    add_switch(bus, 0x1d, 0x01, true);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.facts["redirecting"] == array({"0000:00:01.0"}));
    CHECK(finding.facts["ports"][0]["pairs"] == 2);
    CHECK(finding.facts["ports"][0]["kind"] == "root");
    CHECK(contains(finding.summary, "through the IOMMU"));
    CHECK(contains(finding.next, "pci=disable_acs_redir=0000:00:01.0\""));
  }
  SECTION("ports of the switch") {
    add_switch(bus, 0, 0x1d, false);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.facts["redirecting"] == array({"0000:02:00.0", "0000:02:01.0"}));
    CHECK(contains(finding.summary, "leaves the switch"));
    CHECK(contains(finding.next, "disable_acs_redir=0000:02:00.0;0000:02:01.0"));
    CHECK(contains(finding.next, "virtual machine"));
  }
}

TEST_CASE("acs-redirection: which bits redirect") {
  for (const auto& [bit, redirects] : std::vector<std::pair<int, bool>>{{0x01, false},
                                                                        {0x02, false},
                                                                        {0x04, true},
                                                                        {0x08, true},
                                                                        {0x10, false},
                                                                        {0x20, true},
                                                                        {0x40, false},
                                                                        {0x53, false}}) {
    CAPTURE(bit);
    MadeBus bus;
    bus.add_slot(1, {}, {.acs = bit});
    bus.add_slot(2, {}, {.acs = 0});
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == (redirects ? Verdict::fail : Verdict::pass));
    CHECK(finding.facts["ports"][0]["control"] == fmt::format("0x{:04x}", bit));
    CHECK(finding.facts["ports"][0][redirects ? "harmless" : "redirecting"].empty());
    CHECK_FALSE(finding.facts["ports"][0][redirects ? "redirecting" : "harmless"].empty());
  }
}

TEST_CASE("acs-redirection: absent is fine, unreadable is not") {
  MadeBus bus;
  bus.add_slot(1);
  bus.add_slot(2);
  const Finding none = bus.look(kAcsRedirection);
  CHECK(none.verdict == Verdict::pass);
  CHECK(none.facts["ports"][0]["control"].is_null());
  CHECK(none.evidence[0].value == "no such capability");

  bus.add_slot(3, {}, {.bytes = 256});
  const Finding finding = bus.look(kAcsRedirection);
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(contains(finding.summary, "0000:00:03.0"));
  CHECK(contains(finding.next, "as root"));

  bus.add_slot(4, {}, {.acs = 0x0c});
  CHECK(bus.look(kAcsRedirection).verdict == Verdict::fail);

  const TemporaryDirectory empty;
  CHECK_FALSE(MadeBus::look_at(kAcsRedirection, empty.path()));
}
