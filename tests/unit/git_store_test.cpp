// SPDX-License-Identifier: MIT
#include "machine/fetch/git_store.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "forks.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kNvidia[] = "/srv/git/nvidia", kFork[] = "/srv/git/fork", kMain[] = "refs/heads/main";

struct World : Forks {
  /// Servers refuse ids that no branch or tag has, as those of protocol 0 do.
  void refuse_ids() const {
    std::ofstream(directory / "var/store/config", std::ios::app) << "[protocol]\nversion = 0\n";
  }
  void shallow_clone() const {
    fork->git({"clone", "--quiet", "--bare", "--depth=1", "file://" + fork->path.string(),
               (directory / "srv/git/shallow").string()});
  }

  Host machine = host();
  GitStore store = GitStore::make(machine, "/var/store").value();
};

}  // namespace

TEST_CASE("git store: a branch, a tag that is an object of its own, and one that is not there") {
  const World world;
  CHECK(world.store.commit_of(kNvidia, "refs/tags/9.9.8").value() == world.older);
  CHECK(world.store.commit_of(kNvidia, "refs/tags/9.9.9").value() == world.base);
  CHECK(world.store.commit_of(kNvidia, kMain).value() == world.base);
  const Error none = world.store.commit_of(kNvidia, "refs/tags/9.9.7").error();
  CHECK(none.code == ErrorCode::not_found);
  CHECK(none.message == "/srv/git/nvidia has no refs/tags/9.9.7");
  const Error nowhere = world.store.commit_of("/srv/git/nothing", kMain).error();
  CHECK(nowhere.message.starts_with("/srv/git/nothing: "));
  CHECK(nowhere.next.starts_with("Check the address"));
}

TEST_CASE("git store: a commit comes by its id, without its history") {
  World world;
  REQUIRE(world.store.fetch(kFork, world.pinned, kMain));
  CHECK(world.store.has(world.pinned));
  CHECK_FALSE(world.store.has(world.base));
  CHECK(world.store.file(world.pinned, "src/gpu.c").value() == world.patched_file);
  for (const char* path : {"src", "link", "src/none.c"})
    CHECK(world.store.file(world.pinned, path).error().code == ErrorCode::not_found);
  const auto fetches = world.runner.count("prlimit");
  REQUIRE(world.store.fetch("/srv/git/nothing", world.pinned, kMain));  // it is there
  CHECK(world.runner.count("prlimit") == fetches);
}

TEST_CASE("git store: a server that refuses ids is asked for its branch") {
  World world;
  world.refuse_ids();
  REQUIRE(world.store.fetch(kFork, world.pinned, kMain));
  CHECK(world.store.require_descent(kFork, world.pinned, kMain, world.base));
  const std::string other(40, '1');
  const Error moved = world.store.fetch(kFork, other, kMain).error();
  CHECK(moved.code == ErrorCode::invalid);
  CHECK(moved.message == "/srv/git/fork: its refs/heads/main is " + world.fork->git({"rev-parse", "main"}) +
                             ", and expected was " + other + ", which it does not have");
}

TEST_CASE("git store: a commit descends from a release, or does not") {
  World world;
  CHECK(world.store.require_descent(kFork, world.pinned, kMain, world.base));
  CHECK(world.store.require_descent(kFork, world.pinned, kMain, world.older));
  world.fork->git({"config", "uploadpack.allowFilter", "true"});  // as a repository that others fetch from may have it
  CHECK(world.store.require_descent(kFork, world.pinned, kMain, world.older));
  CHECK(world.store.require_descent(kNvidia, world.base, kMain, world.base));
  const Error not_on_it = world.store.require_descent(kNvidia, world.older, kMain, world.base).error();
  CHECK(not_on_it.code == ErrorCode::invalid);
  CHECK(not_on_it.message == fmt::format("{:.12} does not descend from {:.12}, the release that it is said to change",
                                         world.older, world.base));
  CHECK_FALSE(world.store.require_descent(kNvidia, world.base, kMain, world.pinned));  // which that place never had
  const Error absent = world.store.require_descent(kNvidia, world.pinned, kMain, world.base).error();
  CHECK(absent.code == ErrorCode::not_found);  // another place may tell
  CHECK(absent.message == fmt::format("{} does not have {:.12}", kNvidia, world.pinned));
  CHECK_FALSE(fs::exists(world.directory / "var/store/history"));
}

TEST_CASE("git store: plain files over HTTP are refused, since nothing bounds their number") {
  World world;
  world.fork->git({"update-server-info"});
  const std::string port = (world.directory / "port").string();
  const std::string serve = fmt::format(R"(
import functools, http.server
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="{}/.git")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
open("{}", "w").write("%d\n" % server.server_port)
server.serve_forever())",
                                        world.fork->path.string(), port);
  const pid_t server = ::fork();
  if (server == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);  // it logs each request
    ::_exit(::execlp("python3", "python3", "-c", serve.c_str(), nullptr));
  }
  std::string number;
  for (int i = 0; i < 1000 && number.empty(); ++i, ::usleep(10'000)) {
    std::ifstream file(port);
    std::getline(file, number);
  }
  const std::string place = "http://127.0.0.1:" + number;
  const auto refused = [](const Result<void>& fetched) {
    INFO((fetched ? "fetched" : fetched.error().message));
    CHECK((!fetched && fetched.error().message.find("dumb http transport does not support") != std::string::npos));
  };
  CHECK(world.store.commit_of(place, kMain));
  refused(world.store.fetch(place, world.pinned, kMain));
  refused(world.store.require_descent(place, world.pinned, kMain, world.base));
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
}

TEST_CASE("git store: a shallow clone has the files, and cannot tell the descent") {
  World world;
  world.pin_change([](const GitRepository& fork) { fork.put("src/gpu.c", "int x;\n"); });
  world.shallow_clone();
  const std::string commit = world.patch()["commit"];
  CHECK(world.store.fetch("/srv/git/shallow", commit, kMain));
  const Error shallow = world.store.require_descent("/srv/git/shallow", commit, kMain, world.base).error();
  CHECK(shallow.code == ErrorCode::not_found);
  CHECK(shallow.message ==
        fmt::format("/srv/git/shallow is a shallow clone: it does not show whether {:.12} descends from {:.12}", commit,
                    world.base));
  CHECK_FALSE(fs::exists(world.directory / "var/store/history"));
}
