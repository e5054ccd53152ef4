// SPDX-License-Identifier: MIT
// Assessment of a plan: the state of each step, the best explanation, and the overall result.
#include "plan/assess.hpp"

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Steps that hold, cannot be fixed, make a proof dangerous, have an unknown result, do not apply, or want a reboot.
struct Facts {
  std::set<std::string> holds = {}, impossible = {}, dangerous = {}, unknown = {}, no_matter = {}, reboot = {};
};

struct Assessed {
  Plan plan;
  Assessment seen;
  std::string kind(const std::string& id) const {
    for (const Standing& s : seen.steps)
      if (s.step->id == id) return std::string(to_string(s.kind));
    return "";
  }
  std::string outlook() const { return std::string(to_string(seen.outlook())); }
  std::string cause() const { return seen.root_cause() == nullptr ? "" : seen.root_cause()->step->id; }
};

Assessed assessed(const std::string& yaml, const Facts& facts) {
  Assessed out{parse_plan(yaml, "p.yaml", World::registry()).value(), {}};
  const Registry words = World::registry();
  out.seen = assess(out.plan, words, [&](const Step& step) {
    Finding finding;
    finding.verdict = facts.unknown.contains(step.id)     ? Verdict::unknown
                      : facts.holds.contains(step.id)     ? Verdict::pass
                      : facts.no_matter.contains(step.id) ? Verdict::not_applicable
                                                          : Verdict::fail;
    if (facts.reboot.contains(step.id)) finding.facts["reboot"] = true;
    finding.summary = step.id;
    finding.impossible = facts.impossible.contains(step.id);
    if (facts.dangerous.contains(step.id)) finding.danger = "it burns";
    return finding;
  });
  return out;
}

}  // namespace

TEST_CASE("assess: a goal that can be tried, and what keeps it from that") {
  const std::string plan = plan_of({"a:live", "told", "p:proof after told"});
  CHECK(assessed(plan, {.holds = {"a", "told"}}).outlook() == "provable");
  CHECK(assessed(plan, {.holds = {"told"}}).outlook() == "provable");  // a matters only if the proof fails
  CHECK(assessed(plan, {.holds = {"told"}, .dangerous = {"a"}}).outlook() == "fixable");
  CHECK(assessed(plan, {.holds = {"a"}}).outlook() == "person");
  CHECK(assessed(plan, {.holds = {"told"}}).kind("p") == "untried");
  const Assessed failing = assessed(plan_of({"a:live", "b", "told", "p:proof after told"}), {.holds = {"told"}});
  CHECK(failing.outlook() == "provable");
  CHECK(failing.seen.for_a_person().empty());
  CHECK(to_string(failing.seen.reboots(World::registry())) == "0");
}

TEST_CASE(
    "assess: a reboot is expected where a change needs one, and may be where a change is tried without it first") {
  const auto reboots = [](const std::vector<std::string>& steps, const Facts& facts) {
    return to_string(assessed(plan_of(steps), facts).seen.reboots(World::registry()));
  };
  const std::vector<std::string> steps = {"boot:boot", "unload:reboot", "told", "p:proof after unload"};
  CHECK(reboots(steps, {.holds = {"boot", "told"}}) == "0 or 1");
  CHECK(reboots(steps, {.holds = {"told"}}) == "1");
  CHECK(reboots(steps, {.holds = {"unload", "told"}}) == "0");
  CHECK(reboots(steps, {.holds = {"boot", "told"}, .reboot = {"unload"}}) == "1");
}

TEST_CASE("assess: what a proof means for the gates") {
  Assessed all = assessed(plan_of({"a:live", "b", "p:proof"}), {});
  Finding proof;
  proof.summary = "tried";
  proof.verdict = Verdict::pass;
  all.seen.judge_goal(proof);
  CHECK(all.outlook() == "ready");
  CHECK(all.cause() == "");
  proof.verdict = Verdict::fail;
  all.seen.judge_goal(proof);
  CHECK(all.outlook() == "person");
  CHECK(all.kind("p") == "waits");
  CHECK(all.cause() == "b");
}

TEST_CASE("assess: the root cause is what nobody can fix, then what p2pd cannot, then the first gate that fails") {
  const std::string plan = plan_of({"a:live", "b", "c", "p:proof after c"});
  CHECK(assessed(plan, {}).cause() == "b");
  CHECK(assessed(plan, {.holds = {"b", "c"}, .dangerous = {"a"}}).cause() == "a");
  CHECK(assessed(plan, {.impossible = {"c"}}).cause() == "c");
  CHECK(assessed(plan, {.impossible = {"c"}}).outlook() == "impossible");
  CHECK(assessed(plan, {.holds = {"c"}, .dangerous = {"a"}, .unknown = {"b"}}).cause() == "b");
  CHECK(assessed(plan, {.unknown = {"b"}}).cause() == "c");
}

TEST_CASE("assess: a danger is looked for before a proof, whatever hides it") {
  const std::string plan =
      "name: n\ntitle: t\nsteps:\n"
      "  - {gate: told, title: t, check: now, with: {name: told}}\n"
      "  - {gate: a, title: t, check: now, with: {name: a}}\n"
      "  - {gate: log, title: t, check: danger, with: {name: log}, after: [a]}\n"
      "  - {goal: p, title: t, check: proof, with: {name: p}, after: [told]}\n";
  const Assessed burnt = assessed(plan, {.holds = {"told"}, .dangerous = {"log"}});
  CHECK(burnt.outlook() == "person");
  CHECK(burnt.cause() == "log");
  CHECK(burnt.kind("p") == "waits");
  CHECK(assessed(plan, {.holds = {"told"}}).outlook() == "provable");  // it fails, and endangers nothing
  CHECK(assessed(plan, {.holds = {"told", "log"}}).kind("log") == "holds");
}

TEST_CASE("assess: everything that a person must see to, together") {
  const Assessed all = assessed(plan_of({"a:live", "b", "c", "d after b", "p:proof after c"}), {});
  std::vector<std::string> ids;
  for (const Standing* s : all.seen.for_a_person()) ids.push_back(s->step->id);
  CHECK(ids == std::vector<std::string>{"b", "c"});
  CHECK(all.kind("d") == "waits");
}

TEST_CASE("assess: what a fix needs decides whether p2pd can make it hold, however far") {
  const std::string plan =
      "name: n\ntitle: t\npolicy: {busy: wait}\nsteps:\n"
      "  - {requires: idle, title: t, check: idle, with: {name: idle}}\n"
      "  - {requires: room, title: t, check: now, with: {name: room}}\n"
      "  - {requires: build, title: t, check: now, fix: live, with: {name: build}, needs: [room]}\n"
      "  - {gate: a, title: t, check: now, fix: live, with: {name: a}, needs: [idle, build]}\n";
  CHECK(assessed(plan, {.holds = {"idle", "room"}}).kind("a") == "fixable");
  CHECK(assessed(plan, {.holds = {"room"}}).kind("a") == "busy");
  const Assessed far = assessed(plan, {});
  CHECK(far.kind("a") == "blocked");
  CHECK(far.seen.steps[0].obstacle == "room: room");
  CHECK(far.outlook() == "person");
  CHECK(assessed(plan, {.holds = {"idle"}, .impossible = {"room"}}).outlook() == "impossible");
}

TEST_CASE("assess: gates that an alternative spares fail nothing where it applies, and count where it does not") {
  const std::string plan =
      "name: n\ntitle: t\nsteps:\n"
      "  - {gate: told, title: t, check: now, with: {name: told}}\n"
      "  - {alternative: b, title: t, first: true, check: now, fix: live, with: {name: b}, spares: [room]}\n"
      "  - {gate: room, title: t, check: now, with: {name: room}}\n"
      "  - {gate: after, title: t, check: now, with: {name: after}, after: [room]}\n"
      "  - {goal: p, title: t, check: proof, with: {name: p}, after: [told]}\n";
  const Facts hopeless{.holds = {"after"}, .impossible = {"room"}};
  CHECK(assessed(plan, hopeless).outlook() == "person");  // "told" is one's
  CHECK(assessed(plan, hopeless).cause() == "told");
  CHECK(assessed(plan, hopeless).kind("room") == "note");
  CHECK(assessed(plan, hopeless).kind("after") == "holds");
  Facts in_place = hopeless;
  in_place.holds = {"b", "told", "after"};
  CHECK(assessed(plan, in_place).outlook() == "provable");
  in_place.dangerous = {"room"};  // it matters to nobody now
  CHECK(assessed(plan, in_place).outlook() == "provable");
  CHECK(assessed(plan, in_place).seen.excused().empty());
  Facts not_yet = hopeless;  // the alternative would spare the gate, and is not in place
  not_yet.holds = {"told", "after"};
  REQUIRE(assessed(plan, not_yet).outlook() == "provable");
  const Assessed early = assessed(plan, not_yet);
  REQUIRE(early.seen.excused().size() == 1);
  CHECK(early.seen.excused()[0]->step->id == "room");
  not_yet.dangerous = {"room"};
  CHECK(assessed(plan, not_yet).outlook() != "provable");
  Facts other = hopeless;
  other.unknown = {"b"};
  CHECK(assessed(plan, other).outlook() == "impossible");
  CHECK(assessed(plan, other).cause() == "room");
  Assessed spent{parse_plan(plan, "p.yaml", World::registry()).value(), {}};
  spent.plan.steps[1].tried = Tried::ineffective;
  const Registry words = World::registry();
  spent.seen = assess(spent.plan, words, [](const Step& step) {
    Finding finding;
    finding.summary = step.id;
    finding.verdict = Verdict::fail;
    finding.impossible = step.id == "room";
    return finding;
  });
  CHECK(spent.outlook() == "impossible");  // it was tried, and did not help
}

TEST_CASE("assess: a driver's word excuses gates, but none of those that the goal names") {
  const std::string plan = plan_of({"a:live", "generation", "room", "told", "p:proof after generation,room,told"});
  const Assessed tried = assessed(plan, {.holds = {"generation", "room", "told"}});
  CHECK(tried.outlook() == "provable");
  REQUIRE(tried.seen.excused().size() == 1);
  CHECK(tried.seen.excused()[0]->step->id == "a");
  CHECK(assessed(plan, {.holds = {"a", "room", "told"}}).cause() == "generation");
  CHECK(assessed(plan, {.holds = {"a", "generation", "told"}, .unknown = {"room"}}).outlook() == "person");
  CHECK(assessed(plan, {.holds = {"a", "room", "told"}}).seen.excused().empty());
  // BAR1 of professional cards need not cover anything, but without the driver's word the goal is not tried
  CHECK(assessed(plan, {.holds = {"generation", "told"}, .no_matter = {"room"}}).outlook() == "provable");
  CHECK(assessed(plan, {.holds = {"generation", "room"}, .no_matter = {"told"}}).outlook() == "fixable");
}

TEST_CASE("assess: a step that asks for the arguments by hand names all that are wanted") {
  const std::string yaml =
      "name: n\ntitle: t\nsteps:\n"
      "  - {requires: loader, title: t, check: now, with: {name: loader}}\n"
      "  - {gate: iommu, title: t, check: now, fix: live, with: {name: iommu}, needs: [loader]}\n"
      "  - {gate: acs, title: t, check: now, fix: live, with: {name: acs}, needs: [loader]}\n";
  const Registry words = World::registry();
  Plan plan = parse_plan(yaml, "p.yaml", words).value();
  std::string asks = "Add the kernel arguments to FILE.";
  const auto next = [&] {
    const Assessment seen = assess(plan, words, [&](const Step& step) {
      Finding finding;
      finding.verdict = Verdict::fail;
      finding.next = step.id == "loader" ? asks : "";
      return finding;
    });
    CHECK(seen.steps[0].next == seen.steps[1].next);
    return seen.steps[1].next;
  };
  CHECK(next() == "Add the kernel arguments to FILE.");
  plan.steps[1].with["arguments"] = {"iommu=pt"};
  plan.steps[2].with["arguments"] = {"pci=disable_acs_redir=0000:00:01.1;0000:00:03.1"};
  CHECK(next() == "Add iommu=pt pci=disable_acs_redir=0000:00:01.1;0000:00:03.1 to FILE.");
  asks = "Add the kernel arguments as GRUB reads them to FILE.";
  CHECK(next() == R"(Add iommu=pt pci=disable_acs_redir=0000:00:01.1\;0000:00:03.1 to FILE.)");
  plan.steps[2].with["arguments"] = {"pci=disable_acs_redir=chosen"};
  CHECK(next() == "Add iommu=pt to FILE.");
}
