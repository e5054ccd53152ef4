// SPDX-License-Identifier: MIT
// Captured state of a path is restored exactly; put() writes it completely, whatever was there before.
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "jail.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;
using Kind = FileState::Kind;

namespace {

/// Restores a regular file with owner, mode and attributes, after a change and after its removal.
void regular_goes_back(const Jail& jail, Root& root, bool is_root) {
  const fs::path hello = jail.real("/etc/hello");
  if (is_root) REQUIRE(::chown(hello.c_str(), 12345, 23456) == 0);
  REQUIRE(::chmod(hello.c_str(), is_root ? 06751 : 0751) == 0);
  const bool xattrs = ::setxattr(hello.c_str(), "user.p2pd", "a\0b", 3, 0) == 0;
  if (!xattrs) WARN("no user.* attributes on this file system");
  // Revision 2 of a file capability: cap_net_raw=ep. The kernel drops it on every write and chown.
  const unsigned char capability[20] = {1, 0, 0, 2, 0, 0x20, 0, 0};
  const bool capable = ::setxattr(hello.c_str(), "security.capability", capability, sizeof capability, 0) == 0;
  if (!capable) WARN("file capabilities cannot be set here");
  // user::rwx user:1000:r-- group::r-x mask::r-x other::--x
  const unsigned char acl[44] = {2, 0,    0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 2,   0,  4,
                                 0, 0xe8, 3,   0,   0,   4,   0,  5, 0,   255, 255, 255, 255, 16, 0,
                                 5, 0,    255, 255, 255, 255, 32, 0, 1,   0,   255, 255, 255, 255};
  const bool acls = ::setxattr(hello.c_str(), "system.posix_acl_access", acl, sizeof acl, 0) == 0;
  if (!acls) WARN("no ACLs on this file system");
  const FileState before = root.capture("/etc/hello").value();
  CHECK(before.content == "inside\n");
  CHECK(before.mode == (is_root ? 06751 : 0751));
  CHECK(before.uid == (is_root ? 12345 : ::geteuid()));
  CHECK(before.xattrs.size() >= static_cast<std::size_t>(xattrs) + capable + acls);
  if (xattrs) CHECK(before.xattrs.at("user.p2pd") == std::string("a\0b", 3));

  must(root.put("/etc/hello", regular("other", 0600)));
  const FileState between = root.capture("/etc/hello").value();
  CHECK(between.mode == 0600);
  CHECK_FALSE(between.xattrs.contains("user.p2pd"));
  CHECK_FALSE(between.xattrs.contains("security.capability"));
  CHECK_FALSE(between.xattrs.contains("system.posix_acl_access"));
  must(root.put("/etc/hello", before));
  CHECK(root.capture("/etc/hello").value() == before);
  must(root.remove("/etc/hello"));
  must(root.put("/etc/hello", before));
  CHECK(root.capture("/etc/hello").value() == before);
}

/// Restores a directory, and keeps its content.
void directory_goes_back(const Jail& jail, Root& root, bool is_root) {
  fs::create_directory(jail.real("/etc/d"));
  if (is_root) REQUIRE(::chown(jail.real("/etc/d").c_str(), 12345, 23456) == 0);
  REQUIRE(::chmod(jail.real("/etc/d").c_str(), 01711) == 0);
  const FileState before = root.capture("/etc/d").value();
  CHECK(before.kind == Kind::directory);
  CHECK(before.mode == 01711);
  must(root.remove("/etc/d"));
  must(root.put("/etc/d", before));
  CHECK(root.capture("/etc/d").value() == before);
  REQUIRE(::chmod(jail.real("/etc/d").c_str(), 0700) == 0);
  if (::setxattr(jail.real("/etc/d").c_str(), "user.p2pd", "new", 3, 0) != 0)
    WARN("no user.* attributes on this file system");
  spill(jail.real("/etc/d/kept"), "kept");
  must(root.put("/etc/d", before));
  CHECK(root.capture("/etc/d").value() == before);
  CHECK(slurp(jail.real("/etc/d/kept")) == "kept");
  CHECK(code_of(root.remove("/etc/d")) == ErrorCode::busy);
  CHECK_FALSE(root.put("/etc/d", regular("x")).has_value());
  CHECK_FALSE(root.put("/etc/hello", before).has_value());
  CHECK(root.list("/etc").value() == std::vector<std::string>{"d", "hello"});
}

}  // namespace

TEST_CASE("what was captured goes back exactly") {
  Jail jail;
  Root& root = jail.root;
  const bool is_root = ::geteuid() == 0;
  if (!is_root) WARN("not root: owner and security attributes are not tested");

  SECTION("a regular file with owner, mode and attributes") { regular_goes_back(jail, root, is_root); }
  SECTION("a symlink, dangling too") {
    fs::create_symlink("/nowhere/at all", jail.real("/etc/link"));
    if (is_root) REQUIRE(::lchown(jail.real("/etc/link").c_str(), 12345, 23456) == 0);
    const FileState before = root.capture("/etc/link").value();
    CHECK(before.kind == Kind::symlink);
    CHECK(before.content == "/nowhere/at all");
    must(root.put("/etc/link", regular("x")));
    must(root.put("/etc/link", before));
    CHECK(root.capture("/etc/link").value() == before);
  }
  SECTION("a directory") { directory_goes_back(jail, root, is_root); }
  SECTION("nothing at all") {
    const FileState before = root.capture("/etc/none/deeper").value();
    CHECK(before == FileState{});
    const auto missing = root.missing_parents("/etc/none/deeper").value();
    CHECK(missing == std::vector<std::string>{"/etc/none"});
    must(root.put("/etc/none/deeper", regular("x")));
    must(root.put("/etc/none/deeper", before));
    must(root.put("/etc/none", FileState{}));
    CHECK(root.list("/etc").value() == std::vector<std::string>{"hello"});
  }
}

TEST_CASE("leftovers of a killed write are replaced, and removed with the file") {
  Jail jail;
  spill(jail.real("/etc/.hello.p2pd-new"), "torn");
  must(jail.root.put("/etc/hello", regular("new")));
  CHECK(jail.root.list("/etc").value() == std::vector<std::string>{"hello"});
  spill(jail.real("/etc/.hello.p2pd-new"), "torn");
  must(jail.root.remove("/etc/hello"));
  CHECK(jail.root.list("/etc").value().empty());
  must(jail.root.remove("/etc/hello"));
  must(jail.root.remove("/none/at/all"));
  spill(jail.real("/etc/.hello.p2pd-new"), "torn");
  must(jail.root.settle("/etc/hello"));
  must(jail.root.settle("/none/at/all"));
  CHECK(jail.root.list("/etc").value().empty());
  fs::create_directory(jail.real("/etc/.d.p2pd-new"));
  must(jail.root.put("/etc/d", regular("file where a directory was begun")));
  CHECK(jail.root.list("/etc").value() == std::vector<std::string>{"d"});
}

TEST_CASE("parents are made, whatever the umask says") {
  Jail jail;
  CHECK(jail.root.missing_parents("/a/b/c/d").value() == std::vector<std::string>{"/a", "/a/b", "/a/b/c"});
  CHECK(jail.root.missing_parents("/etc/x").value().empty());
  const mode_t mask = ::umask(077);
  const Result<void> put = jail.root.put("/a/b/c/d", regular("deep", 0640));
  ::umask(mask);
  must(put);
  CHECK(jail.root.capture("/a/b").value().mode == 0755);
  CHECK(jail.root.capture("/a/b/c/d").value() == regular("deep", 0640));
  CHECK_FALSE(jail.root.put("/etc/hello/x", regular("below a file")).has_value());
  CHECK(slurp(jail.real("/etc/hello")) == "inside\n");
}
