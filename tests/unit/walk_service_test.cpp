// SPDX-License-Identifier: MIT
// Requirements of a service on the walk: it waits for a machine in use, a reboot can be cancelled, and read-only calls
// change nothing.
#include "catch.hpp"
#include "machine/driver/ready.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// A step that needs the machine to be idle, and is in effect at the next boot.
std::string needs_idle(const std::string& policy) {
  return "name: test\ntitle: t\npolicy: " + policy +
         "\nsteps:\n"
         "  - {requires: idle, title: t, check: idle, with: {name: idle}}\n"
         "  - {gate: a, title: t, check: now, fix: boot, with: {name: a}, needs: [idle]}\n";
}

}  // namespace

TEST_CASE("busy: wait waits before anything is changed, and goes on once the machine is idle") {
  World world;
  int looks = 0;
  world.on_wait = [&] {
    CHECK_FALSE(world.has("want/a"));
    if (++looks == 25) world.write("live/idle", "yes");  // seconds
  };
  const auto run = world.apply(needs_idle("{busy: wait}"));
  REQUIRE(run);
  CHECK(run->state == RunState::rebooting);
  CHECK(looks >= 25);
  CHECK(world.waited_for.find("a needs idle: idle is not so") != std::string::npos);
}

TEST_CASE("a fix that fails while the machine is in use is repeated once it is idle, and that is no attempt") {
  World world;
  world.write("live/idle", "yes");
  world.fault("a", "disturbed");
  int looks = 0;
  world.on_wait = [&] {
    CHECK_FALSE(world.has("want/a"));
    if (++looks < 300) return;
    world.remove("faults/a");
    world.write("live/idle", "yes");
  };
  const auto run = world.apply(needs_idle("{busy: wait, attempts: 1}"));
  REQUIRE(run);
  CHECK(run->state == RunState::rebooting);
  CHECK(looks == 300);
}

TEST_CASE("busy: wait hears a pause, and a cancel, while it waits") {
  for (const auto& [event, state] :
       {std::pair(Event::pause, RunState::paused), std::pair(Event::cancel, RunState::idle)}) {
    World world;
    world.asked = event;
    world.quiet_polls = 7;
    const auto run = world.apply(needs_idle("{busy: wait}"));
    REQUIRE(run);
    CHECK(run->state == state);
    CHECK_FALSE(world.has("want/a"));
  }
}

TEST_CASE("busy: block is a person's, and the default") {
  for (const std::string policy : {"{busy: block}", "{}"}) {
    World world;
    CHECK(world.apply(needs_idle(policy))->state == RunState::blocked);
  }
}

TEST_CASE("what else stands in the way is not waited for") {
  World world;
  std::string plan = needs_idle("{busy: wait}");
  plan += "  - {gate: hopeless, title: t, check: now, with: {name: hopeless}}\n";
  CHECK(world.apply(plan)->state == RunState::blocked);
}

TEST_CASE("before a restart the machine is looked at again: who came in between is waited for, or blocks it") {
  for (const bool waits : {true, false}) {
    World world;
    world.write("live/idle", "yes");
    world.fault("a", "breaks idle");  // a user comes while the fix runs
    int seconds = 0;
    world.on_wait = [&] {
      CHECK(world.reboots == 0);
      if (++seconds == 3) world.write("live/idle", "yes");
    };
    const auto run = world.apply(needs_idle(waits ? "{busy: wait}" : "{busy: block}"));
    REQUIRE(run);
    CHECK(run->state == (waits ? RunState::rebooting : RunState::blocked));
    CHECK(world.reboots == (waits ? 1 : 0));
  }
}

TEST_CASE("before a restart, what cannot be told is not waited for") {
  World world;
  world.write("live/idle", "yes");
  world.fault("a", "breaks idle");
  int seconds = 0;
  world.on_wait = [&] {
    REQUIRE(++seconds < 60);
    world.fault("idle", "unreadable");
  };
  const auto run = world.apply(needs_idle("{busy: wait}"));
  REQUIRE(run);
  CHECK(run->state == RunState::rebooting);
}

TEST_CASE("users of the machine are waited for: on a rollback with a bound, forward without one", "[attack]") {
  World world;
  world.write("live/idle", "yes");
  REQUIRE(world.settle(world.apply(needs_idle("{busy: wait}")))->result == "done");
  world.remove("live/idle");
  int seconds = 0;
  world.on_wait = [&] {
    if (++seconds > 7200) throw PowerCut();
  };
  SECTION("then it is restarted all the same") {
    const auto run = world.revert();
    REQUIRE(run);
    CHECK(run->state == RunState::reverting);
    CHECK(world.reboots == 2);
    CHECK(seconds == 15 * 60);
    CHECK(world.waited_for.find("idle is not so") != std::string::npos);
    CHECK(world.count("not-idle") == 1);
    CHECK(world.settle(run)->result == "reverted");
  }
  SECTION("a pause is not heard, and the reason is that of the restart") {
    world.asked = Event::pause;
    world.quiet_polls = 60;
    const auto run = world.revert();
    CHECK(run->state == RunState::reverting);
    CHECK(run->reason == "the undone settings are in effect until the next boot");
    CHECK(world.reboots == 2);
  }
  SECTION("a stop is heard meanwhile") {
    world.asked = Event::stopped;
    world.quiet_polls = 60;
    CHECK(world.revert()->state == RunState::reverting);
    CHECK(world.reboots == 1);
  }
  SECTION("forward it is waited for") {
    world.remove("want/a");
    world.remove("now/a");
    CHECK_THROWS_AS(world.apply(needs_idle("{busy: wait}")), PowerCut);
  }
}

TEST_CASE("a restart that is called off is a pause, and resumed it is the same restart, counted once") {
  World world;
  world.calls_off = true;
  const std::string plan = plan_of({"a:boot"});
  const auto run = world.apply(plan);
  REQUIRE(run);
  CHECK(run->state == RunState::paused);
  CHECK(run->reason == "the restart was cancelled");
  CHECK(run->reboots == 1);
  CHECK(world.go_on()->state == RunState::paused);
  world.calls_off = false;
  const auto resumed = world.start([](Walk& walk) { return walk.request(Event::resume); });
  CHECK(resumed->state == RunState::rebooting);
  CHECK(resumed->reboots == 1);
  CHECK(world.settle(resumed)->result == "done");
}

TEST_CASE("a restart that somebody else has scheduled is waited for, or blocks, as the policy says") {
  World world;
  world.in_the_way = "somebody else has scheduled a poweroff";
  SECTION("busy: block") {
    const auto run = world.apply(plan_of({"a:boot"}));
    REQUIRE(run);
    CHECK(run->state == RunState::blocked);
    CHECK(run->reason == "somebody else has scheduled a poweroff");
    CHECK(world.reboots == 0);
  }
  SECTION("busy: wait") {
    int seconds = 0;
    world.on_wait = [&] {
      CHECK(world.reboots == 0);
      if (++seconds == 25) world.in_the_way.clear();
    };
    const auto run = world.apply(plan_of({"a:boot"}, "{busy: wait}"));
    REQUIRE(run);
    CHECK(run->state == RunState::rebooting);
    CHECK(world.reboots == 1);
    CHECK(world.waited_for == "a restart is due; somebody else has scheduled a poweroff");
  }
}

TEST_CASE("reboot: external restarts nothing by itself") {
  World world;
  CHECK(world.apply(plan_of({"a:boot"}, "{reboot: external}"))->state == RunState::rebooting);
  CHECK(world.reboots == 0);
}

TEST_CASE("the ready file and the device for containers are there as long as what was proven stands") {
  World world;
  const auto ready = [&] {
    CHECK(world.has("run/cdi/p2pd.json") == world.has("run/p2pd/ready"));
    return world.has("run/p2pd/ready");
  };
  world.write("lspci-xxxx.txt", "");
  world.write("live/a", "yes");
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::blocked);
  CHECK_FALSE(ready());
  world.remove("live/a");
  world.write("live/p", "yes");
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  CHECK(ready());
  SECTION("a look that finds everything as it was keeps it") {
    REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
    CHECK(ready());
  }
  SECTION("a proof that fails takes it away") {
    world.remove("live/p");
    REQUIRE(world.start([](Walk& walk) { return walk.prove_again(); })->state == RunState::blocked);
    CHECK_FALSE(ready());
  }
  SECTION("so does a step that does not hold any more") {
    world.remove("live/a");
    REQUIRE(world.start([](Walk& walk) { return walk.prove_again(); })->state == RunState::blocked);
    CHECK_FALSE(ready());
  }
  SECTION("undo takes it away") {
    REQUIRE(world.revert()->result == "reverted");
    CHECK_FALSE(ready());
  }
}

TEST_CASE("a look that failed is not undone: cancel ends it, revert undoes what was done before it") {
  World world;
  world.write("live/p", "yes");
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  world.remove("live/p");
  REQUIRE(world.start([](Walk& walk) { return walk.prove_again(); })->state == RunState::blocked);
  const auto cancelled = world.start([](Walk& walk) { return walk.request(Event::cancel); });
  REQUIRE(cancelled);
  CHECK(cancelled->result == "superseded");
  CHECK(world.has("live/a"));
  world.asked = Event::revert;  // during the check
  const auto reverted = world.start([](Walk& walk) { return walk.prove_again(); });
  REQUIRE(reverted);
  CHECK(reverted->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("a person's look that is blocked stays open where each boot has nothing to prove or to make anew") {
  World world;
  REQUIRE(world.apply(plan_of({"p:proof"}))->state == RunState::blocked);
  CHECK(world.start([](Walk& walk) { return walk.prove_again(); })->state == RunState::blocked);
  CHECK(world.start([](Walk& walk) { return walk.reassert(); })->state == RunState::blocked);
  const auto cancel = [&] { return world.start([](Walk& walk) { return walk.request(Event::cancel); }); };
  CHECK(cancel()->result == "superseded");
  const auto again = cancel();
  REQUIRE_FALSE(again);
  CHECK(again.error().message == "a run that is idle cannot cancel");
}

TEST_CASE("revert ends a look that changed nothing, and says so") {
  World world;
  REQUIRE(world.apply(plan_of({"p:proof"}))->state == RunState::blocked);
  const auto reverted = world.revert();
  REQUIRE(reverted);
  CHECK(reverted->state == RunState::idle);
  CHECK(reverted->result == "superseded");
}

TEST_CASE("who goes on with a run may leave its restarts to somebody else") {
  World world;
  world.asked = Event::pause;
  REQUIRE(world.apply(plan_of({"a:boot"}))->state == RunState::paused);
  REQUIRE(world.start([](Walk& walk) { return walk.request(Event::resume); })->state == RunState::rebooting);
  CHECK(world.reboots == 1);
  CHECK(world.apply(plan_of({"a:boot"}, "{reboot: external}"))->state == RunState::rebooting);
  CHECK(world.reboots == 1);
}

TEST_CASE("a run that is open proves for itself") {
  World world;
  REQUIRE(world.apply(plan_of({"a:boot"}))->state == RunState::rebooting);
  const auto run = world.start([](Walk& walk) { return walk.prove_again(); });
  CHECK(run->state == RunState::rebooting);
  CHECK(world.count("begun") == 1);
}
