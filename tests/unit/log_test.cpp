// SPDX-License-Identifier: MIT
#include "base/log.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <functional>

#include "catch.hpp"
#include "temporary.hpp"

using p2pd::test::TemporaryDirectory;

namespace {

/// Runs `body` in a child whose standard error is `file`; what it exited with.
int with_stderr(const std::filesystem::path& file, const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, STDERR_FILENO);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void log_two() {
  p2pd::log::start("p2pd-test");
  const p2pd::log::Field run("P2PD_RUN", "r1");
  {
    const p2pd::log::Field outer("P2PD_STEP", "outer");
    const p2pd::log::Field inner("P2PD_STEP", "inner");
    p2pd::log::warning("first {}", 1);
  }
  p2pd::log::write(p2pd::log::Level::debug, "not this one");
  p2pd::log::error("second");
}

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A journald of our own: its socket in a /run that only this process sees.
int journal() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) != 0 || ::mkdir("/run/systemd", 0755) != 0 ||
      ::mkdir("/run/systemd/journal", 0755) != 0) {
    return -1;
  }
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "/run/systemd/journal/socket");
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

std::string receive(int fd) {
  std::array<char, 4096> buffer;
  const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  return size < 0 ? "" : std::string(buffer.data(), static_cast<std::size_t>(size));
}

}  // namespace

TEST_CASE("records go to standard error, without colour, when it is not the journal") {
  TemporaryDirectory directory;
  CHECK(with_stderr(directory / "log", [] {
          ::setenv("JOURNAL_STREAM", "1:2", 1);  // that of another stream
          log_two();
          return 0;
        }) == 0);
  CHECK(slurp(directory / "log") == "p2pd-test: warning: first 1\np2pd-test: error: second\n");
}

TEST_CASE("records go to journald with native fields when standard error is the journal") {
  if (::geteuid() != 0) {
    WARN("not root: journald cannot be stood in for");
    return;
  }
  TemporaryDirectory directory;
  const int status = with_stderr(directory / "log", [&] {
    const int fd = journal();
    if (fd < 0) return 77;
    struct stat info {};
    ::fstat(STDERR_FILENO, &info);
    ::setenv("JOURNAL_STREAM", (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino)).c_str(), 1);
    log_two();
    std::ofstream(directory / "records") << receive(fd) << "---\n" << receive(fd);
    ::close(fd);
    return 0;
  });
  if (status == 77) {
    WARN("no mount namespace here: journald cannot be stood in for");
    return;
  }
  REQUIRE(status == 0);
  CHECK(slurp(directory / "records") ==
        "MESSAGE=first 1\nPRIORITY=4\nSYSLOG_IDENTIFIER=p2pd-test\nP2PD_STEP=inner\nP2PD_RUN=r1\n---\n"
        "MESSAGE=second\nPRIORITY=3\nSYSLOG_IDENTIFIER=p2pd-test\nP2PD_RUN=r1\n");
  CHECK(slurp(directory / "log").empty());
}

TEST_CASE("a record that journald does not take is not lost") {
  if (::geteuid() != 0) {
    WARN("not root: journald cannot be stood in for");
    return;
  }
  TemporaryDirectory directory;
  const int status = with_stderr(directory / "log", [] {
    const int fd = journal();
    if (fd < 0) return 77;
    ::close(fd);  // connection refused from here on
    struct stat info {};
    ::fstat(STDERR_FILENO, &info);
    ::setenv("JOURNAL_STREAM", (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino)).c_str(), 1);
    log_two();
    return 0;
  });
  if (status == 77) {
    WARN("no mount namespace here: journald cannot be stood in for");
    return;
  }
  CHECK(slurp(directory / "log") == "<4>first 1\n<3>second\n");
}
