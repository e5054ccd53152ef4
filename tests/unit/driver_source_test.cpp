// SPDX-License-Identifier: MIT
#include "forks.hpp"
#include "machine/driver/machine.hpp"

namespace p2pd {
extern const Probe kDriverSource;
extern const Action kDriverSourceAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

struct World : Forks {
  void need_staged() {
    const auto applied = apply(kDriverSourceAction);
    INFO((applied ? "" : applied.error().message));
    REQUIRE(applied);
    CHECK(check(kDriverSource)->verdict == Verdict::pass);
  }
  std::string staged_file() {
    std::ifstream in(directory / (source_of(entry()) + "/src/gpu.c"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path scratch() { return directory / unfinished(source_of(entry())); }
};

}  // namespace

TEST_CASE("driver-source: made once, applied twice, undone without a trace") {
  World world;
  const std::string before = world.picture();
  CHECK(world.check(kDriverSource)->summary == "the source of test/main is not made yet");
  world.need_staged();
  const Finding finding = world.check(kDriverSource).value();
  CHECK(finding.summary ==
        fmt::format("the source of test/main is there: NVIDIA's 9.9.9 with the patch {:.12}", world.pinned));
  CHECK(finding.evidence[0].value.size() == std::string("is git tree ").size() + 40);
  const std::string after = world.picture();
  const auto fetches = world.runner.count("git");
  REQUIRE(world.apply(kDriverSourceAction));
  CHECK(world.runner.count("git") == fetches);
  CHECK(world.picture() == after);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-source: bundles in a mirror's directory, one bundle, a prefix and a repository will do") {
  for (const std::string kind : {"directory", "bundle", "prefix", "repository"}) {
    INFO(kind);
    World world;
    const fs::path mirror = world.directory / "srv/mirror";
    fs::create_directories(mirror / "srv");
    world.with["mirrors"] = {"file:///srv/mirror"};
    const auto bundle = [&](const std::string& name) {
      world.fork->git({"bundle", "create", "--quiet", (mirror / name).string(), "main", "9.9.9"});
    };
    if (kind == "directory")
      for (const std::string& commit : {world.base, world.pinned}) bundle(commit + ".bundle");
    if (kind == "bundle") bundle("open.bundle");
    if (kind == "bundle") world.with["mirrors"] = {"file:///srv/mirror/open.bundle"};
    if (kind == "prefix")
      fs::copy(world.directory / "srv/git", mirror / "srv/git",
               fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    if (kind == "repository")
      world.fork->git({"clone", "--quiet", "--bare", world.fork->path.string(), (mirror / "x").string()});
    if (kind == "repository") world.with["mirrors"] = {"file:///srv/mirror/x"};
    fs::remove_all(world.directory / "srv/git");
    world.need_staged();
  }
}

TEST_CASE("driver-source: a server that has another commit under the name is told, with expected and found") {
  World world;
  world.fork->git({"reset", "--quiet", "--hard", world.base});
  const std::string other = world.fork->commit("something else");
  world.fork->forget_the_rest();
  const std::string before = world.picture();
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find("its refs/heads/main is " + other + ", and expected was " + world.pinned) !=
        std::string::npos);
  CHECK(applied.error().next.find("COMMIT.bundle") != std::string::npos);
  CHECK(world.check(kDriverSource)->verdict == Verdict::fail);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-source: a mirror with broken objects is passed over for the next source") {
  World world;
  const fs::path broken = world.directory / "srv/mirror/broken";
  world.fork->git({"clone", "--quiet", "--bare", "--no-hardlinks", world.fork->path.string(), broken.string()});
  for (const auto& found : fs::recursive_directory_iterator(broken / "objects"))
    if (found.is_regular_file() && found.file_size() > 60) {
      fs::permissions(found.path(), fs::perms(0644));
      std::fstream(found.path()).seekp(40) << "broken";
    }
  world.with["mirrors"] = {"file:///srv/mirror/broken"};
  world.need_staged();
  CHECK(world.staged_file() == world.patched_file);
}

TEST_CASE("driver-source: a mirror that sends too much is left for the next source") {
  World world;
  const GitRepository mirror(world.directory / "srv/mirror");
  mirror.put("big", "");
  fs::resize_file(mirror.path / "big", std::uint64_t{300} << 20);
  mirror.git({"config", "core.bigFileThreshold", "1m"});
  mirror.git({"config", "core.looseCompression", "1"});
  mirror.git({"config", "pack.compression", "0"});
  mirror.commit("big");
  world.with["mirrors"] = {"file:///srv/mirror"};
  world.need_staged();
  fs::rename(world.fork->path, world.directory / "srv/away");
  fs::remove_all(world.directory / "var/cache/p2pd");
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find("its data is broken, or more than 256 MiB") != std::string::npos);
}

TEST_CASE("driver-source: a tree or a record that was edited is no pass, and is made anew") {
  World world;
  world.need_staged();
  const std::string source = source_of(world.entry());
  world.file(source + "/src/gpu.c", "edited\n");
  CHECK(world.check(kDriverSource)
            ->summary.starts_with("the source of test/main is not the pinned one: " + source + " holds tree "));
  world.need_staged();
  CHECK(world.staged_file() == world.patched_file);
  for (const char* record : {"", "[]", "{}", R"({"tree": 1})"}) {
    world.file(source + ".json", record);
    CHECK(world.check(kDriverSource)->summary ==
          "the source of test/main is not the pinned one: " + source + ".json is of another source");
  }
  world.need_staged();
  world.patch()["tree"] = std::string(40, '1');  // the catalogue pins another since
  CHECK(world.check(kDriverSource)->verdict == Verdict::fail);
  world.patch().erase("tree");
  CHECK(world.check(kDriverSource)->verdict == Verdict::pass);
  world.release()["commit"] = std::string(40, '1');
  CHECK(world.check(kDriverSource)->verdict == Verdict::fail);
}

TEST_CASE("driver-source: what a kill left is cleared, by the next try or by undo") {
  World world;
  const std::string before = world.picture();
  REQUIRE(world.apply(kDriverSourceAction));
  const fs::path half = world.scratch() / "store/objects/pack/half";
  const auto put = [&] {
    fs::create_directories(half.parent_path());
    std::ofstream(half) << "x";
  };
  put();
  fs::remove_all(world.directory / source_of(world.entry()));
  world.need_staged();
  CHECK_FALSE(fs::exists(world.scratch()));
  put();
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-source: hooks and configuration of the machine do not act") {
  World world;
  world.file("srv/evil/hooks/post-checkout", "#!/bin/sh\ntouch \"$HACKED\"\n");
  fs::permissions(world.directory / "srv/evil/hooks/post-checkout", fs::perms(0755));
  world.file("srv/evil/config", "[core]\nhooksPath = " + (world.directory / "srv/evil/hooks").string() + "\n");
  ::setenv("GIT_CONFIG_GLOBAL", (world.directory / "srv/evil/config").c_str(), 1);
  ::setenv("GIT_TEMPLATE_DIR", (world.directory / "srv/evil").c_str(), 1);
  ::setenv("HACKED", (world.directory / "srv/hacked").c_str(), 1);
  world.need_staged();
  for (const char* name : {"GIT_CONFIG_GLOBAL", "GIT_TEMPLATE_DIR", "HACKED"}) ::unsetenv(name);
  CHECK_FALSE(fs::exists(world.directory / "srv/hacked"));
}

TEST_CASE("driver-source: a password in a mirror's URL is in no message") {
  World world;
  world.with["mirrors"] = {"http://user:secret@127.0.0.1:9"};  // nobody listens
  fs::remove_all(world.nvidia.path);
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find("http://127.0.0.1:9/srv/git/nvidia: ") != std::string::npos);
  CHECK(applied.error().message.find("secret") == std::string::npos);
}

TEST_CASE("driver-source: without git, source or room it says what lacks") {
  World world;
  fs::remove(world.directory / "usr/bin/git");
  CHECK(world.apply(kDriverSourceAction).error().next == "apt-get install git");
  world.program_named("git");
  fs::remove_all(world.directory / "srv/git");
  CHECK(world.apply(kDriverSourceAction).error().message ==
        "NVIDIA's release 9.9.9 could not be fetched: no mirror or repository is there");
  world.undo();
  const SmallDisk disk(world.directory / "var", "size=1m");
  if (!disk) return;
  CHECK(world.apply(kDriverSourceAction).error().message.find("MiB free") != std::string::npos);
  CHECK(fs::is_empty(world.directory / "var"));
}

TEST_CASE("driver-source: a patch that does not apply is not chosen again, until its log is removed") {
  World world;
  world.patch()["grafts"] = {{"9.9.8", nullptr}};
  world.with["entry"] = "test/main-on-9.9.8";
  const std::string fitting = world.release("9.9.8")["commit"];
  world.nvidia.git({"checkout", "--quiet", "--detach", world.older});
  world.nvidia.put("src/gpu.c", c_file(5, "int other;"));
  world.release("9.9.8")["commit"] = world.nvidia.commit("9.9.8");
  world.host();
  const std::string build = build_name(world.entry(), kNoSource);
  CHECK(world.apply(kDriverSourceAction).error().code == ErrorCode::invalid);
  const auto failed = [&] { return machine_of(world.host(), catalogue(world.host()).value()).value().failed_builds; };
  REQUIRE(failed().contains(build));
  CHECK(failed().at(build).find("src/gpu.c: patch does not apply") != std::string::npos);
  world.undo();
  CHECK(failed().contains(build));
  world.release("9.9.8")["commit"] = fitting;
  REQUIRE(world.apply(kDriverSourceAction));
  CHECK(failed().empty());
}
