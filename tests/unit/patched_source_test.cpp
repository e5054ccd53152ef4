// SPDX-License-Identifier: MIT
#include "machine/catalogue/patched_source.hpp"

#include "base/sha256.hpp"
#include "forks.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

struct World : Forks {
  /// The entry, usable or not: "p2pctl catalogue add" makes sources of what is not pinned yet.
  CatalogueEntry entry() {
    const Catalogue all = catalogue(host()).value();
    return *std::ranges::find(all.entries, with["entry"].get<std::string>(), &CatalogueEntry::id);
  }
  Result<PatchedSource> make(const std::vector<std::string>& mirrors = {}) {
    Host machine = host();
    fs::remove_all(directory / "var/store");
    GitStore store = TRY(GitStore::make(machine, "/var/store"));
    return make_patched_source(machine, store, TRY(catalogue(machine)), entry(), mirrors);
  }
  Result<void> stage() {
    Host machine = host();
    return stage_source(machine, TRY(catalogue(machine)), entry(), {});
  }
  /// The Error of a source that is not staged, and of which nothing stays.
  Error refused() {
    const auto staged = stage();
    REQUIRE_FALSE(staged);
    const fs::path sources = directory / "var/cache/p2pd/sources";
    CHECK((!fs::exists(sources) || fs::is_empty(sources)));
    UNSCOPED_INFO(staged.error().message << " | " << staged.error().next);
    CHECK_FALSE(staged.error().next.empty());
    return staged.error();
  }
  std::string staged(const std::string& path) { return text_of(directory / (source_of(entry()) + path)); }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void graft() {
    patch()["grafts"] = {{"9.9.8", nullptr}};
    with["entry"] = "test/main-on-9.9.8";
  }
  /// Takes the patch from a file in place of the fork.
  void patch_file(const std::string& text) {
    file("srv/p2p.patch", text);
    patch() = {{"file", "file:///srv/p2p.patch"},
               {"sha256", sha256_of(text)},
               {"known", "verified"},
               {"base", "9.9.9"},
               {"architectures", {{"Ada", "reported"}}}};
  }
};

/// A patch that adds `path`.
std::string adds(const std::string& path, const std::string& mode = "100644") {
  return fmt::format("diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n", path,
                     mode);
}

}  // namespace

TEST_CASE("patched source: the release with the fork's C files, and nothing else of the fork") {
  World world;
  const PatchedSource made = world.make().value();
  CHECK(made.base_commit == world.base);
  CHECK(made.made_for_commit == world.base);
  CHECK(made.commit == world.pinned);
  CHECK(made.left_out == std::vector<std::string>{"README.md"});
  CHECK(made.stat.back() == " 3 files changed, 2 insertions(+), 1 deletion(-)");
  REQUIRE(world.stage());
  CHECK(world.staged("/src/gpu.c") == world.patched_file);
  CHECK(world.staged("/src/p2p.h") == "int p2p;\n");
  CHECK(world.staged("/version.mk") == "NVIDIA_VERSION = 9.9.9\n");
  CHECK(world.staged("/a.txt") == "one\ntwo\n");  // as in the commit, whatever .gitattributes say
  CHECK(world.staged("/ident") == "$Id$\n");
  CHECK(world.staged("/exported") == "$Format:%H$\n");
  CHECK(world.staged(".patch") == made.patch);
  for (const char* path : {"/README.md", "/src/old.h", "/.git"})
    CHECK_FALSE(fs::exists(world.directory / (source_of(world.entry()) + path)));
  CHECK(parse_json(world.staged(".json")) == nlohmann::json{{"entry", "test/main"},
                                                            {"release", "9.9.9"},
                                                            {"base_commit", world.base},
                                                            {"commit", world.pinned},
                                                            {"tree", made.tree},
                                                            {"left_out", {"README.md"}}});
  CHECK(check_source(world.host(), world.entry()).value() == made.tree);
}

TEST_CASE("patched source: a graft is the change on another release") {
  World world;
  world.graft();
  CHECK(world.make()->left_out == std::vector<std::string>{"README.md"});
  REQUIRE(world.stage());
  CHECK(world.staged("/src/gpu.c") == c_file(5, "int patched;"));
  CHECK(world.staged("/version.mk") == "NVIDIA_VERSION = 9.9.8\n");

  world.nvidia.git({"checkout", "--quiet", "--detach", world.older});
  world.nvidia.put("src/gpu.c", c_file(5, "int other;"));
  world.release("9.9.8")["commit"] = world.nvidia.commit("9.9.8");
  fs::remove_all(world.directory / "var/cache");
  const std::string message = world.refused().message;
  CHECK(message.starts_with("the patch of test/main-on-9.9.8 on NVIDIA's 9.9.8: "));
  CHECK(message.find("src/gpu.c: patch does not apply") != std::string::npos);
}

TEST_CASE("patched source: a patch file makes what the commit makes") {
  World world;
  const PatchedSource by_commit = world.make().value();
  world.patch_file(by_commit.patch);
  const PatchedSource by_file = world.make().value();
  CHECK(by_file.tree == by_commit.tree);
  CHECK(by_file.patch == by_commit.patch);
  CHECK(by_file.commit == sha256_of(by_commit.patch));
  REQUIRE(world.stage());
  CHECK(world.staged("/src/gpu.c") == world.patched_file);
}

TEST_CASE("patched source: a pinned tree must agree") {
  World world;
  world.patch()["tree"] = world.make()->tree;
  CHECK(world.make());
  world.pin_change([](const GitRepository& fork) { fork.put("src/gpu.c", "int x;\n"); });
  const Error error = world.refused();
  CHECK(error.code == ErrorCode::invalid);
  CHECK(error.message.find("and expected was " + world.patch()["tree"].get<std::string>()) != std::string::npos);
}

TEST_CASE("patched source: of a shallow clone, the pinned tree or another clone must tell what no history does") {
  World world;
  world.pin_change([](const GitRepository& fork) { fork.put("src/gpu.c", "int x;\n"); });
  const std::string tree = world.make()->tree;
  world.fork->git({"clone", "--quiet", "--bare", "--depth=1", "file://" + world.fork->path.string(),
                   (world.directory / "srv/git/shallow").string()});
  world.patch()["repository"] = "file:///srv/git/shallow";
  CHECK(world.refused().message.starts_with("/srv/git/shallow is a shallow clone"));
  world.patch()["also_in"] = {"file:///srv/git/fork"};
  CHECK(world.make());
  world.patch().erase("also_in");
  world.patch()["tree"] = tree;
  CHECK(world.stage());
}

TEST_CASE("patched source: a commit that is no patch on its release, or more than C files, is refused") {
  struct Row {
    std::function<void(const GitRepository&)> change;
    std::string message;
  };
  const Row rows[] = {
      {[](const GitRepository& fork) { fork.put("kernel-open/conftest.sh", "#!/bin/sh\nrm -rf /\n"); },
       "the patch of test/main touches kernel-open/conftest.sh, which is no C file: it can run while the modules are "
       "built"},
      {[](const GitRepository& fork) { fork.put("src/Makefile", "x:\n"); },
       "the patch of test/main touches src/Makefile, which is no C file: it can run while the modules are built"},
      {[](const GitRepository& fork) {
         fs::remove(fork.path / "src/gpu.c");
         fs::create_symlink("/etc/passwd", fork.path / "src/gpu.c");
       },
       "the patch of test/main touches src/gpu.c, which is a symbolic link"},
      {[](const GitRepository& fork) { fs::permissions(fork.path / "src/gpu.c", fs::perms(0755)); },
       "the patch of test/main touches src/gpu.c, which has mode 100755"},
      {[](const GitRepository& fork) { fork.put("README.md", "x"); },
       " changes nothing in NVIDIA's 9.9.9: it is no patch"},
      {[](const GitRepository& fork) {
         fork.git({"reset", "--quiet", "--hard", "9.9.8"});
         fork.put("src/gpu.c", "int x;\n");
       },
       ", the release that it is said to change"},
  };
  World world;
  for (const Row& row : rows) {
    INFO(row.message);
    world.pin_change(row.change);
    const Error error = world.refused();
    CHECK(error.code == ErrorCode::invalid);
    CHECK(error.message.find(row.message) != std::string::npos);
  }
}

TEST_CASE("patched source: a tag that was moved does not count where the release is pinned") {
  World world;
  world.nvidia.git({"reset", "--quiet", "--hard", world.older});
  world.nvidia.put("src/gpu.c", "int other;\n");
  const std::string other = world.nvidia.commit("9.9.9, again");
  world.nvidia.git({"tag", "--force", "9.9.9"});
  REQUIRE(world.stage());  // the old commit is still there
  CHECK(world.staged("/src/gpu.c") == world.patched_file);
  fs::remove_all(world.directory / "var/cache");
  world.nvidia.forget_the_rest();
  const Error error = world.refused();
  CHECK(error.message == fmt::format("NVIDIA's release 9.9.9 could not be fetched: /srv/git/nvidia: its "
                                     "refs/tags/9.9.9 is {}, and expected was {}, which it does not have",
                                     other, world.base));
}

TEST_CASE("patched source: of a release that is not pinned, the tag is taken if the patch descends from it") {
  World world;
  world.release().erase("commit");
  CHECK(world.make()->base_commit == world.base);
  CHECK(world.stage());
  CHECK(check_source(world.host(), world.entry()));
  fs::remove_all(world.directory / "var/cache");
  world.nvidia.put("src/gpu.c", "int other;\n");
  world.nvidia.commit("9.9.9, again");
  world.nvidia.git({"tag", "--force", "9.9.9"});
  CHECK(world.refused().message.find("does not descend from") != std::string::npos);
  world.nvidia.git({"tag", "--delete", "9.9.9"});
  CHECK(world.refused().message ==
        "NVIDIA's release 9.9.9 could not be fetched: /srv/git/nvidia has no refs/tags/9.9.9");
}

TEST_CASE("patched source: what a mirror calls a release is not NVIDIA's word") {
  World world;
  world.release().erase("commit");
  world.fork->git({"reset", "--quiet", "--hard", world.base});
  world.fork->put("kernel-open/conftest.sh", "#!/bin/sh\nid\n");
  world.fork->commit("a release of its own");
  world.fork->git({"tag", "--force", "9.9.9"});
  world.fork->put("src/gpu.c", world.patched_file);
  world.pin(world.fork->commit("a patch on it"));
  const auto made = world.make({"file:///srv/git/fork"});
  REQUIRE_FALSE(made);
  CHECK(made.error().message.find("touches kernel-open/conftest.sh") != std::string::npos);
}

TEST_CASE("patched source: a pinned commit that is another release is refused") {
  World world;
  world.release()["commit"] = world.older;
  CHECK(world.refused().message ==
        fmt::format("commit {} is NVIDIA's release 9.9.8, and 9.9.9 was expected", world.older));
}

TEST_CASE("patched source: of a patch file what it does is shown, however it says it") {
  World world;
  world.patch_file(
      "diff --git a/src/gpu.c b/src/gpu2.c\nsimilarity index 100%\nrename from src/gpu.c\nrename to src/gpu2.c\n");
  const std::string shown = world.make()->patch;
  CHECK(shown.find("rename") == std::string::npos);
  CHECK(shown.find("\n+int line2;\n") != std::string::npos);
}

TEST_CASE("patched source: a patch file that is another, or changes more than C files, is refused") {
  struct Row {
    std::string text, message;
  };
  const std::string good = adds("src/x.c");
  const Row rows[] = {
      {"", " changes nothing in NVIDIA's 9.9.9: it is no patch"},
      {adds("x.mk"), "touches x.mk, which is outside kernel-open/ and src/"},
      {good + adds("src/../x.c"), "invalid path 'src/../x.c'"},
      {adds("src/run.sh"), "touches src/run.sh, which is no C file"},
      {adds("src/x.c", "120000"), "touches src/x.c, which is a symbolic link"},
      {adds("src/x.c", "100755"), "touches src/x.c, which has mode 100755"},
      {"diff --git a/src/gpu.c b/src/gpu.c\nold mode 100644\nnew mode 100755\n",
       "touches src/gpu.c, which has mode 100755"},
      {good + "--- a/kernel-open/conftest.sh\n+++ b/kernel-open/conftest.sh\n@@ -1 +1,2 @@\n #!/bin/sh\n+id\n",
       "touches kernel-open/conftest.sh, which is no C file"},
      {good + "--- a/version.mk\n+++ b/version.mk\n@@ -1 +1,2 @@\n NVIDIA_VERSION = 9.9.9\n+x\n",
       "touches version.mk, which is outside kernel-open/ and src/"},
  };
  World world;
  for (const Row& row : rows) {
    INFO(row.text);
    world.patch_file(row.text);
    const Error error = world.refused();
    CHECK(error.message.find(row.message) != std::string::npos);
  }
  world.patch_file(good);
  world.file("srv/p2p.patch", good + "\n");
  CHECK(world.refused().message == fmt::format("file:///srv/p2p.patch has the SHA-256 {}, and expected was {}",
                                               sha256_of(good + "\n"), sha256_of(good)));
  fs::remove(world.directory / "srv/p2p.patch");
  CHECK(world.stage().error().code == ErrorCode::not_found);
}
