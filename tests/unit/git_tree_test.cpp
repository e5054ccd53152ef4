// SPDX-License-Identifier: MIT
#include "base/fetch/git_tree.hpp"

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
    command.environment = {{"GIT_CONFIG_GLOBAL", "/dev/null"},
                           {"GIT_CONFIG_NOSYSTEM", "1"},
                           {"GIT_AUTHOR_NAME", "a"},
                           {"GIT_AUTHOR_EMAIL", "a"},
                           {"GIT_COMMITTER_NAME", "a"},
                           {"GIT_COMMITTER_EMAIL", "a"},
                           {"GIT_AUTHOR_DATE", "1700000000 +0000"},
                           {"GIT_COMMITTER_DATE", "1700000000 +0000"}};
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

TEST_CASE("git tree: a checkout is its commit to the byte, or what differs is an error") {
  const Tree tree;
  tree.git({"init", "--quiet"});
  tree.git({"add", "--all"});
  tree.git({"commit", "--quiet", "--message=x"});
  const std::string commit = first_line(tree.git({"rev-parse", "HEAD"}));
  tree.file("commit", tree.git({"cat-file", "commit", "HEAD"}));
  const auto check = [&] { return check_git_tree(tree.root(), "/tree", "/commit", commit); };
  REQUIRE(check());

  tree.file("tree/a.b", "3");
  CHECK(check().error().code == ErrorCode::invalid);
  tree.file("tree/a.b", "2");
  tree.file("tree/more", "");
  CHECK_FALSE(check());
  fs::remove(tree.directory / "tree/more");
  fs::permissions(tree.directory / "tree/run", fs::perms(0644));
  CHECK_FALSE(check());
  fs::permissions(tree.directory / "tree/run", fs::perms(0700));  // git knows one bit only
  CHECK(check());

  const std::string lie = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <a> 1 +0000\n\nx\n";
  tree.file("commit", lie);
  CHECK(check().error().message == "/commit is commit " + git_object_id("commit", lie) + ", not " + commit);
  tree.file("commit", "");
  CHECK(check().error().code == ErrorCode::invalid);
  fs::remove(tree.directory / "commit");
  CHECK(check().error().code == ErrorCode::not_found);
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
