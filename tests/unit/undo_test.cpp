// SPDX-License-Identifier: MIT
#include <fstream>

#include "catch.hpp"
#include "engine/undo.hpp"
#include "temporary.hpp"

using namespace p2pd;
using p2pd::test::TemporaryDirectory;

namespace fs = std::filesystem;

namespace {

/// A tree with a state directory; each open() is another process.
struct Trees {
  TemporaryDirectory host;
  TemporaryDirectory state;
  UndoStore open() const {
    return UndoStore::open(Root::open(state.path()).value(), Root::open(host.path()).value()).value();
  }
  Root root() const { return Root::open(host.path()).value(); }
};

FileState file(const std::string& content, mode_t mode = 0640) {
  return {
      FileState::Kind::regular, content, mode, ::geteuid(), ::getegid(), {{"user.colour", std::string("\0\xff", 2)}}};
}

}  // namespace

TEST_CASE("files, links, directories and absence come back, by another process, to the byte") {
  Trees trees;
  Root root = trees.root();
  REQUIRE(root.put("/etc/a", file(std::string("\0bytes\n", 7), 04751)));
  REQUIRE(root.put("/etc/link", {FileState::Kind::symlink, "/etc/a", 0777, ::geteuid(), ::getegid(), {}}));
  const auto a = root.capture("/etc/a").value();
  const auto link = root.capture("/etc/link").value();
  {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", {{"k", "v"}}});
    for (const char* path : {"/etc/a", "/etc/link", "/etc/new.d", "/etc/new.d/b"})
      REQUIRE(undo.before_change(path, Restore::bytes));
    REQUIRE(root.put("/etc/a", file("other")));
    REQUIRE(root.remove("/etc/link"));
    REQUIRE(root.put("/etc/new.d/b", file("b")));
    REQUIRE(undo.note_result());
  }
  UndoStore undo = trees.open();
  REQUIRE(undo.newest());
  CHECK(undo.newest()->with == Parameters{{"k", "v"}});
  CHECK(undo.restore_newest()->empty());
  REQUIRE(undo.forget_newest());
  CHECK(root.capture("/etc/a").value() == a);
  CHECK(root.capture("/etc/link").value() == link);
  CHECK_FALSE(root.exists("/etc/new.d"));
  CHECK_FALSE(undo.newest());
  CHECK_FALSE(trees.open().newest());
}

TEST_CASE("stretches of several owners are undone strictly newest first") {
  Trees trees;
  Root root = trees.root();
  UndoStore undo = trees.open();
  const auto change = [&](std::int64_t run, const char* step, const char* path, const char* content) {
    undo.begin({run, step, "", "", {}});
    REQUIRE(undo.before_change(path, Restore::bytes));
    REQUIRE(root.put(path, file(content)));
    REQUIRE(undo.note_result());
  };
  change(1, "a", "/x", "a");
  change(1, "b", "/x", "ab");
  change(1, "a", "/y", "a");
  while (undo.newest()) {
    CHECK(undo.restore_newest()->empty());
    REQUIRE(undo.forget_newest());
  }
  CHECK_FALSE(root.exists("/x"));
  CHECK_FALSE(root.exists("/y"));
}

TEST_CASE("a change has one name while it is made and while it is undone, another in each run") {
  Trees trees;
  UndoStore undo = trees.open();
  undo.begin({1, "driver-modules", "", "", {}});
  CHECK(undo.change() == "1-driver-modules");
  undo.begin({2, "driver-modules", "", "", {}});
  REQUIRE(undo.before_change("/x", Restore::bytes));
  CHECK(undo.change() == "2-driver-modules");
  undo.begin_undo(*undo.newest());
  CHECK(undo.change() == "2-driver-modules");
  REQUIRE(undo.before_change("/y", Restore::bytes));
  CHECK(undo.newest()->run == 2);
  CHECK(undo.restore_newest()->empty());
  REQUIRE(undo.forget_newest());
  CHECK_FALSE(undo.newest());
}

TEST_CASE("what somebody generated anew stays, what somebody edited is kept aside") {
  Trees trees;
  Root root = trees.root();
  UndoStore undo = trees.open();
  undo.begin({1, "s", "", "", {}});
  REQUIRE(root.put("/grub.cfg", file("old")));
  REQUIRE(undo.before_change("/grub.cfg", Restore::generated));
  REQUIRE(undo.before_change("/conf", Restore::bytes));
  REQUIRE(root.put("/grub.cfg", file("ours")));
  REQUIRE(root.put("/conf", file("ours")));
  REQUIRE(undo.note_result());
  REQUIRE(root.put("/grub.cfg", file("newer kernel")));
  REQUIRE(root.put("/conf", file("edited")));
  const auto notes = undo.restore_newest().value();
  CHECK(notes.size() == 2);
  CHECK(root.read("/grub.cfg").value() == "newer kernel");
  CHECK_FALSE(root.exists("/conf"));
  std::ifstream kept(trees.state.path() / "kept" / "000002");
  std::string content;
  kept >> content;
  CHECK(content == "edited");
}

TEST_CASE("what was generated for a kernel that was purged since does not come back") {
  Trees trees;
  Root root = trees.root();
  UndoStore undo = trees.open();
  undo.begin({1, "s", "", "", {}});
  REQUIRE(root.put("/lib/modules/6.1.0/modules.dep", file("old")));
  REQUIRE(undo.before_change("/lib/modules/6.1.0/modules.dep", Restore::generated));
  REQUIRE(root.put("/lib/modules/6.1.0/modules.dep", file("ours")));
  REQUIRE(undo.note_result());
  REQUIRE(root.remove_tree("/lib/modules/6.1.0"));
  CHECK(undo.restore_newest().value().empty());
  CHECK_FALSE(root.exists("/lib/modules/6.1.0"));
}

TEST_CASE("what others changed in a file that p2pd shares with them stays") {
  const std::string path = "/boot/grub/custom.cfg",
                    block = "### BEGIN p2pd trial ###\nmenuentry\n### END p2pd trial ###\n";
  Trees trees;
  Root root = trees.root();
  UndoStore undo = trees.open();
  undo.begin({1, "s", "", "", {}});
  const bool made = GENERATE(true, false);
  if (!made) REQUIRE(root.put(path, file("menuentry one")));
  REQUIRE(undo.before_change(path, Restore::bytes));
  std::string now, left;
  SECTION("a line behind the block") {
    REQUIRE(root.put(path, file("menuentry one\n" + block)));
    now = "menuentry one\n" + block + "menuentry two";
    left = "menuentry one\nmenuentry two";
  }
  SECTION("a line once the block is gone") {
    REQUIRE(root.put(path, file("menuentry one")));
    now = left = "menuentry one\nmenuentry two\n";
  }
  SECTION("the block alone is left") {
    REQUIRE(root.put(path, file("menuentry one\n" + block)));
    now = block;
    left = made ? "absent" : "";
  }
  REQUIRE(undo.note_result());
  REQUIRE(root.put(path, file(now)));
  CHECK(undo.restore_newest().value() == std::vector{path + " was changed since by somebody else; those lines stay"});
  CHECK(root.read(path).value_or("absent") == left);
  CHECK_FALSE(fs::exists(trees.state.path() / "kept"));
}

TEST_CASE("a block that has lost its end is undone with its file, which is kept aside") {
  Trees trees;
  Root root = trees.root();
  UndoStore undo = trees.open();
  undo.begin({1, "s", "", "", {}});
  REQUIRE(root.put("/etc/nccl.conf", file("A=1\n")));
  REQUIRE(undo.before_change("/etc/nccl.conf", Restore::bytes));
  REQUIRE(root.put("/etc/nccl.conf", file("A=1\n# BEGIN p2pd\nB=1\n# END p2pd\n")));
  REQUIRE(undo.note_result());
  REQUIRE(root.put("/etc/nccl.conf", file("A=1\n# BEGIN p2pd\nB=1\n")));
  CHECK(undo.restore_newest()->size() == 1);
  CHECK(root.read("/etc/nccl.conf").value() == "A=1\n");
  CHECK(fs::exists(trees.state.path() / "kept/000001"));
}

TEST_CASE("an attribute gets its old value back where it still has the new one") {
  Trees trees;
  Root root = trees.root();
  const auto kernel_shows = [&](const char* content) { REQUIRE(root.put("/sys/enabled", file(content))); };
  const auto change = [&] {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", {}});
    REQUIRE(undo.before_change("/sys/enabled", Restore::attribute));
    kernel_shows("always madvise [never]\n");
    REQUIRE(undo.note_result());
  };
  const auto restored = [&] {
    UndoStore undo = trees.open();
    CHECK(undo.restore_newest()->empty());
    CHECK(undo.changed() == (root.read("/sys/enabled").value_or("") == "madvise"));
    REQUIRE(undo.forget_newest());
    CHECK_FALSE(root.exists("/sys/.enabled.p2pd-new"));
    return root.read("/sys/enabled").value_or("");
  };
  kernel_shows("always [madvise] never\n");
  SECTION("by one write in place") {
    change();
    const ino_t now = root.stat("/sys/enabled")->st_ino;
    CHECK(restored() == "madvise");
    CHECK(root.stat("/sys/enabled")->st_ino == now);
  }
  SECTION("not after a reboot or a change by others, without a note") {
    change();
    kernel_shows("[always] madvise never\n");
    {
      UndoStore undo = trees.open();  // a later commit, which does not write it
      undo.begin({1, "s", "c", "f", {}});
      REQUIRE(undo.note_result());
    }
    CHECK(restored() == "[always] madvise never\n");
  }
  SECTION("not where it is gone") {
    change();
    REQUIRE(root.remove("/sys/enabled"));
    CHECK(restored().empty());
  }
  SECTION("the value of the boot in which it was written again") {
    kernel_shows("[always] madvise never\n");
    change();
    kernel_shows("always [madvise] never\n");  // the next boot
    change();
    change();  // in force already: still the same value before
    CHECK(restored() == "madvise");
  }
  SECTION("after a kill before the result was noted") {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", {}});
    REQUIRE(undo.before_change("/sys/enabled", Restore::attribute));
    kernel_shows("always madvise [never]\n");
    REQUIRE(trees.open().newest());
    change();
    CHECK(restored() == "madvise");
  }
}

TEST_CASE("what was fetched or built is discarded with all that is in it, unread, by another process") {
  Trees trees;
  Root root = trees.root();
  {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", Parameters::object()});
    for (const char* path : {"/cache", "/cache/tree", "/cache/huge"})
      REQUIRE(undo.before_change(path, path == std::string("/cache") ? Restore::bytes : Restore::discarded));
    REQUIRE(root.put("/cache/tree/a/b", file("b")));
    REQUIRE(root.put("/cache/huge", file("")));
    std::filesystem::resize_file(trees.host.path() / "cache/huge", Root::kReadLimit + 1);
    std::filesystem::create_directory_symlink("/etc", trees.host.path() / "cache/tree/link");
    REQUIRE(undo.note_result());
  }
  UndoStore undo = trees.open();
  CHECK(undo.restore_newest()->empty());
  CHECK(undo.restore_newest()->empty());  // as after a kill in between
  REQUIRE(undo.forget_newest());
  CHECK_FALSE(root.exists("/cache"));
  CHECK(undo.changed());
}

TEST_CASE("what an action undoes itself is not touched, and its owner is known to another process") {
  Trees trees;
  Root root = trees.root();
  REQUIRE(root.put("/status", file("before")));
  {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", {}});
    REQUIRE(undo.before_change("/status", Restore::by_action));
    REQUIRE(root.put("/status", file("after")));
    REQUIRE(undo.note_result());
  }
  UndoStore undo = trees.open();
  REQUIRE(undo.newest());
  CHECK(undo.newest()->fix == "f");
  CHECK(undo.newest()->with == Parameters::object());
  CHECK(undo.restore_newest()->empty());
  CHECK(root.read("/status").value() == "after");
  REQUIRE(undo.forget_newest());
  CHECK_FALSE(undo.newest());
}

TEST_CASE("a damaged undo record is an error of the undo that needs it, and names it") {
  Trees trees;
  Root state = Root::open(trees.state.path()).value();
  REQUIRE(state.put("/undo/000001.json", file("{")));
  REQUIRE(state.put("/undo/notes.json", file("{")));  // of somebody else
  const auto undo = UndoStore::open(state, trees.root());
  REQUIRE(undo);
  for (const int run : {0, 1})
    CHECK(undo->check(run).error().message.find("000001.json is damaged") != std::string::npos);
}

TEST_CASE("a missing or unreadable file of an undo record names the next step, and undo goes on after it") {
  Trees trees;
  Root root = trees.root();
  REQUIRE(root.put("/etc/a", file("old")));
  {
    UndoStore undo = trees.open();
    undo.begin({1, "s", "c", "f", {}});
    for (const char* path : {"/etc/a", "/etc/b"}) REQUIRE(undo.before_change(path, Restore::bytes));
    for (const char* path : {"/etc/a", "/etc/b"}) REQUIRE(root.put(path, file("new")));
    REQUIRE(undo.note_result());
  }
  const fs::path records = trees.state.path() / "undo";
  const std::string rm = fmt::format("\"sudo rm {}/000001.*\"", records.string());
  fs::remove(records / "000002.bytes");  // /etc/b was absent, and has no content to lose
  SECTION("the bytes") {
    fs::remove(records / "000001.bytes");
    UndoStore undo = trees.open();
    const auto failed = undo.restore_newest();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().message.find("the old content of /etc/a is lost: ") != std::string::npos);
    CHECK(failed.error().message.ends_with("/undo/000001.bytes: No such file or directory"));
    CHECK(failed.error().next.starts_with("restore /etc/a by hand"));
    CHECK(failed.error().next.find(rm) != std::string::npos);
  }
  SECTION("the record") {
    fs::remove(records / "000001.json");
    fs::create_directory(records / "000001.json");
    const auto sound = trees.open().check(1);
    REQUIRE_FALSE(sound);
    CHECK(sound.error().message.find("000001.json") != std::string::npos);
    CHECK(sound.error().next.find("000001.bytes") != std::string::npos);
    CHECK(sound.error().next.find(rm) != std::string::npos);
  }
  fs::remove_all(records / "000001.json");  // as told
  UndoStore undo = trees.open();
  CHECK(undo.restore_newest());
  CHECK_FALSE(root.exists("/etc/b"));
  CHECK(undo.forget_newest());
  CHECK_FALSE(trees.open().newest());
}
