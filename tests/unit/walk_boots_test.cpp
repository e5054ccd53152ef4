// SPDX-License-Identifier: MIT
// A run over boots: one reboot for many steps, boots on trial, crashes and power cuts, and what each later boot does.
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

std::string state(const Result<Run>& run) {
  return run ? std::string(to_string(run->state)) : "error: " + run.error().message;
}

std::string each_boot_plan() { return plan_of({"a:each-boot", "b:live", "p:proof after b"}); }

}  // namespace

TEST_CASE("one reboot serves all steps that do not depend on each other") {
  World world;
  auto run = world.apply(plan_of({"a:boot", "b:trial", "c:live"}));
  CHECK(state(run) == "rebooting");
  CHECK(world.reboots == 1);
  CHECK(world.has("live/c"));
  CHECK_FALSE(world.has("default/b"));  // on trial until everything holds
  run = world.settle(run);
  CHECK(state(run) == "idle");
  CHECK(run->reboots == 1);
  CHECK(world.has("default/b"));
}

TEST_CASE("a step after a pending one waits for the reboot") {
  World world;
  auto run = world.apply(plan_of({"a:boot", "b:live after a"}));
  CHECK_FALSE(world.has("live/b"));
  run = world.settle(run);
  CHECK(state(run) == "idle");
  CHECK(world.has("live/b"));
}

TEST_CASE("a step that still fails after its reboot fails at once") {
  World world;
  world.fault("a", "hang");
  const std::string before = world.tree();
  const auto run = world.settle(world.apply(plan_of({"a:boot"})));
  CHECK(state(run) == "failed");
  CHECK(world.reboots == 1);
  CHECK(world.tree() == before);
}

TEST_CASE("a trial boot that does not come up is tried once more, then failed and undone") {
  World world;
  world.fault("a", "hang");
  const std::string before = world.tree();
  const auto run = world.settle(world.apply(plan_of({"a:trial"})));
  CHECK(state(run) == "failed");
  CHECK(run->reason.find("did not come up, 2 times") != std::string::npos);
  CHECK(world.reboots == 2);
  CHECK(world.tree() == before);
}

TEST_CASE("a trial boot that was lost to the power once succeeds the second time") {
  World world;
  world.fault("a", "hang");
  auto run = world.apply(plan_of({"a:trial"}));
  world.boot();
  run = world.go_on();
  REQUIRE(state(run) == "rebooting");
  world.fault("a", "");
  run = world.settle(run);
  CHECK(state(run) == "idle");
  CHECK(world.has("default/a"));
}

TEST_CASE("a power cut in a commit is no crash of the trial that was proven before it") {
  World world;
  world.fault("a", "hang");
  auto run = world.apply(plan_of({"a:trial"}, "{reboots: 9}"));
  world.boot();
  run = world.go_on();  // the first trial boot was lost
  REQUIRE(state(run) == "rebooting");
  world.fault("a", "cut commit");
  world.boot();
  CHECK_THROWS_AS(world.go_on(), PowerCut);
  world.fault("a", "hang");
  world.boot();  // nothing was committed: the old default
  world.fault("a", "");
  run = world.settle(world.go_on());
  CHECK(state(run) == "idle");
  CHECK(world.has("default/a"));
}

TEST_CASE("a power cut in an ordinary fix is resumed, in a hazard it counts, and twice fails") {
  const bool hazard = GENERATE(false, true);
  World world;
  const std::string before = world.tree();
  const std::string plan = plan_of({hazard ? "a:risky" : "a:live"}, "{reboots: 9}");
  world.fault("a", "cut");
  CHECK_THROWS_AS(world.apply(plan), PowerCut);
  world.boot();
  CHECK_THROWS_AS(world.start([&](Walk& walk) { return walk.go_on(); }), PowerCut);
  world.boot();
  world.fault("a", "");
  const auto run = world.settle(world.go_on());
  CHECK(state(run) == (hazard ? "failed" : "idle"));
  if (hazard) CHECK(world.tree() == before);
}

TEST_CASE("a proof that brings the machine down is tried once more, then everything is put back") {
  World world;
  const std::string before = world.tree();
  const std::string plan = plan_of({"a:live", "p:proof after a"}, "{reboots: 9}");
  world.fault("p", "cut");
  CHECK_THROWS_AS(world.apply(plan), PowerCut);
  world.boot();
  const bool fixed = GENERATE(true, false);
  if (fixed) {
    world.fault("p", "");
    world.write("now/p", "yes");
    CHECK(state(world.settle(world.go_on())) == "ready");
    return;
  }
  CHECK_THROWS_AS(world.go_on(), PowerCut);
  world.boot();
  const auto run = world.settle(world.go_on());
  CHECK(state(run) == "failed");
  CHECK(run->reason.find("its check crashed the machine 2 times") != std::string::npos);
  CHECK(world.tree() == before);
}

TEST_CASE("a proof that brought the machine down twice gets no third boot to be tried on") {
  World world;
  world.fault("p", "cut");
  CHECK(state(world.apply(plan_of({"a:trial", "p:proof after a"}, "{reboots: 9}"))) == "rebooting");
  for (int crash = 1; crash <= 2; ++crash) {
    world.boot();
    CHECK_THROWS_AS(world.go_on(), PowerCut);
    world.boot();
    world.remove("now/a");  // the trial was for one boot
    const auto run = world.go_on();
    if (crash == 1) CHECK(state(run) == "rebooting");
    if (crash == 2) CHECK(world.settle(run)->reason.find("its check crashed the machine 2 times") != std::string::npos);
  }
}

TEST_CASE("reboots are capped, crashes count, and the rollback keeps one") {
  World world;
  world.fault("a", "hang");
  const auto run = world.settle(world.apply(plan_of({"a:trial"}, "{reboots: 2}")));
  CHECK(state(run) == "failed");
  CHECK(world.reboots == 1);
  World other;
  CHECK(state(other.apply(plan_of({"a:boot"}, "{reboots: 1}"))) == "failed");
  CHECK(other.reboots == 0);
  CHECK(other.apply(plan_of({"a:boot"}, "{reboots: 1, on_failure: keep}"))->state == RunState::rebooting);
}

TEST_CASE("boots that nobody asked for are counted up to the cap") {
  World world;
  const std::string before = world.tree();
  world.fault("a", "cut");
  CHECK_THROWS_AS(world.apply(plan_of({"a:live"}, "{reboots: 2}")), PowerCut);
  for (int crash = 0; crash < 2; ++crash) {
    world.boot();
    CHECK_THROWS_AS(world.go_on(), PowerCut);
  }
  world.boot();
  CHECK(state(world.go_on()) == "failed");
  CHECK(world.tree() == before);
}

TEST_CASE("each boot proves again what was proven, and changes nothing") {
  World world;
  const auto prove = [&] { return world.start([](Walk& walk) { return walk.prove_again(); }); };
  CHECK(prove()->id == 0);  // nothing to prove
  world.write("live/p", "yes");
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  world.boot();
  auto run = prove();
  REQUIRE(run);
  CHECK(run->plan == "verify");
  CHECK(run->state == RunState::ready);
  CHECK(nlohmann::json::parse(run->resolved)["steps"][1]["with"]["mode"] == "quick");
  world.remove("live/a");
  run = prove();
  CHECK(run->state == RunState::blocked);
  CHECK_FALSE(world.has("live/a"));
  CHECK(world.go_on()->state == RunState::blocked);  // a run that only checks is not continued
  run = prove();                                     // supersedes the one before, and no other
  CHECK(run->state == RunState::blocked);
  run = world.apply(plan_of({"a:live", "p:proof after a"}));
  REQUIRE(run);
  CHECK(run->state == RunState::ready);
  CHECK(run->plan == "test");
}

TEST_CASE("what was proven on another machine, of which the disk is a copy, is not proven here before somebody asks") {
  World world;
  world.write("etc/machine-id", "aaaa\n");
  world.write("live/p", "yes");
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  world.write("etc/machine-id", "bbbb\n");
  world.remove("run/p2pd/ready");
  world.boot();
  CHECK(world.start([](Walk& walk) { return walk.prove_again(); })->plan == "test");
  CHECK_FALSE(world.has("run/p2pd/ready"));
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  world.boot();
  CHECK(world.start([](Walk& walk) { return walk.prove_again(); })->plan == "verify");
}

TEST_CASE("a plan that only looks, applied once, is proven at each boot, and what was undone is not") {
  World world;
  const auto prove = [&] { return world.start([](Walk& walk) { return walk.prove_again(); }); };
  world.write("live/p", "yes");
  std::string looks = plan_of({"p:proof"});
  looks.replace(looks.find("test"), 4, "verify");
  REQUIRE(world.apply(looks)->state == RunState::ready);
  CHECK(prove()->state == RunState::ready);
  world.remove("live/p");
  CHECK(prove()->state == RunState::blocked);
  world.write("live/p", "yes");
  CHECK(prove()->state == RunState::ready);  // the card is back
  REQUIRE(world.apply(plan_of({"a:live", "p:proof after a"}))->state == RunState::ready);
  REQUIRE(world.revert()->result == "reverted");
  CHECK(prove()->result == "reverted");
}

TEST_CASE("a blocked run goes on by itself at the next boot, and not before") {
  World world;
  REQUIRE(world.apply(plan_of({"a:live", "b"}))->state == RunState::blocked);
  world.write("live/b", "yes");
  CHECK(world.go_on()->state == RunState::blocked);
  world.boot();
  CHECK(world.go_on()->result == "done");
}

TEST_CASE("what lasts for one boot is made again in the next, is undone with the rest, and is no proof") {
  World world;
  world.write("live/p", "yes");
  REQUIRE(world.apply(each_boot_plan())->state == RunState::ready);
  const auto reassert = [&] { return world.start([](Walk& walk) { return walk.reassert(); }); };
  world.remove("live/a");  // the boot
  world.remove("live/b");
  const auto run = reassert();
  REQUIRE(run);
  CHECK(run->plan == "each-boot");
  CHECK(run->result == "done");
  CHECK(world.has("live/a"));
  CHECK_FALSE(world.has("live/b"));  // drift, which the proof finds
  CHECK(world.start([](Walk& walk) { return walk.prove_again(); })->state == RunState::blocked);
  REQUIRE(world.revert()->result == "reverted");
  CHECK_FALSE(world.has("live/a"));
  CHECK(reassert()->result == "reverted");  // nothing to apply again
}
