// SPDX-License-Identifier: MIT
// Alternatives that are tried if the proof fails, and the state that they leave behind.
#include "catch.hpp"
#include "plan/journalled_plan.hpp"

#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// a, then the alternatives, then the proof, which passes if `needed` is in effect.
std::string plan_with(const std::vector<std::string>& alternatives, const std::string& needed,
                      const std::string& policy = "{reboots: 9}") {
  std::string yaml = plan_of({"a:trial"}, policy);
  for (const std::string& name : alternatives)
    yaml += "  - {alternative: " + name + ", title: t, check: now, fix: trial, with: {name: " + name + "}}\n";
  return yaml + "  - {goal: p, title: t, check: proof, with: {name: " + needed + "}, after: [a]}\n";
}

std::string told(const std::string& steps) {
  const auto plan = parse_plan("name: n\ntitle: t\nsteps:\n" + steps, "p.yaml", World::registry());
  return plan ? "" : plan.error().message;
}

}  // namespace

TEST_CASE("where the proof passes, no alternative is tried") {
  World world;
  const auto run = world.settle(world.apply(plan_with({"b"}, "a")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(run->reboots == 1);
  CHECK_FALSE(world.has("want/b"));
  CHECK(world.count("escalated") == 0);
}

TEST_CASE("an alternative with which the proof passes is kept, and is in the plan of the run") {
  World world;
  const auto run = world.settle(world.apply(plan_with({"b", "c"}, "b")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(run->reboots == 2);
  CHECK(world.has("default/b"));
  CHECK_FALSE(world.has("want/c"));
  CHECK(run->resolved.find(R"("tried":"now")") != std::string::npos);
  SECTION("and another apply changes nothing") {
    const std::string tree = world.tree();
    const auto again = world.apply(plan_with({"b", "c"}, "b"));
    CHECK(again->state == RunState::ready);
    CHECK(world.tree() == tree);
  }
  SECTION("and goes with the rest") {
    CHECK(world.settle(world.revert())->result == "reverted");
    CHECK_FALSE(world.has("want/b"));
  }
}

TEST_CASE("one that does not help is reverted before the next is tried") {
  World world;
  const auto run = world.settle(world.apply(plan_with({"b", "c"}, "c")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK_FALSE(world.has("want/b"));
  CHECK_FALSE(world.has("default/b"));
  CHECK(world.has("default/c"));
  CHECK(world.count("escalated") == 2);
}

TEST_CASE("one that holds already is not tried") {
  World world;
  world.write("live/b", "yes");
  const auto run = world.settle(world.apply(plan_with({"b", "c"}, "c")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(run->reboots == 2);
  CHECK(world.count("escalated") == 1);
}

TEST_CASE("where none helps, the machine ends as it was found") {
  World world;
  const std::string before = world.tree();
  const auto run = world.settle(world.apply(plan_with({"b", "c"}, "nothing")));
  REQUIRE(run);
  CHECK(run->state == RunState::failed);
  CHECK(run->reason.find("nothing is not so") != std::string::npos);
  CHECK(world.tree() == before);
}

TEST_CASE("where none helps and what was changed is kept, no alternative is") {
  World world;
  const auto run = world.settle(world.apply(plan_with({"b"}, "nothing", "{reboots: 9, on_failure: keep}")));
  REQUIRE(run);
  CHECK(run->state == RunState::failed);
  CHECK(world.has("want/a"));
  CHECK_FALSE(world.has("want/b"));
}

TEST_CASE("each boot proves again what an alternative made work, and looks at that, too") {
  World world;
  REQUIRE(world.settle(world.apply(plan_with({"b"}, "b")))->state == RunState::ready);
  world.boot();
  auto run = world.start([](Walk& walk) { return walk.prove_again(); });
  REQUIRE(run);
  CHECK(run->plan == "verify");
  CHECK(run->state == RunState::ready);
  world.remove("now/b");
  CHECK(world.start([](Walk& walk) { return walk.prove_again(); })->reason.find("b: b is not so") != std::string::npos);
}

TEST_CASE("a retry tries the alternatives again") {
  World world;
  REQUIRE(world.settle(world.apply(plan_with({"b"}, "nothing")))->state == RunState::failed);
  REQUIRE(world.count("escalated") == 1);
  REQUIRE(world.settle(world.start([](Walk& walk) { return walk.request(Event::retry); }))->state == RunState::failed);
  CHECK(world.count("escalated") == 2);
}

TEST_CASE("a plan without alternatives tells of none") {
  World world;
  REQUIRE(world.settle(world.apply(plan_of({"a:live", "p:proof after a"})))->state == RunState::failed);
  CHECK(world.count("escalated") == 0);
  CHECK(world.count("not-escalated") == 0);
}

TEST_CASE("alternatives stop at the plan's reboots") {
  World world;
  const std::string before = world.tree();
  const auto run = world.settle(world.apply(plan_with({"b", "c", "d"}, "nothing", "{reboots: 3}")));
  REQUIRE(run);
  CHECK(run->state == RunState::failed);
  CHECK(run->reboots <= 3);
  CHECK(world.tree() == before);
}

TEST_CASE("a power cut while an alternative is on trial: it is tried all the same") {
  World world;
  Result<Run> run = world.apply(plan_with({"b"}, "b"));
  world.boot();
  run = world.go_on();  // the proof failed, b waits for its boot
  REQUIRE(run->state == RunState::rebooting);
  world.fault("b", "cut");  // in the proof
  world.boot();
  CHECK_THROWS_AS(world.go_on(), PowerCut);
  world.fault("b", "");
  world.boot();
  CHECK(world.settle(world.go_on())->state == RunState::ready);
}

namespace {

/// An alternative that is tried first, a later gate that holds by other means, then a goal.
std::string plan_with_first(const std::string& gate, const std::string& goal) {
  return plan_of({}, "{reboots: 9}") +
         "  - {requires: swap, title: t, check: now, fix: live, with: {name: swap}}\n"
         "  - {alternative: b, title: t, first: true, check: now, fix: trial, with: {name: b}}\n"
         "  - {gate: g, title: t, check: now, with: {name: " +
         gate +
         "}, after: [b], needs: [swap]}\n"
         "  - {alternative: c, title: t, check: now, fix: trial, with: {name: c}}\n"
         "  - {goal: p, title: t, check: proof, with: {name: " +
         goal + "}, after: [g]}\n";
}

}  // namespace

TEST_CASE("first: one that helps is kept, and what a gate after it needs is left alone") {
  World world;
  const auto run = world.settle(world.apply(plan_with_first("b", "b")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(world.has("default/b"));
  CHECK_FALSE(world.has("live/swap"));
  CHECK(world.count("escalated") == 0);
  SECTION("and another apply changes nothing") {
    const std::string tree = world.tree();
    CHECK(world.apply(plan_with_first("b", "b"))->state == RunState::ready);
    CHECK(world.tree() == tree);
  }
}

TEST_CASE("first: where a gate after it still fails, it is undone, and the gate is made to hold") {
  World world;
  const auto run = world.settle(world.apply(plan_with_first("swap", "swap")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(world.has("live/swap"));
  CHECK_FALSE(world.has("want/b"));
  CHECK_FALSE(world.has("want/c"));
  const std::string now = R"("tried":"ineffective")";
  std::string older = run->resolved;
  REQUIRE(older.find(now) != std::string::npos);
  older.replace(older.find(now), now.size(), R"("tried":"in-vain")");
  older.erase(older.find(R"("format":3,)"), 11);
  CHECK(journal_text(read_journalled_plan(older, "test", World::registry()).plan) == run->resolved);
}

TEST_CASE("first: where the proof fails with it, the gates after it come before the next alternative") {
  World world;
  world.write("live/swap", "yes");  // the gate holds in any case
  const auto run = world.settle(world.apply(plan_with_first("swap", "c")));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK_FALSE(world.has("want/b"));
  CHECK(world.has("default/c"));
  CHECK(world.count("escalated") == 2);
}

TEST_CASE("first: where nothing helps, the machine ends as it was found, and a retry begins with it again") {
  World world;
  const std::string before = world.tree();
  REQUIRE(world.settle(world.apply(plan_with_first("swap", "nothing")))->state == RunState::failed);
  CHECK(world.tree() == before);
  const int escalated = world.count("escalated");
  REQUIRE(world.settle(world.start([](Walk& walk) { return walk.request(Event::retry); }))->state == RunState::failed);
  CHECK(world.count("escalated") == 2 * escalated);
  CHECK(world.tree() == before);
}

TEST_CASE("alternatives in a plan: with a fix, before the proof") {
  CHECK(told("  - {alternative: b, title: t, check: now, with: {name: b}}\n") ==
        "p.yaml:4: steps[0]: an alternative without a \"fix\": there is nothing to try");
  CHECK(told("  - {goal: p, title: t, check: proof, with: {name: p}}\n"
             "  - {alternative: b, title: t, check: now, fix: live, with: {name: b}}\n") ==
        "p.yaml:5: steps[1].alternative: stands after the goal; move it before that");
  CHECK(told("  - {gate: a, title: t, check: now, with: {name: a}, tried: now}\n") ==
        "p.yaml:4: steps[0]: \"tried\" of a step that is not an alternative");
  CHECK(told("  - {gate: a, title: t, check: now, with: {name: a}, first: true}\n") ==
        "p.yaml:4: steps[0]: \"first\" of a step that is not an alternative");
}

TEST_CASE("first: of two, the one that does not concern the machine is not taken for the one on trial") {
  World world;
  world.write("live/a", "yes");  // nothing to do
  std::string plan = plan_with_first("swap", "swap");
  plan.insert(plan.find("  - {alternative: b"),
              "  - {alternative: a, title: t, first: true, check: now, fix: trial, with: {name: a}}\n");
  const auto run = world.settle(world.apply(plan));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(world.has("live/swap"));
  CHECK_FALSE(world.has("want/b"));
  CHECK_FALSE(world.has("want/c"));
}

TEST_CASE("first: a gate that it spares counts once it was tried for nothing") {
  for (const bool helps : {true, false}) {
    World world;
    std::string plan = plan_with_first("b", helps ? "b" : "nothing");
    plan.insert(plan.find("name: b}}\n") + 8, ", spares: [room]");
    plan.insert(plan.find("  - {gate: g"), "  - {gate: room, title: t, check: now, with: {name: room}}\n");
    const auto run = world.settle(world.apply(plan));
    REQUIRE(run);
    CHECK((run->state == RunState::ready) == helps);
    CHECK(world.has("default/b") == helps);
    if (!helps) CHECK(run->reason.find("room") != std::string::npos);
  }
}

TEST_CASE("alternatives in a plan: they spare gates") {
  const std::string gate = "  - {gate: a, title: t, check: now, with: {name: a}}\n";
  CHECK(told(gate + "  - {alternative: b, title: t, check: now, fix: live, with: {name: b}, spares: [a]}\n") == "");
  CHECK(told("  - {alternative: b, title: t, check: now, fix: live, with: {name: b}, spares: [x]}\n" + gate) ==
        "p.yaml:4: steps[0].spares: there is no gate step \"x\"");
}
