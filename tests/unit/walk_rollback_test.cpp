// SPDX-License-Identifier: MIT
// Rollbacks that cannot be completed, or not now, and plans in the journal that this version cannot read.
#include <fmt/format.h>

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

std::string state(const Result<Run>& run) {
  return run ? std::string(to_string(run->state)) : "error: " + run.error().text();
}

Result<Run> ask(World& world, Event event) {
  return world.start([&](Walk& walk) { return walk.request(event); });
}

bool says(const Result<Run>& run, const std::string& text) { return state(run).find(text) != std::string::npos; }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

/// Breaks what undo needs of the first of two steps, and returns what the error must name.
std::string break_undo(World& world, int how) {
  const auto record = [&](const std::string& from, const std::string& to) {
    world.damage("undo/000001.json", [&](const std::string& text) { return replaced(text, from, to); });
  };
  switch (how) {
    case 0: world.fault("a", "no backup"); return "a: its backup is damaged; next: fetch it";
    case 1:
      world.damage("undo/000001.json", [](const std::string&) { return "{"; });
      return "undo/000001.json is damaged";
    case 2:
      world.damage("undo/000001.bytes", [](const std::string& text) { return text + "x"; });
      return "the old content of /etc/shared is damaged";
    case 3: record("\"fix\": \"live\"", "\"fix\": \"later\""); return "a was changed by the fix \"later\" of p2pd";
    default: record("\"restore\": \"bytes\"", "\"restore\": \"later\""); return "undo/000001.json is damaged";
  }
}
constexpr int kWays = 5;

}  // namespace

TEST_CASE("a revert that cannot be completed changes nothing, and says why") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live", "b:live"}))) == "idle");
  world.write("etc/shared", world.read("etc/shared") + "mine\n");
  const std::string named = break_undo(world, GENERATE(range(0, kWays)));
  const std::string before = world.tree();
  const auto run = world.revert();
  CHECK(says(run, "nothing is undone, because not everything could be"));
  CHECK(says(run, named));
  CHECK(world.tree() == before);
  CHECK(world.count("undoing") == 0);
  CHECK(state(world.go_on()) == "idle");  // it is not reverted later, either
  CHECK(state(world.start([](Walk& walk) { return walk.prove_again(); })) == "idle");
}

TEST_CASE("a cancel that cannot be completed leaves the run as it is") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:boot", "b:live"}))) == "rebooting");
  world.fault("b", "no backup");
  const std::string before = world.tree();
  CHECK(says(ask(world, Event::cancel), "b: its backup is damaged"));
  CHECK(world.tree() == before);
  CHECK(state(world.go_on()) == "rebooting");
}

TEST_CASE("a cancel of a walk that cannot be completed blocks it") {
  World world;
  world.fault("a", "no backup");
  world.asked = Event::cancel;
  world.quiet_polls = 6;
  const auto run = world.apply(plan_of({"a:live", "b:live", "c:live", "d:live"}));
  REQUIRE(state(run) == "blocked");
  CHECK(run->reason.find("a: its backup is damaged") != std::string::npos);
  CHECK(world.has("live/a"));
  world.remove("faults/a");
  CHECK(state(ask(world, Event::cancel)) == "idle");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("a failed run whose rollback could not be completed keeps its changes, and can be reverted later") {
  World world;
  const std::string before = world.tree();
  world.fault("a", "no backup");
  world.fault("b", "error");
  const auto run = world.apply(plan_of({"a:live", "b:live"}));
  REQUIRE(state(run) == "failed");
  CHECK(run->reason.find("the fix broke") != std::string::npos);
  CHECK(run->reason.find("a: its backup is damaged") != std::string::npos);
  CHECK(world.has("live/a"));
  world.remove("faults/a");
  CHECK(state(world.revert()) == "idle");
  CHECK(world.tree() == before);
}

TEST_CASE(
    "a failed run that cannot be undone stays open while its changes are on trial: only p2pd loads the new modules") {
  World world;
  const std::string before = world.tree();
  world.fault("a", "no backup");
  world.fault("c", "error");
  world.write("live/p", "yes");
  const auto run = world.settle(world.apply(plan_of({"a:live", "b:trial", "c:live after b", "p:proof after c"})));
  REQUIRE(state(run) == "blocked");
  CHECK(run->reason.find("the fix broke") != std::string::npos);
  CHECK(world.has("live/a"));
  SECTION("the next boot goes on with it") {
    world.remove("faults/c");
    world.boot();
    CHECK(state(world.settle(world.go_on())) == "ready");
    CHECK(world.has("default/b"));
  }
  SECTION("it can be undone once the obstacle is removed") {
    world.remove("faults/a");
    CHECK(state(world.settle(world.revert())) == "idle");
    world.remove("live/p");
    CHECK(world.tree().find("want/b") == std::string::npos);
  }
}

TEST_CASE("what is on trial when the database is lost becomes permanent with the next proof") {
  World world;
  world.write("live/p", "yes");
  REQUIRE(state(world.apply(plan_of({"b:trial", "p:proof after b"}))) == "rebooting");
  world.boot();
  world.lose_journal();
  CHECK(state(world.apply(plan_of({"b:trial", "p:proof after b"}))) == "ready");
  CHECK(world.has("default/b"));
}

TEST_CASE("a cancel that interrupted a walk and is refused does not let it continue") {
  World world;
  world.fault("b", "cut");
  CHECK_THROWS_AS(world.apply(plan_of({"a:live", "b:live"})), PowerCut);
  world.fault("b", "");
  world.fault("a", "no backup");
  const bool all = GENERATE(false, true);
  const auto run = all ? world.revert() : world.start([](Walk& walk) { return walk.cancel_accepted(); });
  CHECK(says(run, "its backup is damaged"));
  CHECK(state(world.go_on()) == "blocked");
  CHECK_FALSE(world.has("live/b"));
}

TEST_CASE("a rollback waits for what is busy, before it undoes anything") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live", "b:live"}))) == "idle");
  const bool late = GENERATE(false, true);
  world.fault("a", late ? "locked undo" : "busy undo");
  int waited = 0;
  world.on_wait = [&] {
    CHECK(world.has("live/b") != late);
    if (++waited == 500) world.remove("faults/a");
  };
  CHECK(state(world.revert()) == "idle");
  CHECK(waited >= 500);
  CHECK_FALSE(world.has("live/a"));
}

/// Stops a revert of two changes after the newer one; returns the tree before both.
static std::string stop_half_way(World& world) {
  std::string before = world.tree();
  REQUIRE(state(world.apply(plan_of({"a:live", "b:live"}))) == "idle");
  world.asked = Event::stopped;
  world.quiet_polls = 1;
  REQUIRE(state(world.revert()) == "reverting");
  return before;
}

TEST_CASE("a rollback that is stuck half-way is continued") {
  World world;
  const std::string before = stop_half_way(world);
  world.fault("a", "no backup");
  CHECK(says(world.revert(), "its backup is damaged"));
  world.remove("faults/a");
  CHECK(state(world.revert()) == "idle");
  CHECK(world.tree() == before);
}

TEST_CASE("a revert over a power cut ends with a boot that has all of what was restored") {
  World world;
  const std::string before = stop_half_way(world);
  world.boot();  // "a" is still in place
  CHECK(state(world.go_on()) == "reverting");
  CHECK(world.tree() == before);
  CHECK(world.reboots == 1);
  world.boot();
  CHECK(state(world.go_on()) == "idle");
  CHECK(world.reboots == 1);
}

TEST_CASE("a plan that this version cannot read blocks nothing but its continuation") {
  World world;
  const std::string before = world.tree();
  REQUIRE(state(world.apply(plan_of({"a:boot", "b:live", "p:proof"}))) == "rebooting");
  const auto [from, to] = GENERATE(table<std::string, std::string>({{"\"check\":\"now\"", "\"check\":\"later\""},
                                                                    {"\"fix\":\"live\"", "\"fix\":\"later\""},
                                                                    {"\"gate\":\"b\"", "\"hope\":\"b\""},
                                                                    {"\"busy\":\"block\"", "\"busy\":\"later\""},
                                                                    {"\"title\":\"t\"", "\"titel\":\"t\""},
                                                                    {"\"format\":3", "\"format\":4"},
                                                                    {"{", "["}}));
  world.sql(fmt::format("UPDATE runs SET resolved=replace(resolved,'{}','{}')", from, to));
  SECTION("revert") { CHECK(state(world.settle(world.revert())) == "idle"); }
  SECTION("cancel") { CHECK(state(world.settle(ask(world, Event::cancel))) == "idle"); }
  SECTION("the next boot undoes it") {
    world.boot();
    const auto run = world.settle(world.go_on());
    CHECK(state(run) == "failed");
    CHECK(run->reason.find("run 1 of plan test cannot be continued: this version of p2pd") != std::string::npos);
  }
  SECTION("prove, reassert and new-kernel leave it alone") {
    for (const auto& work : {&Walk::prove_again, &Walk::reassert})
      CHECK(state(world.start([&](Walk& walk) { return (walk.*work)(); })) == "rebooting");
    CHECK(says(world.start([](Walk& walk) { return walk.add_kernel(); }), "is rebooting"));
    CHECK(state(world.settle(world.revert())) == "idle");
  }
  CHECK(world.tree() == before);
}

TEST_CASE("what was proven is proven again, and each-boot fixes are repeated, whatever else is in the plan") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live", "e:each-boot", "p:proof"}))) == "blocked");
  world.write("live/p", "yes");
  REQUIRE(state(ask(world, Event::retry)) == "ready");
  world.sql("UPDATE runs SET resolved=replace(resolved,'\"gate\":\"a\"','\"hope\":\"a\"')");
  world.remove("live/e");
  world.boot();
  CHECK(world.start([](Walk& walk) { return walk.reassert(); })->result == "done");
  CHECK(world.has("live/e"));
  CHECK(state(world.start([](Walk& walk) { return walk.prove_again(); })) == "ready");
  CHECK(state(world.revert()) == "idle");
}
