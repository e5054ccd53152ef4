// SPDX-License-Identifier: MIT
#include "machine/fetch/git_tree.hpp"

#include <fstream>

#include "base/command.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

/// A tree with everything that git can keep, in the orders that are easily got wrong; and git, to ask.
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
