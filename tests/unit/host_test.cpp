// SPDX-License-Identifier: MIT
#include "base/host.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <type_traits>

#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::TemporaryDirectory;

namespace {

/// Answers every command with one result.
struct CannedRunner : CommandRunner {
  CommandResult answer;
  std::vector<std::string> ran;
  Result<CommandResult> run(const Command& command) override {
    ran.push_back(command.text());
    return answer;
  }
  int stop_fd() const override { return -1; }
};

/// Records each change, and the kind of the path at that time.
struct NotingRecorder : ChangeRecorder {
  const RootReader* root = nullptr;
  std::vector<std::string> heard;
  bool refuse = false;
  Result<void> before_change(std::string_view path, Restore restore) override {
    if (refuse) return fail(ErrorCode::io, "disk full");
    const FileState held = root->capture(path).value();
    heard.push_back(std::string(path) + " " + std::string(to_string(held.kind)) +
                    (restore == Restore::bytes       ? " bytes"
                     : restore == Restore::attribute ? " attribute"
                                                     : " generated"));
    return {};
  }
};

struct Machine {
  TemporaryDirectory directory;
  CannedRunner runner;
  NotingRecorder recorder;
  Host host;
  Machine() : host(Root::open(directory.path()).value(), runner, &recorder) { recorder.root = &host.files(); }
  void spill(const std::string& path, const std::string& content) {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << content;
  }
};

}  // namespace

TEST_CASE("a link is recorded first, and takes the place of another one") {
  Machine machine;
  for (const char* target : {"../elsewhere", "../../files"}) {
    REQUIRE(machine.host.link("/lib/place", target));
    CHECK(machine.host.files().read_link("/lib/place").value() == target);
  }
  CHECK(machine.recorder.heard.front() == "/lib absent bytes");
  CHECK(machine.recorder.heard.back().starts_with("/lib/place symlink"));
  machine.recorder.refuse = true;
  CHECK_FALSE(machine.host.link("/lib/other", "x"));
  CHECK_FALSE(machine.host.files().read_link("/lib/other"));
}

TEST_CASE("an attribute is recorded first and written in place, unless the value is in force, and none is created") {
  Machine machine;
  machine.spill("sys/enabled", "always [madvise] never\n");
  const auto inode = [&] { return machine.host.files().stat("/sys/enabled")->st_ino; };
  const ino_t before = inode();
  REQUIRE(machine.host.write_attribute("/sys/enabled", "madvise"));
  CHECK(machine.recorder.heard.empty());
  REQUIRE(machine.host.write_attribute("/sys/enabled", "never"));
  CHECK(machine.recorder.heard == std::vector<std::string>{"/sys/enabled regular attribute"});
  CHECK(machine.host.files().read("/sys/enabled").value() == "never");
  CHECK(inode() == before);
  const auto absent = machine.host.write_attribute("/sys/absent", "1");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ErrorCode::not_found);
  CHECK(machine.host.names("/sys") == std::vector<std::string>{"enabled"});
  CHECK(machine.recorder.heard.size() == 1);
  machine.recorder.refuse = true;
  CHECK_FALSE(machine.host.write_attribute("/sys/enabled", "always"));
  CHECK(machine.host.files().read("/sys/enabled").value() == "never");
}

TEST_CASE("an attribute of procfs takes a value, and a refused one is an error that names it") {
  CannedRunner runner;
  Host host(Root::open("/").value(), runner);
  const std::string name = "/proc/self/comm", before = host.line(name).value();
  REQUIRE(host.write_attribute(name, "p2pd-written"));
  CHECK(host.line(name).value() == "p2pd-written");
  REQUIRE(host.write_attribute(name, before));
  const auto refused = host.write_attribute("/proc/self/oom_score_adj", "many");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("/proc/self/oom_score_adj: write of \"many\"") == 0);
}

TEST_CASE("a write is recorded first, with the directories that it makes") {
  Machine machine;
  REQUIRE(machine.host.write("/etc/default/grub.d/99-p2pd.cfg", "x\n", 0640).has_value());
  CHECK(machine.recorder.heard == std::vector<std::string>{"/etc absent bytes", "/etc/default absent bytes",
                                                           "/etc/default/grub.d absent bytes",
                                                           "/etc/default/grub.d/99-p2pd.cfg absent bytes"});
  const FileState state = machine.host.files().capture("/etc/default/grub.d/99-p2pd.cfg").value();
  CHECK(state.content == "x\n");
  CHECK(state.mode == 0640);
  CHECK(state.uid == ::geteuid());
}

TEST_CASE("a write keeps mode and owner, and changes nothing when nothing changes") {
  Machine machine;
  machine.spill("etc/f", "old");
  REQUIRE(::chmod((machine.directory / "etc/f").c_str(), 0604) == 0);
  if (::geteuid() == 0) {
    REQUIRE(::chown((machine.directory / "etc/f").c_str(), 12345, 23456) == 0);
  } else {
    WARN("not root: the owner is not tested");
  }
  FileState want = machine.host.files().capture("/etc/f").value();
  want.content = "new";
  REQUIRE(machine.host.write("/etc/f", "new", 0644, Restore::generated).has_value());
  CHECK(machine.host.files().capture("/etc/f").value() == want);
  CHECK(machine.recorder.heard == std::vector<std::string>{"/etc/f regular generated"});

  const ino_t inode = machine.host.files().stat("/etc/f").value().st_ino;
  REQUIRE(machine.host.write("/etc/f", "new").has_value());
  CHECK(machine.host.files().stat("/etc/f").value().st_ino == inode);
  CHECK(machine.recorder.heard.size() == 1);
}

TEST_CASE("what the recorder refuses does not happen") {
  Machine machine;
  machine.spill("etc/f", "old");
  machine.recorder.refuse = true;
  CHECK_FALSE(machine.host.write("/etc/f", "new").has_value());
  CHECK_FALSE(machine.host.write("/new/f", "new").has_value());
  CHECK_FALSE(machine.host.remove("/etc/f").has_value());
  CHECK(machine.host.files().read("/etc/f").value() == "old");
  CHECK_FALSE(machine.host.files().exists("/new"));
}

TEST_CASE("links and directories are not written") {
  Machine machine;
  machine.spill("etc/f", "old");
  fs::create_symlink("f", machine.directory / "etc/link");
  const Result<void> link = machine.host.write("/etc/link", "new");
  REQUIRE_FALSE(link.has_value());
  CHECK(link.error().code == ErrorCode::invalid);
  CHECK(link.error().message == "/etc/link is a symbolic link to f; p2pd does not write through links");
  CHECK_FALSE(link.error().next.empty());
  CHECK(machine.host.write("/etc", "new").error().code == ErrorCode::invalid);
  CHECK(machine.host.files().read("/etc/f").value() == "old");
  CHECK(machine.recorder.heard.empty());
}

TEST_CASE("a file of ours takes no other's place") {
  Machine machine;
  REQUIRE(machine.host.write_own("/etc/f", "# Written by p2pd.\na\n").has_value());
  REQUIRE(machine.host.write_own("/etc/f", "# Written by p2pd.\nb\n").has_value());
  machine.spill("etc/g", "# mine\n# Written by p2pd.\n");
  const Result<void> taken = machine.host.write_own("/etc/g", "# Written by p2pd.\n");
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().message == "/etc/g is in the way: p2pd did not write it");
  CHECK_FALSE(taken.error().next.empty());
  CHECK(machine.host.files().read("/etc/f").value() == "# Written by p2pd.\nb\n");
}

TEST_CASE("a removal is recorded, and what is absent needs none") {
  Machine machine;
  machine.spill("etc/f", "old");
  REQUIRE(machine.host.remove("/etc/f").has_value());
  REQUIRE(machine.host.remove("/etc/f").has_value());
  REQUIRE(machine.host.remove("/none/f").has_value());
  CHECK(machine.recorder.heard == std::vector<std::string>{"/etc/f regular bytes"});
  CHECK_FALSE(machine.host.files().exists("/etc/f"));
}

// A Host as probes receive it gives access to nothing that can change this machine, not even by a copy.
static_assert(!std::is_copy_constructible_v<Host> && !std::is_copy_assignable_v<Host>);
static_assert(!std::is_constructible_v<Host, const Host&> && !std::is_constructible_v<Host, const Host>);
static_assert(!std::is_constructible_v<Root, decltype(std::declval<Host&>().files())>);
static_assert(!std::is_constructible_v<Root, RootReader>);
static_assert(std::is_const_v<decltype(std::declval<const Host&>().snapshot())::element_type>);

TEST_CASE("lines, queries and programs") {
  Machine machine;
  machine.spill("proc/cmdline", "quiet splash\n");
  machine.spill("etc/two", "a\n\n");
  CHECK(machine.host.line("/proc/cmdline").value() == "quiet splash");
  CHECK(machine.host.line("/etc/two").value() == "a\n");
  CHECK(machine.host.line("/none").error().code == ErrorCode::not_found);

  machine.runner.answer.output = "6.1\n";
  CHECK(machine.host.output_of({.argv = {"uname", "-r"}}).value() == "6.1\n");
  machine.runner.answer.status = 3;
  machine.runner.answer.errors = "no\n";
  CHECK(machine.host.output_of({.argv = {"uname", "-r"}}).error().message == "`uname -r` ended with status 3: no");
  CHECK(machine.host.run({.argv = {"rm", "a b"}}).error().code == ErrorCode::command);
  CHECK(machine.runner.ran == std::vector<std::string>{"uname -r", "uname -r", "rm 'a b'"});

  machine.spill("usr/bin/tool", "#!/bin/sh\n");
  CHECK_FALSE(machine.host.has_program("tool"));
  REQUIRE(::chmod((machine.directory / "usr/bin/tool").c_str(), 0755) == 0);
  fs::create_directories(machine.directory / "sbin");
  fs::create_symlink("/usr/bin/tool", machine.directory / "sbin/alias");
  CHECK(machine.host.has_program("tool"));
  CHECK(machine.host.has_program("alias"));
  CHECK(machine.host.has_program("/usr/bin/tool"));
  CHECK_FALSE(machine.host.has_program("../bin/tool"));
  CHECK_FALSE(machine.host.has_program("sh"));
  CHECK_FALSE(machine.host.has_program(""));
}

TEST_CASE("what is about one file is asked again for another file, and after an error") {
  Machine machine;
  machine.spill("boot/image", "old");
  const Command list{{"list", "/boot/image"}};
  CHECK(machine.host.cached_output_of("/boot/none", list).error().code == ErrorCode::not_found);  // nothing is run
  machine.runner.answer.status = 1;
  CHECK_FALSE(machine.host.cached_output_of("/boot/image", list));
  machine.runner.answer = {0, "a\n", ""};
  CHECK(machine.host.cached_output_of("/boot/image", list).value() == "a\n");
  machine.runner.answer.output = "b\n";
  CHECK(machine.host.cached_output_of("/boot/image", list).value() == "a\n");
  CHECK(machine.host.snapshot()->cached_output_of("/boot/image", list).value() == "a\n");
  CHECK(machine.runner.ran.size() == 2);
  fs::rename(machine.directory / "boot/image", machine.directory / "boot/image.old");
  machine.spill("boot/image", "new");
  CHECK(machine.host.cached_output_of("/boot/image", list).value() == "b\n");
}

TEST_CASE("a host after files are written tells of them in place of today's") {
  Machine machine;
  machine.spill("etc/modprobe.d/old.conf", "a\n");
  machine.spill("etc/modprobe.d/gone.conf", "b\n");
  const auto after = machine.host.snapshot_after({{"/etc/modprobe.d/old.conf", "a, and c\n"},
                                                  {"/etc/modprobe.d/gone.conf", std::nullopt},
                                                  {"/etc/default/grub.d/new.cfg", "d\n"}});
  const RootReader& files = after->files();
  CHECK(files.read("/etc/modprobe.d/old.conf").value() == "a, and c\n");
  CHECK(files.read("/etc/modprobe.d//old.conf").value() == "a, and c\n");
  CHECK(files.capture("/etc/modprobe.d/old.conf").value().content == "a, and c\n");
  CHECK(files.read("/etc/modprobe.d/gone.conf").error().code == ErrorCode::not_found);
  CHECK_FALSE(files.exists("/etc/modprobe.d/gone.conf"));
  CHECK(after->line("/etc/default/grub.d/new.cfg").value() == "d");
  CHECK(S_ISREG(files.stat("/etc/default/grub.d/new.cfg").value().st_mode));
  CHECK(files.stat("/etc/default/grub.d/new.cfg").value().st_size == 2);
  CHECK(files.list("/etc/modprobe.d").value() == std::vector<std::string>{"old.conf"});
  CHECK(files.list("/etc/default/grub.d").value() == std::vector<std::string>{"new.cfg"});
  CHECK(machine.host.files().read("/etc/modprobe.d/old.conf").value() == "a\n");
}
