// SPDX-License-Identifier: MIT
// Commits that are fetched from servers, and the ids of trees of files (machine/fetch/git_store.hpp).
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

/// A tree with every kind of entry of git, in orders that are easy to get wrong; and git, to compare with.
struct Tree {
  Tree() {
    file("tree/a", "1");
    file("tree/a.b", "2");
    file("tree/a-b/deep/er", "3");
    file("tree/a.d/x", "4");
    file("tree/a0", std::string("\0\r\n$Id$\n", 8));
    file("tree/caf\xc3\xa9 \xff\n", "");
    file("tree/run", "#!/bin/sh\n");
    fs::permissions(directory / "tree/run", fs::perms(0755));
    fs::create_directories(directory / "tree/empty/emptier");
    fs::create_symlink("/nowhere/at all", directory / "tree/link");
  }
  void file(const std::string& path, const std::string& content) const {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path, std::ios::binary) << content;
  }
  std::string git(std::vector<std::string> words) const {
    Command command{
        {"git", "--git-dir=" + (directory / "git").string(), "--work-tree=" + (directory / "tree").string()}};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = {{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
    ProcessRunner runner;
    const CommandResult result = runner.run(command).value();
    INFO(result.errors);
    REQUIRE(result.status == 0);
    return result.output;
  }
  Root root() const { return Root::open(directory.path()).value(); }

  test::TemporaryDirectory directory;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

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
  CHECK_FALSE(world.store.require_descent(kNvidia, world.base, kMain, world.pinned));  // which that place lacks
  const Error absent = world.store.require_descent(kNvidia, world.pinned, kMain, world.base).error();
  CHECK(absent.code == ErrorCode::not_found);  // another place may have it
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

TEST_CASE("git tree: ids are those of git") {
  const Tree tree;
  tree.git({"init", "--quiet"});
  tree.git({"add", "--all"});
  CHECK(git_tree_id(tree.root(), "/tree").value() == first_line(tree.git({"write-tree"})));
  CHECK(git_object_id("blob", "3") == first_line(tree.git({"rev-parse", ":a-b/deep/er"})));
  CHECK(git_tree_id(tree.root(), "/tree/empty").value() == "4b825dc642cb6eb9a060e54bf8d69288fbee4904");  // of no files
}

TEST_CASE("git tree: whatever differs is another tree, but for what git does not know") {
  const Tree tree;
  const auto id = [&] { return git_tree_id(tree.root(), "/tree").value(); };
  const std::string before = id();
  tree.file("tree/a.b", "3");
  CHECK(id() != before);
  tree.file("tree/a.b", "2");
  tree.file("tree/more", "");
  CHECK(id() != before);
  fs::remove(tree.directory / "tree/more");
  fs::permissions(tree.directory / "tree/run", fs::perms(0644));
  CHECK(id() != before);
  fs::permissions(tree.directory / "tree/run", fs::perms(0700));  // git knows one bit only
  CHECK(id() == before);
}

TEST_CASE("git tree: what cannot be in a commit is an error") {
  const Tree tree;
  REQUIRE(::mkfifo((tree.directory / "tree/pipe").c_str(), 0600) == 0);
  CHECK(git_tree_id(tree.root(), "/tree").error().code == ErrorCode::invalid);
  fs::remove(tree.directory / "tree/pipe");
  std::string deep = "tree";
  for (int i = 0; i < 70; ++i) deep += "/d";
  tree.file(deep + "/f", "");
  CHECK(git_tree_id(tree.root(), "/tree").error().code == ErrorCode::invalid);
}
