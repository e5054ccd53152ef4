// SPDX-License-Identifier: MIT
#include "base/root.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>

#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::TemporaryDirectory;
using Kind = FileState::Kind;

namespace {

void spill(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

FileState regular(std::string content, mode_t mode = 0644) {
  FileState state;
  state.kind = Kind::regular;
  state.content = std::move(content);
  state.mode = mode;
  state.uid = ::geteuid();
  state.gid = ::getegid();
  return state;
}

template <class T>
ErrorCode code_of(const Result<T>& result) {
  REQUIRE_FALSE(result.has_value());
  return result.error().code;
}

void must(const Result<void>& result) {
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.has_value());
}

/// A tree "inside" with a secret beside it that no path may reach.
struct Jail {
  TemporaryDirectory directory;
  Root root;
  Jail() : root(make(directory)) {}
  static Root make(const TemporaryDirectory& directory) {
    spill(directory / "inside/etc/hello", "inside\n");
    spill(directory / "etc/hello", "outside\n");
    spill(directory / "secret", "outside\n");
    return Root::open(directory / "inside").value();
  }
  fs::path outside(const std::string& name) const { return directory / name; }
  fs::path real(const std::string& name) const { return (directory / "inside").string() + name; }
};

}  // namespace

TEST_CASE("a root is a directory that exists") {
  TemporaryDirectory directory;
  spill(directory / "file", "");
  CHECK(code_of(Root::open(directory / "none")) == ErrorCode::not_found);
  CHECK(code_of(Root::open(directory / "file")) == ErrorCode::not_found);  // ENOTDIR
  fs::create_symlink(directory.path(), directory / "link");
  CHECK(Root::open(directory / "link")->directory() == directory.path());
  CHECK_FALSE(Root::open(directory.path())->live());
  CHECK(Root::open("/")->live());
  CHECK(Root::open("/usr/..")->live());
}

TEST_CASE("no path leaves the root") {
  Jail jail;
  const Root& root = jail.root;
  CHECK(root.read("/etc/hello").value() == "inside\n");
  CHECK(root.read("/../../../etc/hello").value() == "inside\n");
  CHECK(root.read("/etc/../../etc/hello").value() == "inside\n");
  CHECK(root.read("//etc/.//hello").value() == "inside\n");
  CHECK(code_of(root.read("/../secret")) == ErrorCode::not_found);

  fs::create_symlink("/secret", jail.real("/absolute"));
  fs::create_symlink(jail.outside("secret"), jail.real("/full"));
  fs::create_symlink("../../secret", jail.real("/etc/relative"));
  CHECK(code_of(root.read("/absolute")) == ErrorCode::not_found);
  CHECK(code_of(root.read("/full")) == ErrorCode::not_found);
  CHECK(code_of(root.read("/etc/relative")) == ErrorCode::not_found);

  fs::create_symlink("/chain2", jail.real("/chain1"));
  fs::create_symlink("../../chain3", jail.real("/chain2"));
  fs::create_symlink("/etc/hello", jail.real("/chain3"));
  CHECK(root.read("/chain1").value() == "inside\n");
  CHECK(root.real_path("/chain1").value() == jail.real("/etc/hello"));
  fs::create_symlink("/loop", jail.real("/loop"));
  CHECK(code_of(root.read("/loop")) == ErrorCode::io);

  // A magic link jumps past every check of its text, so none is followed.
  const Root live = Root::open("/").value();
  CHECK(live.read("/proc/self/../version").has_value());
  CHECK_FALSE(live.read("/proc/self/root/proc/version").has_value());
}

TEST_CASE("a symlinked parent directory is resolved inside the root when writing") {
  Jail jail;
  fs::create_symlink("/etc", jail.real("/absolute"));
  fs::create_symlink("../../../etc", jail.real("/relative"));
  must(jail.root.put("/absolute/a", regular("a")));
  must(jail.root.put("/relative/b", regular("b")));
  must(jail.root.put("/relative/../../c", regular("c")));
  CHECK(slurp(jail.real("/etc/a")) == "a");
  CHECK(slurp(jail.real("/etc/b")) == "b");
  CHECK(slurp(jail.real("/c")) == "c");
  CHECK_FALSE(fs::exists(jail.outside("etc/a")));
  CHECK_FALSE(fs::exists(jail.outside("etc/b")));
  CHECK_FALSE(fs::exists(jail.outside("c")));
  must(jail.root.remove("/relative/hello"));
  CHECK(fs::exists(jail.outside("etc/hello")));
  CHECK_FALSE(fs::exists(jail.real("/etc/hello")));

  fs::create_symlink(jail.outside("etc"), jail.real("/dangling"));
  CHECK_FALSE(jail.root.put("/dangling/x", regular("x")).has_value());
  CHECK_FALSE(fs::exists(jail.outside("etc/x")));
}

TEST_CASE("a symlink at the end is replaced, never written through") {
  Jail jail;
  fs::create_symlink("hello", jail.real("/etc/link"));
  must(jail.root.put("/etc/link", regular("new")));
  CHECK(fs::is_regular_file(fs::symlink_status(jail.real("/etc/link"))));
  CHECK(slurp(jail.real("/etc/hello")) == "inside\n");
  // Nor is one that lies in wait under the temporary's name.
  fs::create_symlink(jail.outside("secret"), jail.real("/etc/.hello.p2pd-new"));
  must(jail.root.put("/etc/hello", regular("new")));
  CHECK(slurp(jail.outside("secret")) == "outside\n");
  CHECK(jail.root.list("/etc").value() == std::vector<std::string>{"hello", "link"});
}

TEST_CASE("paths that name nothing are refused") {
  Jail jail;
  using namespace std::string_literals;
  for (const std::string& path : {""s, "etc/hello"s, "../secret"s, "/etc\0/hello"s}) {
    CHECK(code_of(jail.root.read(path)) == ErrorCode::invalid);
    CHECK(code_of(jail.root.capture(path)) == ErrorCode::invalid);
    CHECK(code_of(jail.root.put(path, regular("x"))) == ErrorCode::invalid);
    CHECK(code_of(jail.root.remove(path)) == ErrorCode::invalid);
    CHECK(code_of(jail.root.missing_parents(path)) == ErrorCode::invalid);
    CHECK_FALSE(jail.root.exists(path));
  }
  for (const std::string& path : {"/"s, "/.."s, "/etc/.."s, "/none/../x"s}) {
    CHECK(code_of(jail.root.put(path, regular("x"))) == ErrorCode::invalid);
  }
  CHECK(code_of(jail.root.put("/" + std::string(300, 'n'), regular("x"))) == ErrorCode::io);
}

TEST_CASE("what is not a regular file is not read, and nothing hangs") {
  Jail jail;
  REQUIRE(::mkfifo(jail.real("/pipe").c_str(), 0644) == 0);
  CHECK(code_of(jail.root.read("/pipe")) == ErrorCode::invalid);
  CHECK(code_of(jail.root.capture("/pipe")) == ErrorCode::invalid);
  CHECK(code_of(jail.root.read("/etc")) == ErrorCode::invalid);
  const Root live = Root::open("/").value();
  CHECK(code_of(live.read("/dev/zero")) == ErrorCode::invalid);
  CHECK(live.read("/proc/self/status").value().starts_with("Name:"));
  CHECK_FALSE(live.read("/proc/cmdline").value().empty());
  CHECK_FALSE(live.read_link("/proc/self/exe").value().empty());  // a magic link may be read, not followed
}

TEST_CASE("a read has a limit") {
  Jail jail;
  spill(jail.real("/big"), std::string(5000, 'x'));
  CHECK(jail.root.read("/big", 5000).value().size() == 5000);
  CHECK(code_of(jail.root.read("/big", 4999)) == ErrorCode::invalid);
  REQUIRE(::truncate(jail.real("/big").c_str(), static_cast<off_t>(Root::kReadLimit + 1)) == 0);
  CHECK(code_of(jail.root.capture("/big")) == ErrorCode::invalid);
}

TEST_CASE("list, read_link, stat and exists") {
  Jail jail;
  fs::create_symlink("../etc", jail.real("/etc/up"));
  spill(jail.real("/etc/b"), "");
  spill(jail.real("/etc/a"), "");
  CHECK(jail.root.list("/etc").value() == std::vector<std::string>{"a", "b", "hello", "up"});
  CHECK(jail.root.list("/etc/up/").value().size() == 4);
  CHECK(code_of(jail.root.list("/none")) == ErrorCode::not_found);
  CHECK(code_of(jail.root.list("/etc/a")) == ErrorCode::not_found);
  CHECK(jail.root.read_link("/etc/up").value() == "../etc");
  CHECK(code_of(jail.root.read_link("/etc/a")) == ErrorCode::invalid);
  CHECK(S_ISDIR(jail.root.stat("/etc/up").value().st_mode));
  CHECK(jail.root.exists("/etc/up/hello"));
  fs::create_symlink("none", jail.real("/etc/dangling"));
  CHECK_FALSE(jail.root.exists("/etc/dangling"));
}

TEST_CASE("what was captured goes back exactly") {
  Jail jail;
  Root& root = jail.root;
  const fs::path hello = jail.real("/etc/hello");
  const bool is_root = ::geteuid() == 0;
  if (!is_root) WARN("not root: owner and security attributes are not tested");

  SECTION("a regular file with owner, mode and attributes") {
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
  SECTION("a directory") {
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

TEST_CASE("free bytes are those of the file system that a path lies on, inside the root") {
  Jail jail;
  struct statvfs info {};
  REQUIRE(::statvfs(jail.directory.path().c_str(), &info) == 0);
  const std::uint64_t now = std::uint64_t{info.f_bavail} * info.f_frsize;
  const std::uint64_t found = jail.root.free_bytes("/etc").value();
  CHECK((now > found ? now - found : found - now) <= std::uint64_t{info.f_blocks} * info.f_frsize / 10);
  CHECK(code_of(jail.root.free_bytes("/../secret")) == ErrorCode::not_found);
  const Root live = Root::open("/").value();
  CHECK(live.free_bytes("/proc").value() == 0);
}

TEST_CASE("what the running kernel shows of itself is not of a tree in which it is mounted") {
  Jail jail;
  for (const char* name : {"/proc", "/sys"}) fs::create_directories(jail.real(name));
  const pid_t child = ::fork();
  if (child == 0) {  // in mounts of its own
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWNS) != 0) ::_exit(77);
    for (const char* name : {"/proc", "/sys"})
      if (::mount(name, jail.real(name).c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) ::_exit(77);
    const Root tree = Root::open(jail.real("")).value();  // the other one holds the mounts of before
    const bool there = fs::exists(jail.real("/proc/version")) && fs::exists(jail.real("/sys/kernel"));
    const bool seen = tree.exists("/proc/version") || tree.exists("/sys/kernel") || tree.list("/proc").has_value() ||
                      tree.real_path("/sys/kernel").has_value();
    const bool live = Root::open("/").value().exists("/proc/version");
    ::_exit((there ? 0 : 1) | (seen ? 2 : 0) | (live ? 0 : 4));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    WARN("nothing can be mounted here: not tested");
  else
    CHECK(WEXITSTATUS(status) == 0);
}
