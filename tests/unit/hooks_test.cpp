// SPDX-License-Identifier: MIT
// Hooks of the administrator, run by the real run-parts.
#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace fs = std::filesystem;

namespace {

constexpr const char* kNote = R"(echo "$(basename "$0") $P2PD_PLAN $P2PD_RESULT" >>"$WORLD/said")";
constexpr const char* kUnlessThere = R"([ -e "$WORLD/drained" ] || { echo "2 jobs run" >&2; exit 1; })";

void note_all(const World& world) {
  for (const char* name : {"before-change.d/before", "after-ready.d/after", "on-failure.d/failed"})
    world.hook(name, kNote);
}

}  // namespace

TEST_CASE("hooks run once before the first change, over the reboots, and after the end") {
  World world;
  note_all(world);
  const auto run = world.settle(world.apply(plan_of({"a:boot", "b:live"})));
  CHECK(run->result == "done");
  CHECK(world.read("said") == "before test \nafter test done\n");
  CHECK(world.count("hooks") == 2);
}

TEST_CASE("no hook runs before a run that changes nothing, and none without programs") {
  World world;
  note_all(world);
  REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
  world.remove("said");
  REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
  CHECK(world.read("said") == "after test done\n");
  World other;
  REQUIRE(other.apply(plan_of({"a:live"}))->result == "done");
  CHECK(other.count("hooks") == 0);
}

TEST_CASE("a hook that fails means busy: nothing is changed until it passes") {
  World world;
  world.hook("before-change.d/drain", kUnlessThere);
  world.on_wait = [&] {
    CHECK(world.waited_for.find("2 jobs run") != std::string::npos);
    CHECK_FALSE(world.has("live/a"));
    world.write("drained", "");
  };
  const auto run = world.apply(plan_of({"a:live"}, "{busy: wait}"));
  CHECK(run->result == "done");
  CHECK(world.has("live/a"));
}

TEST_CASE("a hook that fails blocks a plan that does not wait") {
  World world;
  world.hook("before-change.d/drain", kUnlessThere);
  const auto run = world.apply(plan_of({"a:live"}, "{busy: block}"));
  CHECK(run->state == RunState::blocked);
  CHECK(run->reason.find("2 jobs run") != std::string::npos);
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("after a run that failed the other hooks run, once its changes are undone") {
  World world;
  note_all(world);
  world.hook("on-failure.d/failed", std::string(kNote) + R"(; [ -e "$WORLD/live/a" ] && echo changed >>"$WORLD/said")");
  world.fault("b", "error");
  const auto run = world.settle(world.apply(plan_of({"a:live", "b:live"}, "{on_failure: revert}")));
  CHECK(run->result == "failed");
  CHECK(world.read("said") == "before test \nfailed test failed\n");
  CHECK(world.count("warning") == 1);  // the last command of the hook is false
}

TEST_CASE("a revert asks the hooks before, waits for them with a bound, and tells them after") {
  World world;
  REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
  note_all(world);
  int waited = 0;
  world.on_wait = [&] { ++waited; };
  SECTION("they pass") {
    CHECK(world.settle(world.revert())->result == "reverted");
    CHECK(world.read("said") == "before test \nfailed test reverted\n");
    CHECK(waited == 0);
  }
  SECTION("they never pass") {
    world.hook("before-change.d/never", "exit 1");
    CHECK(world.settle(world.revert())->result == "reverted");
    CHECK(waited == 900);
    CHECK(world.count("warning") == 1);
  }
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("a hook can be a link") {
  World world;
  world.hook("elsewhere", kNote);
  fs::create_directories(world.path("etc/p2pd/hooks/before-change.d"));
  fs::create_symlink("../elsewhere", world.path("etc/p2pd/hooks/before-change.d/linked"));
  REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
  CHECK(world.read("said") == "linked test \n");
}

TEST_CASE("a hook that others can change is not run") {
  World world;
  note_all(world);
  const std::string name =
      "etc/p2pd/hooks/" + GENERATE(std::string("before-change.d/before"), std::string("after-ready.d"));
  const auto perms = GENERATE(fs::perms::group_write, fs::perms::others_write);
  fs::permissions(world.path(name), perms, fs::perm_options::add);
  world.on_wait = [] { FAIL("nobody else ends this wait"); };
  const auto run = world.apply(plan_of({"a:live"}, "{busy: wait}"));
  CHECK(run->state == RunState::blocked);
  CHECK(run->reason.find(" is not run: ") != std::string::npos);
  CHECK(run->reason.find(name + " is writable by others than root; next: sudo chmod go-w ") != std::string::npos);
  CHECK_FALSE(world.has("said"));
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("a hook that run-parts skips, in any directory, blocks the first change until a person acts") {
  World world;
  note_all(world);
  const std::string directory = GENERATE(as<std::string>(), "before-change.d", "after-ready.d", "on-failure.d");
  std::string next;
  SECTION("by its name") {
    world.hook(directory + "/drain.sh", kNote);
    next = directory + "/drain.sh is not run: run-parts skips its name; next: rename it ";
  }
  SECTION("by its mode") {
    world.write("etc/p2pd/hooks/" + directory + "/drain", "#!/bin/sh\n");
    next = directory + "/drain is not run: it is not executable; next: \"sudo chmod +x /etc/p2pd/hooks/";
  }
  world.on_wait = [] { FAIL("nobody else ends this wait"); };
  const auto run = world.apply(plan_of({"a:live"}, "{busy: wait}"));
  CHECK(run->state == RunState::blocked);
  INFO(run->reason);
  CHECK(run->reason.find(next) != std::string::npos);
  CHECK_FALSE(world.has("said"));
  CHECK_FALSE(world.has("live/a"));

  for (const char* name : {"/drain.sh", "/drain"}) world.remove("etc/p2pd/hooks/" + directory + name);
  CHECK(world.apply(plan_of({"a:live"}))->result == "done");
  CHECK(world.read("said") == "before test \nafter test done\n");
}

TEST_CASE("directories, hidden files and leftovers among the hooks are no hooks") {
  World world;
  note_all(world);
  for (const char* name : {"before.dpkg-old", "before~", ".before.swp", "lib/functions.sh"})
    world.write(std::string("etc/p2pd/hooks/before-change.d/") + name, "");
  CHECK(world.apply(plan_of({"a:live"}))->result == "done");
  CHECK(world.count("hooks") == 2);
  CHECK(world.count("warning") == 0);
}

TEST_CASE("a skipped hook after the end, or before a revert, is a warning, and the others run") {
  World world;
  note_all(world);
  SECTION("after the end") {
    world.hook("before-change.d/late", R"(echo >"$WORLD/etc/p2pd/hooks/after-ready.d/resume.sh")");
    REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
    CHECK(world.read("said") == "before test \nafter test done\n");
  }
  SECTION("before a revert") {
    REQUIRE(world.apply(plan_of({"a:live"}))->result == "done");
    world.remove("said");
    world.hook("before-change.d/drain.sh", kNote);
    CHECK(world.settle(world.revert())->result == "reverted");
    CHECK(world.waited_for.find("drain.sh") == std::string::npos);
    CHECK(world.read("said") == "before test \nfailed test reverted\n");
  }
  CHECK(world.count("warning") == 1);
}
