// SPDX-License-Identifier: MIT
#include "base/driver/staging.hpp"
#include "staged.hpp"

namespace p2pd {
extern const Probe kDriverSource;
extern const Action kDriverSourceAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

/// A host whose /srv/git/open-modules is a repository with two commits; the first is the pinned one.
struct World : Staged {
  World() {
    repository = directory / "srv/git/open-modules";
    fs::create_directories(repository);
    git({"init", "--quiet", "--initial-branch=main"});
    const std::string place = "srv/git/open-modules/";
    file(place + ".gitattributes",
         "*.txt text eol=crlf\nident ident\nbig filter=lfs\nexported export-subst export-ignore\n");
    file(place + "a.txt", "one\ntwo\n");
    file(place + "ident", "$Id$\n");
    file(place + "exported", "$Format:%H$\n");
    file(place + "kernel-open/Makefile", "modules:\n");
    file(place + "conftest.sh", "#!/bin/sh\n");
    fs::permissions(repository / "conftest.sh", fs::perms(0755));
    fs::create_symlink("kernel-open/Makefile", repository / "link");
    git({"-c", "core.safecrlf=false", "add", "--all"});
    pinned = commit("pinned");
    file(place + "a.txt", "three\n");
    git({"add", "--all"});
    newer = commit("newer");
    entry["commit"] = pinned;
    host();
  }
  std::string git(std::vector<std::string> words) const {
    Command command{{"git", "-C", repository.string()}};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = {{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"},
                           {"GIT_AUTHOR_NAME", "a"},           {"GIT_AUTHOR_EMAIL", "a@b"},
                           {"GIT_COMMITTER_NAME", "a"},        {"GIT_COMMITTER_EMAIL", "a@b"}};
    ProcessRunner real;
    const CommandResult result = real.run(command).value();
    INFO(command.text() << "\n" << result.errors);
    REQUIRE(result.status == 0);
    return result.output.substr(0, result.output.find('\n'));
  }
  std::string commit(const std::string& message) const {
    git({"commit", "--quiet", "--message=" + message});
    return git({"rev-parse", "HEAD"});
  }
  std::string staged(const std::string& path) const {
    std::ifstream in(directory / ("var/cache/p2pd/sources/" + pinned + "/" + path), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void need_staged() {
    const auto applied = apply(kDriverSourceAction);
    INFO((applied ? "" : applied.error().message));
    REQUIRE(applied);
    CHECK(check(kDriverSource)->verdict == Verdict::pass);
  }

  fs::path repository;
  std::string pinned, newer;
};

}  // namespace

TEST_CASE("driver-source: the pinned commit, not the branch's; applied twice; undone without a trace") {
  World world;
  const std::string before = world.picture();
  CHECK(world.check(kDriverSource)->verdict == Verdict::fail);
  world.need_staged();
  CHECK(world.staged("a.txt") == "one\ntwo\n");  // as it is in the commit, whatever .gitattributes say
  CHECK(world.staged("ident") == "$Id$\n");
  CHECK(world.staged("exported") == "$Format:%H$\n");
  CHECK_FALSE(fs::exists(world.directory / ("var/cache/p2pd/sources/" + world.pinned + "/.git")));
  const std::string after = world.picture();
  const auto fetches = world.runner.count("git");
  REQUIRE(world.apply(kDriverSourceAction));
  CHECK(world.runner.count("git") == fetches);
  CHECK(world.picture() == after);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-source: a bundle in a mirror's directory, a bundle, a prefix and a repository will do") {
  for (const std::string kind : {"directory", "bundle", "prefix", "repository"}) {
    INFO(kind);
    World world;
    const fs::path mirror = world.directory / "srv/mirror";
    fs::create_directories(mirror / "srv/git");
    world.with["mirrors"] = {"file:///srv/mirror"};
    const std::string bundle = kind == "directory" ? world.pinned + ".bundle" : "open.bundle";
    if (kind == "directory" || kind == "bundle")
      world.git({"bundle", "create", "--quiet", (mirror / bundle).string(), "main"});
    if (kind == "bundle") world.with["mirrors"] = {"file:///srv/mirror/open.bundle"};
    if (kind == "prefix") fs::copy(world.repository, mirror / "srv/git/open-modules", fs::copy_options::recursive);
    if (kind == "repository")
      world.git({"clone", "--quiet", "--bare", world.repository.string(), (mirror / "x").string()});
    if (kind == "repository") world.with["mirrors"] = {"file:///srv/mirror/x"};
    fs::remove_all(world.repository);
    world.need_staged();
  }
}

TEST_CASE("driver-source: a server that has another commit under the name is told, with expected and found") {
  World world;
  world.git({"checkout", "--quiet", "--orphan", "other"});
  const std::string other = world.commit("something else");
  world.git({"branch", "--force", "main", other});
  world.git({"reflog", "expire", "--expire=now", "--all"});
  world.git({"gc", "--quiet", "--prune=now"});
  const std::string before = world.picture();
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find("its main is " + other + ", and expected was " + world.pinned) !=
        std::string::npos);
  CHECK(applied.error().next.find(world.pinned + ".bundle") != std::string::npos);
  CHECK(world.check(kDriverSource)->verdict == Verdict::fail);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-source: a mirror with broken objects is passed over for the next source") {
  World world;
  const fs::path broken = world.directory / "srv/mirror/broken";
  world.git({"clone", "--quiet", "--bare", "--no-hardlinks", world.repository.string(), broken.string()});
  for (const auto& found : fs::recursive_directory_iterator(broken / "objects"))
    if (found.is_regular_file() && found.file_size() > 60) {
      fs::permissions(found.path(), fs::perms(0644));
      std::fstream(found.path()).seekp(40) << "broken";
    }
  world.with["mirrors"] = {"file:///srv/mirror/broken"};
  world.need_staged();
  CHECK(world.staged("a.txt") == "one\ntwo\n");
}

TEST_CASE("driver-source: a mirror that sends too much is left for the next source") {
  World world;
  const std::string mirror = (world.directory / "srv/mirror").string();
  world.git({"init", "--quiet", "--initial-branch=main", mirror});
  world.file("srv/mirror/big", "");
  fs::resize_file(mirror + "/big", std::uint64_t{300} << 20);
  world.git({"-C", mirror, "config", "core.bigFileThreshold", "1m"});
  world.git({"-C", mirror, "config", "core.looseCompression", "1"});
  world.git({"-C", mirror, "config", "pack.compression", "0"});
  world.git({"-C", mirror, "add", "big"});
  world.git({"-C", mirror, "commit", "--quiet", "--message=big"});
  world.with["mirrors"] = {"file:///srv/mirror"};
  world.need_staged();
  fs::rename(world.repository, world.directory / "srv/away");
  fs::remove_all(world.directory / "var/cache/p2pd");
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find("what it sends is broken, or more than 256 MiB") != std::string::npos);
}

TEST_CASE("driver-source: a tree that was edited is no pass, and is fetched anew") {
  World world;
  world.need_staged();
  world.file("var/cache/p2pd/sources/" + world.pinned + "/a.txt", "edited\n");
  const auto finding = world.check(kDriverSource);
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->summary.find("is not the pinned commit") != std::string::npos);
  world.need_staged();
  CHECK(world.staged("a.txt") == "one\ntwo\n");
}

TEST_CASE("driver-source: what a kill left is cleared, by the next try or by undo") {
  World world;
  const std::string before = world.picture();
  REQUIRE(world.apply(kDriverSourceAction));
  const std::string scratch = "var/cache/p2pd/sources/." + world.pinned + ".new";
  world.file(scratch + "/git/objects/pack/half", "x");
  fs::remove_all(world.directory / ("var/cache/p2pd/sources/" + world.pinned));
  world.need_staged();
  CHECK_FALSE(fs::exists(world.directory / scratch));
  world.file(scratch + "/git/objects/pack/half", "x");
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
  fs::remove_all(world.repository);
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);
  CHECK(applied.error().message.find("http://127.0.0.1:9/srv/git/open-modules: ") != std::string::npos);
  CHECK(applied.error().message.find("secret") == std::string::npos);
}

TEST_CASE("driver-source: without git, source or room it says what lacks") {
  World world;
  fs::remove(world.directory / "usr/bin/git");
  CHECK(world.apply(kDriverSourceAction).error().next == "apt-get install git");
  world.program_named("git");
  fs::remove_all(world.repository);
  const auto nowhere = world.apply(kDriverSourceAction);
  CHECK(nowhere.error().message.find("no mirror or repository is there") != std::string::npos);
  world.undo();
  const SmallDisk disk(world.directory / "var", "size=1m");
  if (!disk) return;
  CHECK(world.apply(kDriverSourceAction).error().message.find("MiB free") != std::string::npos);
  CHECK(fs::is_empty(world.directory / "var"));
}
