// SPDX-License-Identifier: MIT
// A root: no path leaves it, and only plain files are read. Writes and restores: root_state_test.cpp.
#include "base/root.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

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

  // A magic link bypasses every check of its text, so none is followed.
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
  // Nor is a link at the name of the temporary file.
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
