// SPDX-License-Identifier: MIT
#include "base/kept_state.hpp"

#include <filesystem>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kPlace[] = "/var/lib/p2pd/kept";

struct Runs : ChangeRecorder {
  std::string now = "1-step";
  std::vector<std::string> recorded;
  Result<void> before_change(std::string_view path, Restore) override {
    recorded.emplace_back(path);
    return {};
  }
  std::string change() const override { return now; }
};

struct World {
  TemporaryDirectory directory;
  FakeRunner runner;
  Runs runs;
  Host host{Root::open(directory.path()).value(), runner, &runs};

  void keep(const std::string& run, const std::string& text) {
    runs.now = run;
    const auto kept = begin_kept(host, kPlace);
    REQUIRE(kept);
    REQUIRE(host.create(*kept + "/file", text));
  }
  std::string undo(const std::string& run) {
    runs.now = run;
    const std::string text = host.files().read(kept_for_undo(host, kPlace) + "/file").value_or("nothing");
    REQUIRE(clear_kept(host, kPlace));
    return text;
  }
};

}  // namespace

TEST_CASE("kept state: each run finds what it kept, and an undo that is run again finds nothing") {
  World world;
  world.keep("1-step", "before the first");
  world.keep("2-step", "before the second");
  CHECK(world.undo("2-step") == "before the second");
  CHECK(world.undo("2-step") == "nothing");
  CHECK(world.undo("1-step") == "before the first");
  CHECK_FALSE(world.host.files().exists(kPlace));
  CHECK(world.undo("1-step") == "nothing");
}

TEST_CASE("kept state: what an older p2pd kept is of the run that began nothing here") {
  World world;
  REQUIRE(world.host.create(std::string(kPlace) + "/file", "of an older p2pd"));
  world.keep("2-step", "before the second");
  CHECK(world.undo("2-step") == "before the second");
  CHECK(world.undo("2-step") == "nothing");
  CHECK(world.undo("1-step") == "of an older p2pd");
  CHECK_FALSE(world.host.files().exists(kPlace));
}

TEST_CASE("kept state: a killed undo that left the empty directory removes it when it is run again") {
  World world;
  world.keep("2-step", "before the second");
  fs::remove_all(world.directory.path() / "var/lib/p2pd/kept/2-step");
  CHECK(world.undo("2-step") == "nothing");
  CHECK_FALSE(world.host.files().exists(kPlace));
}

TEST_CASE("kept state: undo of a run that kept nothing leaves what another run kept") {
  World world;
  world.keep("1-step", "before the first");
  CHECK(world.undo("2-step") == "nothing");
  CHECK(world.undo("1-step") == "before the first");
  CHECK_FALSE(world.host.files().exists(kPlace));
}

TEST_CASE("kept state: a change is on record only once it has a directory, where an older p2pd kept something") {
  World world;
  REQUIRE(world.host.create(std::string(kPlace) + "/file", "of an older p2pd"));
  world.keep("2-step", "before the second");
  CHECK(world.runs.recorded == std::vector<std::string>{kPlace});
}
