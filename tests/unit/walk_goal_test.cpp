// SPDX-License-Identifier: MIT
// The goal comes first: a machine that reaches it by itself is left alone, and gates are for one that does not.
#include "base/directories.hpp"
#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

std::string state(const Result<Run>& run) {
  return run ? std::string(to_string(run->state)) : "error: " + run.error().message;
}

Result<Run> again(World& world) {
  return world.start([](Walk& walk) { return walk.prove_again(); });
}

/// The proof finds less than is wanted, from the start.
struct LimitedWorld : World {
  LimitedWorld() {
    fault("p", "limited");
    write("live/p", "yes");
  }
};

/// A gate, an alternative, and the goal.
std::string with_alternative() {
  return plan_of({"a:live"}) +
         "  - {alternative: b, title: t, check: now, fix: trial, with: {name: b}}\n"
         "  - {goal: p, title: t, check: proof, with: {name: p}}\n";
}

constexpr const char* kUpkeep =
    "  - {requires: own, title: t, check: now, with: {name: own}}\n"
    "  - {upkeep: kept, title: t, check: now, fix: live, with: {name: kept}, where: [own]}\n"
    "  - {upkeep: next, title: t, check: now, fix: live, with: {name: next}, where: [own], after: [kept]}\n";

}  // namespace

TEST_CASE("goal: where it is reached, nothing is changed, whatever the gates say") {
  World world;
  world.write("now/p", "yes");
  const auto run = world.apply(plan_of({"a:live", "b", "c:boot", "p:proof"}) + kUpkeep);
  CHECK(state(run) == "ready");
  CHECK(world.count("fixing") == 0);
  CHECK_FALSE(world.applied_anything);
  CHECK(world.reboots == 0);
}

TEST_CASE("goal: where it is not reached, the gates are fixed, and it is tried again with all of them open") {
  World world;
  auto run = world.apply(plan_of({"a:trial", "p:proof"}));
  CHECK(state(run) == "rebooting");
  CHECK(world.count("proving") == 1);
  world.boot();
  world.write("now/p", "yes");
  run = world.settle(world.go_on());
  CHECK(state(run) == "ready");
  CHECK(world.count("proving") == 2);
  CHECK(world.has("default/a"));
}

TEST_CASE("goal: it is not tried before what it asks first holds") {
  World world;
  world.write("now/p", "yes");
  CHECK(state(world.apply(plan_of({"a:boot", "p:proof after a"}))) == "rebooting");
  CHECK(world.count("proving") == 0);
}

TEST_CASE("goal: it is not tried while that is dangerous") {
  World world;
  world.write("now/p", "yes");
  world.fault("a", "danger");
  auto run = world.apply(plan_of({"a:boot", "p:proof"}));
  CHECK(state(run) == "rebooting");
  CHECK(world.count("proving") == 0);
  CHECK(world.has("want/a"));
}

TEST_CASE("goal: a first try that brings the machine down is not made again before the gates are open") {
  World world;
  world.fault("p", "cut");
  const std::string plan = plan_of({"a:live", "p:proof"}, "{reboots: 9}");
  CHECK_THROWS_AS(world.apply(plan), PowerCut);
  world.boot();
  world.fault("p", "");
  world.write("now/p", "yes");
  CHECK(state(world.settle(world.go_on())) == "ready");
  CHECK(world.has("live/a"));
}

TEST_CASE("goal: what it found stands first where a person is needed") {
  World world;
  const auto run = world.apply(plan_of({"a", "p:proof"}));
  CHECK(state(run) == "blocked");
  CHECK(run->reason == "p: p is not so; a: a is not so");
}

TEST_CASE("goal: the report of a full proof is kept, for upkeep of this run and later ones") {
  World world;
  const std::string report = proof_report_file().substr(1);
  CHECK(state(world.apply(plan_of({"a:live", "p:proof"}, "{on_failure: keep}"))) != "ready");
  CHECK_FALSE(world.has(report));  // nothing was proven
  world.write("now/p", "yes");
  CHECK(state(world.apply(plan_of({"a:live", "p:proof"}))) == "ready");
  REQUIRE(world.has(report));
  world.write(report, "full");
  world.boot();
  world.write("now/p", "yes");
  CHECK(state(again(world)) == "ready");
  CHECK(world.read(report) == "full");  // a quick proof has fewer figures
}

TEST_CASE("upkeep: seen to once the goal is reached, where it is p2pd's") {
  World world;
  world.write("now/p", "yes");
  SECTION("it is not") {
    CHECK(state(world.apply(plan_of({"p:proof"}) + kUpkeep)) == "ready");
    CHECK_FALSE(world.has("live/kept"));
  }
  SECTION("it is") {
    world.write("now/own", "yes");
    CHECK(state(world.apply(plan_of({"p:proof"}) + kUpkeep)) == "ready");
    CHECK(world.has("live/kept"));
    CHECK(world.has("live/next"));  // which waited for that
  }
  SECTION("it is, and cannot be kept: told, and no reason to give anything up") {
    world.write("now/own", "yes");
    world.fault("kept", "error");
    const auto run = world.apply(plan_of({"p:proof"}) + kUpkeep);
    CHECK(state(run) == "ready");
    CHECK(run->reason.find("maintenance failed: kept could not be fixed") != std::string::npos);
  }
  SECTION("the goal is not reached") {
    world.remove("now/p");
    world.write("now/own", "yes");
    CHECK(state(world.apply(plan_of({"p:proof"}) + kUpkeep)) == "blocked");
    CHECK_FALSE(world.has("live/kept"));
  }
}

TEST_CASE("limited: less than the plan wants is kept, and told as that") {
  World world;
  world.fault("p", "limited");
  auto run = world.apply(plan_of({"a:trial", "p:proof"}));
  CHECK(state(run) == "rebooting");  // before any change it fails completely
  world.boot();
  world.write("now/p", "yes");
  run = world.settle(world.go_on());
  CHECK(state(run) == "limited");
  CHECK(run->result == "limited");
  CHECK(world.has("default/a"));
  CHECK(world.has("run/p2pd/limited"));
  CHECK_FALSE(world.has("run/p2pd/ready"));
  CHECK(world.read("run/p2pd/limited").find("custom-all-reduce") == std::string::npos);
}

TEST_CASE("limited: gates that p2pd can open are opened first") {
  LimitedWorld world;
  const auto run = world.apply(plan_of({"a:live", "p:proof"}));
  CHECK(state(run) == "limited");
  CHECK(world.has("live/a"));
  CHECK(world.count("proving") == 2);
}

TEST_CASE("limited: a person's gate is no reason to give up what works") {
  LimitedWorld world;
  CHECK(state(world.apply(plan_of({"a", "p:proof"}))) == "limited");
}

TEST_CASE("limited: an alternative that brings all of it is taken") {
  LimitedWorld world;
  auto run = world.apply(with_alternative());
  CHECK(state(run) == "rebooting");
  world.fault("p", "");
  run = world.settle(run);
  CHECK(state(run) == "ready");
}

TEST_CASE("limited: an alternative that brings no more is reverted, and what works is kept") {
  LimitedWorld world;
  auto run = world.apply(with_alternative());
  CHECK(state(run) == "rebooting");
  run = world.settle(run);
  CHECK(state(run) == "limited");
  CHECK(world.has("live/a"));
  CHECK_FALSE(world.has("default/b"));
  CHECK(world.has("run/p2pd/limited"));
}

TEST_CASE("limited: the quick proof of a later boot takes away and adds nothing") {
  LimitedWorld world;
  CHECK(state(world.apply(plan_of({"p:proof"}))) == "limited");
  world.boot();
  world.fault("p", "");  // the quick form does not see what the full one found
  const auto run = again(world);
  CHECK(state(run) == "limited");
  CHECK(world.read("run/p2pd/limited").find("custom-all-reduce") == std::string::npos);
  world.boot();
  CHECK(state(again(world)) == "limited");  // it checks what the one before it proved
  CHECK(world.read("run/p2pd/limited").find("custom-all-reduce") == std::string::npos);
  CHECK(state(world.apply(plan_of({"p:proof"}))) == "ready");  // the full one does
  CHECK_FALSE(world.has("run/p2pd/limited"));
}

TEST_CASE("limited: what a new boot refutes is withdrawn") {
  LimitedWorld world;
  CHECK(state(world.apply(plan_of({"p:proof"}))) == "limited");
  world.boot();
  world.remove("live/p");
  CHECK(state(again(world)) != "limited");
  CHECK_FALSE(world.has("run/p2pd/limited"));
}
