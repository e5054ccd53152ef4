// SPDX-License-Identifier: MIT
#include "base/command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace std::chrono_literals;
using test::TemporaryDirectory;

namespace {

Command shell(const std::string& script) { return {.argv = {"sh", "-c", script}}; }

CommandResult ran(const Command& command) {
  ProcessRunner runner;
  Result<CommandResult> result = runner.run(command);
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.has_value());
  return *result;
}

/// Ended, or a zombie, which only its parent can reap.
bool dead(pid_t pid) {
  for (int i = 0; i < 100; ++i) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    if (!std::getline(in, stat) || stat.substr(stat.rfind(')') + 2, 1) == "Z") return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

pid_t pid_in(const fs::path& file) {
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  return pid;
}

}  // namespace

TEST_CASE("status, signal and both streams") {
  const CommandResult result = ran(shell("echo out; echo err >&2; exit 7"));
  CHECK(result.status == 7);
  CHECK(result.output == "out\n");
  CHECK(result.errors == "err\n");
  CHECK(ran(shell("kill -TERM $$")).status == 128 + SIGTERM);
  CHECK(ran(shell("true")).status == 0);
}

TEST_CASE("the environment is minimal, and input arrives") {
  ::setenv("P2PD_TEST_LEAK", "1", 1);
  Command command{.argv = {"env"}};
  command.environment = {{"ADDED", "yes"}, {"LC_ALL", "C.UTF-8"}};
  const std::string output = ran(command).output;
  CHECK(output.find("P2PD_TEST_LEAK") == std::string::npos);
  CHECK(output.find("ADDED=yes\n") != std::string::npos);
  CHECK(output.find("LC_ALL=C.UTF-8\n") != std::string::npos);
  CHECK(output.find("PATH=/usr/local/sbin:") != std::string::npos);
  ::unsetenv("P2PD_TEST_LEAK");

  Command cat{.argv = {"cat"}};
  CHECK(ran(cat).output.empty());
  cat.input = std::string(300'000, 'x') + "\nend";
  CHECK(ran(cat).output == cat.input);
  Command deaf{.argv = {"true"}};
  deaf.input = cat.input;
  CHECK(ran(deaf).status == 0);
  CHECK(ran(shell("pwd; umask")).output == "/\n0022\n");
}

TEST_CASE("signals and descriptors of the parent are not inherited") {
  sigset_t usr1;
  sigset_t old;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &usr1, &old);
  const auto old_pipe = ::signal(SIGPIPE, SIG_IGN);
  const int leak = ::open("/dev/null", O_RDONLY);  // not close-on-exec, as a careless library would
  const CommandResult result = ran(shell("grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"));
  ::close(leak);
  ::signal(SIGPIPE, old_pipe);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  CHECK(result.output ==
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0\n1\n2\n3\n");  // 3: the directory that ls reads
}

TEST_CASE("lines are told as they come, the last one without its end too") {
  TemporaryDirectory directory;
  std::vector<std::string> lines;
  // The second line is written only after the listener has heard the first.
  Command command = shell("echo one; until [ -e " + (directory / "go").string() +
                          " ]; do sleep 0.01; done; echo two >&2; printf three");
  command.on_line = [&](std::string_view line) {
    lines.emplace_back(line);
    if (line == "one") std::ofstream(directory / "go");
  };
  CHECK(ran(command).output == "one\nthree");
  CHECK(lines.size() == 3);
  CHECK(lines.front() == "one");
  CHECK(std::find(lines.begin(), lines.end(), "two") != lines.end());
  CHECK(std::find(lines.begin(), lines.end(), "three") != lines.end());
}

TEST_CASE("huge output is kept to its limit") {
  std::size_t longest = 0;
  Command command = shell("head -c 20000000 /dev/zero | tr '\\0' x");
  command.on_line = [&](std::string_view line) { longest = std::max(longest, line.size()); };
  const CommandResult result = ran(command);
  CHECK(result.status == 0);
  CHECK(result.output.size() < CommandResult::kOutputLimit + 100);
  CHECK(result.output.ends_with("\n[p2pd dropped " + std::to_string(20'000'000 - CommandResult::kOutputLimit) +
                                " more bytes]\n"));
  CHECK(longest <= (64U << 10));
}

TEST_CASE("a program that cannot be started is named") {
  TemporaryDirectory directory;
  ProcessRunner runner;
  const auto missing = runner.run({.argv = {"p2pd-no-such-program", "-x"}});
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(missing.error().message == "`p2pd-no-such-program -x`: there is no program p2pd-no-such-program");
  std::ofstream(directory / "plain") << "text";
  const auto plain = runner.run({.argv = {(directory / "plain").string()}});
  REQUIRE_FALSE(plain.has_value());
  CHECK(plain.error().code == ErrorCode::denied);
  CHECK(runner.run({}).error().code == ErrorCode::invalid);
  CHECK(runner.run({.argv = {""}}).error().code == ErrorCode::invalid);
  CHECK(runner.run({.argv = {"echo", std::string("a\0b", 3)}}).error().code == ErrorCode::invalid);
}

TEST_CASE("a deadline kills the whole process group") {
  TemporaryDirectory directory;
  ProcessRunner runner;
  // Child and grandchild both ignore SIGTERM: only SIGKILL to the group ends them.
  Command command = shell("trap '' TERM; echo begun; (trap '' TERM; sh -c 'echo $$ > " + (directory / "pid").string() +
                          "; while :; do sleep 1; done') & while :; do sleep 1; done");
  command.deadline = 300ms;
  const auto start = std::chrono::steady_clock::now();
  const auto result = runner.run(command);
  const auto took = std::chrono::steady_clock::now() - start;
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::timeout);
  CHECK(result.error().message.find("still running after 0.3 s; its last output: begun") != std::string::npos);
  CHECK(took < 5s);
  const pid_t grandchild = pid_in(directory / "pid");
  REQUIRE(grandchild > 0);
  CHECK(dead(grandchild));
}

TEST_CASE("a deadline of silence lets a command go on that says something") {
  ProcessRunner runner;
  Command command = shell("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done");
  command.deadline = 800ms;
  command.while_silent = true;
  CHECK(runner.run(command).has_value());
  command = shell("echo begun >&2; sleep 60");
  command.deadline = 300ms;
  command.while_silent = true;
  const auto start = std::chrono::steady_clock::now();
  const auto result = runner.run(command);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::timeout);
  CHECK(result.error().message.find("silent for 0.3 s; its last output: begun") != std::string::npos);
}

TEST_CASE("each second of silence is told") {
  Command command = shell("sleep 2.5; echo x");
  int times = 0;
  command.on_idle = [&] { ++times; };
  CHECK(ran(command).output == "x\n");
  CHECK(times >= 2);
}

TEST_CASE("a command that ends on SIGTERM is not made to wait") {
  ProcessRunner runner;
  const auto start = std::chrono::steady_clock::now();
  CHECK(runner.run({.argv = {"sleep", "60"}, .deadline = 100ms}).error().code == ErrorCode::timeout);
  CHECK(std::chrono::steady_clock::now() - start < 1500ms);
}

TEST_CASE("a grandchild that keeps the output open does not hold us") {
  TemporaryDirectory directory;
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = ran(shell("sleep 60 & echo $! > " + (directory / "pid").string() + "; echo done"));
  CHECK(result.status == 0);
  CHECK(result.output == "done\n");
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  CHECK(dead(pid_in(directory / "pid")));
  // A process that left the group survives, but does not delay the result.
  const CommandResult free =
      ran(shell("setsid sleep 60 & echo $! > " + (directory / "pid").string() + "; sleep 0.3; echo done"));
  CHECK(free.output == "done\n");
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  const pid_t escaped = pid_in(directory / "pid");
  REQUIRE(escaped > 0);
  CHECK(::kill(escaped, SIGKILL) == 0);
}

TEST_CASE("a request to stop ends what runs, and starts nothing more") {
  std::array<int, 2> stop{};
  REQUIRE(::pipe2(stop.data(), O_CLOEXEC) == 0);
  ProcessRunner runner("/", stop[0]);
  CHECK(runner.run({.argv = {"true"}}).has_value());
  Command command = shell("echo on; sleep 60");
  command.on_line = [&](std::string_view) { (void)!::write(stop[1], "x", 1); };
  const auto start = std::chrono::steady_clock::now();
  const auto result = runner.run(command);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::interrupted);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  const auto next = runner.run({.argv = {"true"}});
  REQUIRE_FALSE(next.has_value());
  CHECK(next.error().code == ErrorCode::interrupted);
  CHECK(next.error().message.find("not started") != std::string::npos);
  ::close(stop[0]);
  ::close(stop[1]);
}

TEST_CASE("a listener that throws leaves no process behind") {
  TemporaryDirectory directory;
  ProcessRunner runner;
  Command command = shell("echo $$ > " + (directory / "pid").string() + "; echo x; sleep 60");
  command.on_line = [](std::string_view) { throw std::runtime_error("listener"); };
  CHECK_THROWS_AS((void)runner.run(command), std::runtime_error);
  CHECK(dead(pid_in(directory / "pid")));
}

TEST_CASE("a root other than / is entered") {
  TemporaryDirectory directory;
  ProcessRunner runner(directory.path().string());
  if (::geteuid() != 0) {
    WARN("not root: only the refusal of chroot is tested");
    CHECK(runner.run({.argv = {"true"}}).error().code == ErrorCode::denied);
    return;
  }
  CHECK(runner.run({.argv = {"true"}}).error().code == ErrorCode::not_found);
  CHECK(runner.run({.argv = {"true"}, .outside = true})->status == 0);
  const fs::path busybox =
      fs::exists("/bin/busybox") ? "/bin/busybox" : "/sbin/ldconfig";  // ldconfig is static everywhere
  fs::create_directories(directory / "bin");
  fs::create_directories(directory / "etc");
  fs::copy_file(fs::canonical(busybox), directory / "bin/tool");
  const auto result = runner.run({.argv = {"tool", busybox == "/bin/busybox" ? "true" : "--version"}});
  INFO((result ? result->errors : result.error().message));
  REQUIRE(result.has_value());
  CHECK(ProcessRunner("/p2pd/none").run({.argv = {"true"}}).error().message.find("enter root directory /p2pd/none") !=
        std::string::npos);
}

TEST_CASE("a command is shown as a person would type it") {
  CHECK(Command{.argv = {"grub-reboot", "--boot-directory=/boot", "a b", "it's", ""}}.text() ==
        "grub-reboot --boot-directory=/boot 'a b' 'it'\\''s' ''");
}

TEST_CASE("a failed command tells its status and its last lines") {
  const Command command{.argv = {"dkms", "build"}};
  CHECK(require_success(command, {0, "", "warning\n"}).has_value());
  CHECK(require_success(command, {10, "1\n2\n", ""}).error().message == "`dkms build` ended with status 10: 1 | 2");
  CHECK(require_success(command, {10, "out\n", "1\n\n2\n3\n\x1b[31m4\n5\n6\n"}).error().message ==
        "`dkms build` ended with status 10: 2 | 3 |  [31m4 | 5 | 6");
  CHECK(require_success(command, {1, "", ""}).error().message == "`dkms build` ended with status 1, without output");
  CHECK(require_success(command, {1, std::string(5000, 'x'), ""}).error().message.size() < 400);
}
