// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Steps that need each other: `gate` holds once `c` does, which needs `b`, which needs `a`.
std::string chain(const std::string& extra = "") {
  std::string yaml = "name: test\ntitle: t\npolicy: {on_failure: keep}\nsteps:\n";
  const auto row = [&](const char* kind, const std::string& name, const std::string& rest) {
    yaml += fmt::format("  - {{{}: {}, title: t, check: now, with: {{name: {}}}{}}}\n", kind, name, name, rest);
  };
  row("requires", "a", ", fix: live");
  row("requires", "b", ", fix: live, needs: [a" + extra + "]");
  if (!extra.empty())
    yaml.insert(yaml.find("  - {requires: b"), "  - {requires: x, title: t, check: now, with: {name: x}}\n");
  yaml += "  - {requires: c, title: t, check: now, fix: live, with: {name: c}, needs: [b]}\n";
  yaml += "  - {gate: gate, title: t, check: now, with: {name: c}, needs: [c]}\n";
  return yaml;
}

}  // namespace

TEST_CASE("needs: what a step without a fix needs is brought first, and what that needs before it") {
  World world;
  const auto run = world.apply(chain());
  INFO((run ? run->reason : run.error().message));
  REQUIRE(run);
  CHECK(run->state == RunState::idle);
  std::string order;
  for (const JournalEvent& event : world.events())
    if (event.type == "fixed") order += event.step;
  CHECK(order == "abc");
  CHECK(world.apply(chain())->state == RunState::idle);
  CHECK(world.count("fixed") == 3);
}

TEST_CASE("needs: what holds is not looked behind: its own needs may be gone") {
  World world;
  world.write("live/c", "yes");
  REQUIRE(world.apply(chain()));
  CHECK(world.count("fixed") == 0);
}

TEST_CASE("needs: what cannot be brought blocks before anything is changed, however far behind") {
  World world;
  const auto run = world.apply(chain(", x"));
  REQUIRE(run);
  CHECK(run->state == RunState::blocked);
  CHECK(run->reason.find("gate needs x: x is not so") != std::string::npos);
  CHECK(world.count("fixed") == 0);
  CHECK_FALSE(world.has("live/a"));
}

TEST_CASE("needs: a step that does not hold although all that it needs was brought: that is ineffective") {
  World world;
  std::string plan = chain();
  plan.replace(plan.find("with: {name: c}, needs: [c]"), 15, "with: {name: d}");
  const auto run = world.apply(plan);
  REQUIRE(run);
  CHECK(run->state == RunState::failed);
  CHECK(run->reason.find("gate: all its requirements are met, but d is not so") != std::string::npos);
}

TEST_CASE("needs: what was brought may undo what the step comes after, which is then looked at again") {
  World world;
  world.write("live/loaded", "the old one");
  world.fault("file", "breaks loaded");
  world.fault("loaded", "makes user");
  const char* plan = R"(name: test
title: t
steps:
  - {requires: file, title: t, check: now, fix: live, with: {name: file}}
  - {gate: loaded, title: t, check: now, fix: live, with: {name: loaded}}
  - {gate: user, title: t, check: now, with: {name: user}, after: [loaded], needs: [file]}
)";
  SECTION("and fixed") {
    const auto run = world.apply(plan);
    INFO((run ? run->reason : run.error().message));
    REQUIRE(run);
    CHECK(run->state == RunState::idle);
    CHECK(world.has("live/user"));
  }
  SECTION("where that does not help, either, it is ineffective") {
    world.fault("loaded", "");
    const auto run = world.apply(plan);
    REQUIRE(run);
    CHECK(run->state == RunState::failed);
    CHECK(run->reason.find("user: all its requirements are met, but user is not so") != std::string::npos);
  }
}

TEST_CASE("needs: a pause is heard between two of them, and a kill in one goes on there") {
  World world;
  world.asked = Event::pause;
  world.quiet_polls = 4;  // before the gate is checked, before it is fixed, before c and b
  CHECK(world.apply(chain())->state == RunState::paused);
  CHECK(world.count("fixed") == 0);
  const auto resumed = world.start([](Walk& walk) { return walk.request(Event::resume); });
  CHECK(resumed->state == RunState::idle);
  CHECK(world.has("live/c"));
  World cut;
  cut.fault("b", "cut");
  CHECK_THROWS_AS(cut.apply(chain()), PowerCut);
  cut.fault("b", "");
  const auto run = cut.go_on();
  REQUIRE(run);
  CHECK(run->state == RunState::idle);
  CHECK(cut.has("live/c"));
}

TEST_CASE("what a fix needs is brought before the fix is left to the reboot that is due anyway") {
  World world;
  world.write("want/b", "");  // the boot does it
  const std::string plan = R"(name: test
title: t
steps:
  - {gate: a, title: t, check: now, fix: boot, with: {name: a}}
  - {requires: image, title: t, check: now, fix: live, with: {name: image}}
  - {gate: b, title: t, check: now, fix: reboot, with: {name: b}, needs: [image]}
)";
  auto run = world.apply(plan);
  REQUIRE(run);
  CHECK(run->state == RunState::rebooting);
  CHECK(world.has("live/image"));
  CHECK(world.count("left-to-reboot") == 1);
  CHECK(world.settle(run)->result == "done");
}
