// SPDX-License-Identifier: MIT
// Several runs on one machine: a failure and a cancel undo the run's own changes, revert those of all runs.
#include <fmt/format.h>

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// plan_of, under another name.
std::string named(std::string name, const std::vector<std::string>& steps, const std::string& policy = "{}") {
  std::string plan = plan_of(steps, policy);
  return plan.replace(plan.find("test"), 4, std::move(name));
}

/// A world in which run 1, of plan "first", made step a hold and proved P2P.
struct Ready : World {
  Ready() {
    write("live/p", "yes");
    REQUIRE(apply(first())->state == RunState::ready);
    before = tree();
  }
  static std::string first() { return named("first", {"a:live", "p:proof after a"}); }
  bool ready() const { return has("run/p2pd/ready"); }
  Result<Run> prove() {
    return start([](Walk& walk) { return walk.prove_again(); });
  }
  std::string before;
};

std::string result_of(const Result<Run>& run) { return run ? run->result : "error: " + run.error().message; }

Result<Run> cancel(World& world) {
  return world.start([](Walk& walk) { return walk.request(Event::cancel); });
}

}  // namespace

TEST_CASE("runs: one that fails undoes its own changes, and none of an earlier run") {
  Ready world;
  world.fault("c", "error");
  CHECK(result_of(world.apply(named("second", {"b:live", "c:live"}))) == "failed");
  CHECK(world.has("live/a"));
  CHECK_FALSE(world.has("live/b"));
  CHECK(world.tree() == world.before);  // the ready file among it: P2P is proven again
  CHECK(world.start([](Walk& walk) { return walk.revert(); })->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("runs: cancel undoes the open run alone, over a reboot, too") {
  Ready world;
  auto run = world.apply(named("second", {"b:boot", "c:live after b", "d:boot after c"}));
  REQUIRE(run->state == RunState::rebooting);
  world.boot();
  run = world.go_on();
  REQUIRE(run->state == RunState::rebooting);
  run = world.settle(cancel(world));
  REQUIRE(run);
  CHECK(run->state == RunState::idle);
  CHECK(run->result == "cancelled");
  CHECK(world.tree() == world.before);
}

TEST_CASE("runs: revert of an open run undoes all runs") {
  Ready world;
  REQUIRE(world.apply(named("second", {"b:boot"}))->state == RunState::rebooting);
  CHECK(world.settle(world.revert())->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
  CHECK_FALSE(world.has("want/b"));
}

TEST_CASE("runs: revert while a failed run is undone undoes all runs") {
  Ready world;
  world.fault("c", "error");
  REQUIRE(world.apply(named("second", {"b:boot", "c:live after b"}))->state == RunState::rebooting);
  world.boot();
  REQUIRE(world.go_on()->state == RunState::reverting);
  CHECK(world.has("live/a"));
  CHECK(world.settle(world.revert())->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("runs: apply finishes the rollback of a failed run, and what was proven before stays") {
  Ready world;
  world.fault("c", "error");
  const std::string second = named("second", {"b:boot", "c:live after b"});
  REQUIRE(world.apply(second)->state == RunState::rebooting);
  world.boot();
  REQUIRE(world.go_on()->state == RunState::reverting);
  CHECK(world.apply(named("third", {"d:live"})).error().next.find("\"sudo p2pctl apply second\" continues it") == 0);
  world.boot();
  CHECK(world.apply(second)->result == "failed");
  CHECK(world.has("live/a"));
  CHECK(world.ready());
}

TEST_CASE("runs: revert is heard wherever a run is, and undoes all runs") {
  int heard = 0;
  for (int polls = 0; polls < 20; ++polls) {
    Ready world;
    world.fault("c", "error");
    world.asked = Event::revert;
    world.quiet_polls = polls;
    const auto run = world.apply(named("second", {"b:live", "c:live"}, "{attempts: 1}"));
    REQUIRE(run);
    heard += world.asked ? 0 : 1;
    CHECK(run->result == (world.asked ? "failed" : "reverted"));
    CHECK(world.has("live/a") == world.asked.has_value());
  }
  CHECK(heard > 5);
}

TEST_CASE("runs: an alternative that changed nothing is given up without touching an earlier run") {
  Ready world;
  world.write("live/x", "yes");
  world.fault("b", "void");
  std::string plan = named("second", {"x:live"}, "{attempts: 1}") +
                     "  - {alternative: b, title: t, check: now, fix: live, with: {name: b}}\n"
                     "  - {alternative: c, title: t, check: now, fix: live, with: {name: c}}\n"
                     "  - {goal: q, title: t, check: proof, with: {name: q}, after: [x]}\n";
  CHECK(result_of(world.apply(plan)) == "failed");
  CHECK(world.has("live/a"));
}

TEST_CASE("runs: undo of one with a lost journal does not take another's changes for its own") {
  Ready world;
  world.lose_journal();
  world.fault("c", "error");
  CHECK(result_of(world.apply(named("second", {"b:live", "c:live"}))) == "failed");
  CHECK(world.has("live/a"));
  CHECK_FALSE(world.has("live/b"));
  CHECK(world.revert()->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("runs: a ready machine stays ready where a second run changes nothing") {
  Ready world;
  REQUIRE(world.apply(named("second", {"b:live", "c"}))->state == RunState::blocked);
  CHECK(world.ready());
  CHECK(cancel(world)->result == "cancelled");
  CHECK(world.ready());
  CHECK(world.count("proof") == 1);  // nothing was changed: nothing to prove again
  world.boot();
  CHECK(world.prove()->plan == "verify");
}

TEST_CASE("runs: one of the plan that was proven, and is blocked now, is not ready") {
  Ready world;
  world.remove("live/a");
  world.fault("a", "unreadable");
  REQUIRE(world.apply(Ready::first())->state == RunState::blocked);
  CHECK_FALSE(world.ready());
}

TEST_CASE("runs: after a failed run, what an earlier one proved is proven again, now and at each boot") {
  Ready world;
  world.fault("c", "error");
  SECTION("and holds") {
    CHECK(world.apply(named("second", {"b:live", "c:live"}))->result == "failed");
    CHECK(world.ready());
  }
  SECTION("and holds after the reboot that undoes it") {
    REQUIRE(world.apply(named("second", {"b:boot", "c:live after b"}))->state == RunState::rebooting);
    world.boot();
    REQUIRE(world.go_on()->state == RunState::reverting);
    CHECK_FALSE(world.ready());
    world.boot();
    CHECK(world.go_on()->result == "failed");
    CHECK(world.ready());
  }
  SECTION("and does not hold now") {
    world.remove("live/p");
    CHECK(world.apply(named("second", {"b:live", "c:live"}))->result == "failed");
    CHECK_FALSE(world.ready());
    world.write("live/p", "yes");
  }
  world.boot();
  const auto run = world.prove();
  CHECK(run->plan == "verify");
  CHECK(run->state == RunState::ready);
}

TEST_CASE("runs: a proof that brings the machine down on the rollback is not tried there again") {
  Ready world;
  world.fault("c", "error");
  world.fault("p", "cut");
  CHECK_THROWS_AS(world.apply(named("second", {"b:live", "c:live"})), PowerCut);
  world.boot();
  const auto run = world.go_on();
  REQUIRE(run);
  CHECK(run->result == "failed");
  CHECK(run->reason.find("c could not be fixed") != std::string::npos);
}

TEST_CASE("runs: what lasts for one boot is made again for each run whose changes stay") {
  World world;
  world.write("live/p", "yes");
  REQUIRE(world.apply(named("first", {"a:each-boot", "p:proof after a"}))->state == RunState::ready);
  REQUIRE(world.apply(named("second", {"a:each-boot", "b:live"}))->result == "done");  // a held: it is run 1's
  world.fault("c", "error");
  REQUIRE(world.apply(named("third", {"d:live", "c:live"}))->result == "failed");
  const auto reassert = [&] { return world.start([](Walk& walk) { return walk.reassert(); }); };
  for (int boot = 0; boot < 2; ++boot) {
    world.boot();
    world.remove("live/a");
    const auto run = reassert();
    REQUIRE(run);
    CHECK(run->plan == "each-boot");
    CHECK(world.has("live/a"));
  }
  CHECK(world.undo_entries() == 4);  // shared and live, of a and of b: a boot adds none
  REQUIRE(world.revert()->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("runs: what lasts for one boot is made again for a step of each kind") {
  World world;
  std::string plan = "name: first\ntitle: t\nsteps:\n";
  for (const auto& [head, rest] :
       std::vector<std::pair<std::string, std::string>>{{"requires: r", "fix: each-boot"},
                                                        {"requires: w", "operator: none"},
                                                        {"alternative: a", "first: true, fix: each-boot"},
                                                        {"upkeep: u", "fix: each-boot, where: [w]"},
                                                        {"gate: g", "fix: each-boot, needs: [r]"}})
    plan += fmt::format("  - {{{}, title: t, check: now, with: {{name: {}}}, {}}}\n", head, head.back(), rest);
  for (const char* name : {"w", "p"}) world.write(fmt::format("live/{}", name), "yes");
  const auto done =
      world.settle(world.apply(plan + "  - {goal: p, title: t, check: proof, with: {name: p}, after: [a, g]}\n"));
  REQUIRE(done);
  REQUIRE(done->state == RunState::ready);
  world.boot();
  for (const char* name : {"a", "g", "r", "u"}) {
    CAPTURE(name);
    REQUIRE(world.has(fmt::format("live/{}", name)));
    world.remove(fmt::format("live/{}", name));
  }
  CHECK(result_of(world.start([](Walk& walk) { return walk.reassert(); })) == "done");
  for (const char* name : {"a", "g", "r", "u"}) {
    CAPTURE(name);
    CHECK(world.has(fmt::format("live/{}", name)));
  }
}

TEST_CASE("runs: one that p2pd left open when it was removed ends, and its changes stay until a revert") {
  World world;
  const std::string before = world.tree();
  RunState open{};
  SECTION("rebooting") {
    open = world.apply(plan_of({"a:live", "b:boot"}))->state;
    CHECK(open == RunState::rebooting);
  }
  SECTION("walking") {
    world.fault("b", "cut");
    CHECK_THROWS_AS(world.apply(plan_of({"a:live", "b:live"})), PowerCut);
    world.fault("b", "");
    open = RunState::walking;
  }
  SECTION("blocked") {
    open = world.apply(plan_of({"a:live"}) + "  - {gate: h, title: h, check: now, with: {name: h}}\n")->state;
    CHECK(open == RunState::blocked);
  }
  SECTION("reverting") {
    REQUIRE(world.settle(world.apply(plan_of({"a:boot", "b:boot"})))->result == "done");
    open = world.revert()->state;
    CHECK(open == RunState::reverting);
  }
  SECTION("paused") {
    world.asked = Event::pause;
    open = world.apply(plan_of({"a:live"}))->state;
    CHECK(open == RunState::paused);
  }
  const auto installed_again = [&] {
    return world.start([](Walk& walk) -> Result<Run> {
      TRY(walk.abandon("removed"));
      return walk.go_on();
    });
  };
  const std::string left = world.tree();
  const auto run = installed_again();
  CHECK(run->state == RunState::failed);
  world.boot();
  CHECK(world.go_on()->state == run->state);
  CHECK(installed_again()->state == run->state);
  CHECK(world.tree() == left);
  CHECK(world.apply(named("other", {"c:live"}))->result == "done");
  CHECK(world.settle(world.revert())->result == "reverted");
  CHECK(world.tree() == before);
}

TEST_CASE("runs: a cancel that was accepted as the run ended undoes that run alone") {
  Ready world;
  REQUIRE(world.apply(named("second", {"b:live"}))->result == "done");
  CHECK(result_of(world.start([](Walk& walk) { return walk.cancel_accepted(); })) == "cancelled");
  CHECK(world.tree() == world.before);
}

TEST_CASE("runs: what a kernel needs that was installed later belongs to the run that proved it") {
  World world;
  world.write("live/p", "yes");
  REQUIRE(world.apply(named("first", {"a:each-kernel", "b:live", "p:proof after a"}))->state == RunState::ready);
  const auto add_kernel = [&] { return world.start([](Walk& walk) { return walk.add_kernel(); }); };
  world.remove("live/a");  // of the new kernel
  world.remove("live/b");
  REQUIRE(add_kernel());
  CHECK(world.has("live/a"));
  CHECK_FALSE(world.has("live/b"));  // does not depend on kernels
  CHECK(add_kernel()->state == RunState::ready);
  SECTION("undone with that run") {
    REQUIRE(world.revert()->result == "reverted");
    CHECK_FALSE(world.has("live/a"));
    CHECK(world.read("etc/shared") == "user\n");
  }
  SECTION("where its fix fails, what was proven stays so") {
    world.remove("live/a");
    world.fault("a", "error");
    const auto failed = add_kernel();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().message.starts_with("a: "));
    world.remove("faults/a");
    REQUIRE(add_kernel());
    CHECK(world.has("live/a"));
  }
  SECTION("an open run sees to it") {
    REQUIRE(world.apply(named("second", {"b:live", "c"}))->state == RunState::blocked);
    world.remove("live/a");
    CHECK(add_kernel().error().code == ErrorCode::busy);
    CHECK_FALSE(world.has("live/a"));
  }
}

TEST_CASE("runs: a kernel that is installed where nothing was applied changes nothing") {
  World world;
  const std::string before = world.tree();
  CHECK(world.start([](Walk& walk) { return walk.add_kernel(); }));
  CHECK(world.tree() == before);
}
