// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

std::string state(const Result<Run>& run) {
  return run ? std::string(to_string(run->state)) : "error: " + run.error().message;
}

}  // namespace

TEST_CASE("a live fix is applied and checked again") {
  World world;
  const auto run = world.apply(plan_of({"a:live", "b:live"}));
  CHECK(state(run) == "idle");
  CHECK(run->result == "done");
  CHECK(world.reboots == 0);
  CHECK(world.has("live/a"));
  CHECK(world.has("live/b"));
}

TEST_CASE("a second apply changes nothing") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live", "b:live"}))) == "idle");
  const std::string tree = world.tree();
  REQUIRE(state(world.apply(plan_of({"a:live", "b:live"}))) == "idle");
  CHECK(world.tree() == tree);
  CHECK_FALSE(world.applied_anything);
  CHECK(world.count("fixing") == 2);
}

TEST_CASE("a fix that a reboot makes by itself is left to the one that is due anyway, wherever in the plan that is") {
  for (const std::vector<std::string>& steps :
       {std::vector<std::string>{"a:boot", "b:reboot"}, {"b:reboot", "a:boot"}}) {
    World world;
    world.write("want/b", "");  // the boot does it
    auto run = world.apply(plan_of(steps));
    CHECK(state(run) == "rebooting");
    CHECK(run->reason.find("b") != std::string::npos);
    CHECK(world.tree().find("b\n") == std::string::npos);  // not in /etc/shared: it was not applied
    CHECK(world.count("left-to-reboot") == 1);
    run = world.settle(run);
    CHECK(state(run) == "idle");
    CHECK(run->reboots == 1);
  }
}

TEST_CASE(
    "a fix that a reboot makes by itself is made where none is due, and is no success where the reboot did not help") {
  World world;
  auto run = world.settle(world.apply(plan_of({"b:reboot", "a:live"})));
  CHECK(state(run) == "idle");
  CHECK(world.tree().find("b\n") != std::string::npos);
  World other;
  run = other.settle(other.apply(plan_of({"a:boot", "b:reboot"})));
  CHECK(state(run) == "failed");
  CHECK(run->reason.find("b still does not hold after its reboot") != std::string::npos);
}

TEST_CASE("fixes hear where a run rests, over its boots, once") {
  World world;
  world.fault("rests", "count");
  auto run = world.apply(plan_of({"a:boot"}));
  CHECK_FALSE(world.has("rests"));
  run = world.settle(run);
  CHECK(state(run) == "idle");
  CHECK(world.tree().find("rests: once\n") != std::string::npos);
  run = world.revert();
  CHECK(world.tree().find("once\nonce") == std::string::npos);  // the reboot of the rollback comes first
  run = world.settle(run);
  CHECK(run->result == "reverted");
  CHECK(world.tree().find("rests: once\nonce\n") != std::string::npos);
}

TEST_CASE("fixes hear of a run that needs a person, and do not hear of one that is paused") {
  World world;
  world.fault("rests", "count");
  REQUIRE(state(world.apply(plan_of({"a:live", "b"}))) == "blocked");
  CHECK(world.tree().find("rests: once\n") != std::string::npos);
  REQUIRE(state(world.start([](Walk& walk) { return walk.request(Event::pause); })) == "paused");
  CHECK(world.tree().find("once\nonce") == std::string::npos);
}

TEST_CASE("what goes wrong at the end of a run is a warning, and a kill there repeats it") {
  World world;
  world.fault("rests", "cut");
  CHECK_THROWS_AS(world.apply(plan_of({"a:live"})), PowerCut);
  world.boot();
  world.fault("rests", "error");
  const auto run = world.settle(world.go_on());
  CHECK(state(run) == "idle");
  CHECK(run->result == "done");
  CHECK(world.count("warning") == 1);
}

TEST_CASE("apply without the reboot neither counts nor changes again") {
  World world;
  const std::string plan = plan_of({"a:boot"}, "{reboot: external}");
  REQUIRE(state(world.apply(plan)) == "rebooting");
  CHECK(world.reboots == 0);
  const auto run = world.apply(plan);
  CHECK(state(run) == "rebooting");
  CHECK(run->reboots == 1);
  CHECK_FALSE(world.applied_anything);
}

TEST_CASE("a step without a fix blocks, and every blocker is listed") {
  World world;
  const auto run = world.apply(plan_of({"a", "b", "c:live", "d after a"}));
  CHECK(state(run) == "blocked");
  CHECK(run->reason == "a: a is not so; b: b is not so");
  CHECK_FALSE(world.has("live/c"));
  world.write("now/a", "yes");
  world.write("now/b", "yes");
  world.write("now/d", "yes");
  CHECK(state(world.start([](Walk& walk) { return walk.request(Event::retry); })) == "idle");
}

TEST_CASE("nothing is changed while a person is needed, wherever in the plan") {
  World world;
  const std::string before = world.tree();
  CHECK(state(world.apply(plan_of({"a:live", "b:live", "c"}))) == "blocked");
  CHECK(world.tree() == before);
  world.write("now/c", "yes");
  CHECK(state(world.settle(world.start([](Walk& walk) { return walk.request(Event::retry); }))) == "idle");
}

TEST_CASE("what is right only once a fix has run is judged after it, and undone where it did not help") {
  World world;
  const std::string before = world.tree();
  SECTION("what was found wrong then") {
    const auto run = world.apply(plan_of({"a:live", "b after a"}));
    CHECK(state(run) == "failed");
    CHECK(run->reason == "b: b is not so");
    CHECK(world.tree() == before);
  }
  SECTION("a proof that fails") { CHECK(state(world.apply(plan_of({"a:live", "p:proof after a"}))) == "failed"); }
  SECTION("what nothing was changed for waits for a person") {
    world.write("live/a", "yes");
    CHECK(state(world.apply(plan_of({"a:live", "p:proof after a"}))) == "blocked");
  }
}

TEST_CASE("two fixes that undo each other fail, and do not go on for ever") {
  World world;
  const std::string before = world.tree();
  world.fault("b", "breaks a");
  const auto run = world.apply(plan_of({"a:live", "b:live"}));
  CHECK(state(run) == "failed");
  CHECK(run->reason.find("a was fixed, and another fix reverted that") != std::string::npos);
  CHECK(world.tree() == before);
}

TEST_CASE("what cannot be found out blocks, and is never a pass") {
  World world;
  world.fault("a", "unreadable");
  world.write("now/a", "yes");
  const auto run = world.apply(plan_of({"a:live"}));
  CHECK(state(run) == "blocked");
  CHECK_FALSE(world.has("want/a"));
}

TEST_CASE("proven only with a proof") {
  World world;
  world.write("now/p", "yes");
  CHECK(state(world.apply(plan_of({"p:proof"}))) == "ready");
}

TEST_CASE("no proof is tried while a step before it does not hold") {
  World world;
  world.fault("p", "cut");  // would throw
  CHECK(state(world.apply(plan_of({"a:boot", "p:proof after a"}))) == "rebooting");
  CHECK(world.count("proving") == 0);
}

TEST_CASE("a fix that fails is capped, then everything is put back") {
  World world;
  const std::string before = world.tree();
  world.fault("b", GENERATE("error", "void"));
  const auto run = world.apply(plan_of({"a:live", "b:live"}, "{attempts: 3}"));
  CHECK(state(run) == "failed");
  CHECK(world.count("fix-failed") == 3);
  CHECK(world.tree() == before);
}

TEST_CASE("on_failure: keep keeps") {
  World world;
  world.fault("b", "error");
  const auto run = world.apply(plan_of({"a:live", "b:live"}, "{on_failure: keep}"));
  CHECK(state(run) == "failed");
  CHECK(run->reason.find("the fix broke; next: fix it") != std::string::npos);
  CHECK(world.has("live/a"));
}

TEST_CASE("revert undoes all runs, newest first, to the byte, with a reboot where the effect stays") {
  World world;
  const std::string before = world.tree();
  REQUIRE(state(world.settle(world.apply(plan_of({"a:trial", "b:live"})))) == "idle");
  REQUIRE(state(world.apply(plan_of({"c:live"}))) == "idle");
  const auto run = world.revert();
  CHECK(state(run) == "reverting");
  CHECK(world.tree() == before);
  const auto end = world.settle(run);
  CHECK(state(end) == "idle");
  CHECK(end->result == "reverted");
  CHECK_FALSE(world.has("now/a"));
}

TEST_CASE("revert with nothing to undo does nothing") {
  World world;
  CHECK(state(world.revert()) == "idle");
  CHECK(world.events().empty());
}

TEST_CASE("a commit that fails takes nothing away, is tried again, and needs a person then") {
  World world;
  world.write("live/p", "yes");
  world.fault("a", "commit");
  const auto run = world.settle(world.apply(plan_of({"a:trial", "p:proof after a"}, "{attempts: 3}")));
  CHECK(state(run) == "blocked");
  CHECK(run->reason == "P2P is proven on this boot, but a is not permanent yet: no space");
  CHECK(world.count("committing") == 3);
  CHECK(world.has("now/a"));
  CHECK(world.has("run/p2pd/ready"));
  SECTION("a retry makes it permanent") {
    world.remove("faults/a");
    const auto again = world.start([](Walk& walk) { return walk.request(Event::retry); });
    CHECK(state(again) == "ready");
    CHECK(world.has("default/a"));
  }
  SECTION("boots go on with it as long as the plan allows, then keep it") {
    auto later = run;
    for (int boots = 0; boots < 6; ++boots) {
      world.boot();
      later = world.settle(world.go_on());
    }
    CHECK(state(later) == "blocked");
    CHECK(world.has("want/a"));
    CHECK(world.reboots <= 4);
    world.remove("faults/a");
    world.boot();  // by hand, as the reason says: the trial is armed
    CHECK(state(world.go_on()) == "ready");
  }
}

TEST_CASE("a commit waits for what is busy") {
  World world;
  world.write("live/p", "yes");
  world.fault("a", "busy commit");
  int waited = 0;
  world.on_wait = [&] {
    CHECK(world.has("run/p2pd/ready") == true);
    if (++waited == 300) world.remove("faults/a");
  };
  const auto run = world.settle(world.apply(plan_of({"a:trial", "p:proof after a"})));
  CHECK(state(run) == "ready");
  CHECK(waited >= 300);
  CHECK(world.waited_for.find("P2P is proven on this boot, but a is not permanent yet: dpkg is locked") == 0);
}

TEST_CASE("a paused run with changes on trial goes on at the next boot: nothing else loads the new modules") {
  World world;
  const bool called_off = GENERATE(true, false);
  world.calls_off = called_off;
  auto run = world.apply(plan_of({"a:trial"}));
  if (!called_off) run = world.start([](Walk& walk) { return walk.request(Event::pause); });
  REQUIRE(state(run) == "paused");
  CHECK(run->reason.find("it goes on at the next boot") != std::string::npos);
  CHECK(state(world.go_on()) == "paused");  // on the same boot
  world.calls_off = false;
  world.boot();
  CHECK(state(world.settle(world.go_on())) == "idle");
  CHECK(world.has("default/a"));
}

TEST_CASE("pause holds over boots, resume goes on, cancel undoes") {
  World world;
  const std::string before = world.tree();
  auto run = world.apply(plan_of({"a:boot", "b:live after a"}));
  REQUIRE(state(world.start([](Walk& walk) { return walk.request(Event::pause); })) == "paused");
  world.boot();
  CHECK(state(world.go_on()) == "paused");
  CHECK_FALSE(world.has("live/b"));
  const bool resume = GENERATE(true, false);
  run = world.start([&](Walk& walk) { return walk.request(resume ? Event::resume : Event::cancel); });
  run = world.settle(run);
  CHECK(state(run) == "idle");
  if (!resume) CHECK(world.tree() == before);
}

TEST_CASE("a stop between steps leaves the run open") {
  World world;
  world.asked = Event::stopped;
  CHECK(state(world.apply(plan_of({"a:live"}))) == "walking");
  CHECK(state(world.go_on()) == "idle");
}

TEST_CASE("another plan is refused while a run is open") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live", "b"}))) == "blocked");
  std::string other = plan_of({"a:live", "b"});
  other.replace(other.find("test"), 4, "other");
  const auto run = world.apply(other);
  REQUIRE_FALSE(run);
  CHECK(run.error().message == "run 1 of plan test is blocked");
}

TEST_CASE("every request that has no row is the caller's error") {
  for (const RunState s : {RunState::idle, RunState::ready, RunState::failed}) {
    for (const Event e : {Event::pause, Event::resume, Event::cancel, Event::go_on}) CHECK_FALSE(next_state(s, e));
  }
  CHECK_FALSE(next_state(RunState::paused, Event::apply));
  CHECK_FALSE(next_state(RunState::paused, Event::go_on));
  CHECK_FALSE(next_state(RunState::reverting, Event::apply));
}

TEST_CASE("somebody else's change to a file of ours is kept aside on revert") {
  World world;
  REQUIRE(state(world.apply(plan_of({"a:live"}))) == "idle");
  world.write("etc/shared", "mine\n");
  REQUIRE(state(world.settle(world.revert())) == "idle");
  const auto events = world.events();
  const bool told = std::any_of(events.begin(), events.end(), [](const JournalEvent& e) {
    return e.type == "undone" && e.text.find("/etc/shared was changed since") != std::string::npos;
  });
  CHECK(told);
}

TEST_CASE("after: a step waits for what is far before it, too, whatever holds in between") {
  World world;
  world.write("live/b", "yes");
  const auto run = world.apply(plan_of({"a:boot", "b:live after a", "c:live after b"}));
  CHECK(state(run) == "rebooting");
  CHECK_FALSE(world.has("live/c"));
  CHECK(state(world.settle(run)) == "idle");
  CHECK(world.has("live/c"));
}
