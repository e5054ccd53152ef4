// SPDX-License-Identifier: MIT
#include "engine/state_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/directories.hpp"

namespace p2pd {
namespace {

/// Process that holds the lock of an open file, from /proc/locks; empty if it is not listed.
std::string holder_of(int fd) {
  struct stat file {};
  std::ifstream locks("/proc/locks");
  if (::fstat(fd, &file) != 0) return {};
  const std::string inode = fmt::format(":{}", file.st_ino);  // the device number in front of it differs on an overlay
  std::string number, kind, mode, access, pid, where, rest;
  while (locks >> number >> kind) {
    if (kind == "->") locks >> kind;  // a process that waits for the lock
    locks >> mode >> access >> pid >> where&& std::getline(locks, rest);
    if (kind != "FLOCK" || !where.ends_with(inode)) continue;
    struct stat process {};
    std::string name;
    std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
    if (::stat(("/proc/" + pid).c_str(), &process) != 0)
      return "process " + pid + ", which has ended, or one that it started";
    return fmt::format("{}, process {} of user {}", name, pid, process.st_uid);
  }
  return {};
}

}  // namespace

Result<StateLock> StateLock::take(const std::filesystem::path& root, const std::filesystem::path& named,
                                  const std::string& holder, std::chrono::seconds patience) {
  StateLock lock;
  lock.state_ = named.empty() ? state_directory(root) : named;
  std::error_code error;
  lock.own_ = std::filesystem::create_directories(lock.state_, error) || named.empty();
  if (error)
    return fail(ErrorCode::denied,
                fmt::format("cannot make the state directory {}: {}", lock.state_.string(), error.message()),
                "run as root, or name another one with --state");
  lock.close_to_others();
  const std::string path = lock.state_ / "lock";
  lock.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.file_) return fail_errno("cannot open " + path);
  (void)!::fchmod(lock.file_.get(), 0600);  // every user that can open it can hold it
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(lock.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return lock.refuse(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const std::string text = fmt::format("{}, process {}", holder, ::getpid());
  if (::ftruncate(lock.file_.get(), 0) != 0 || ::pwrite(lock.file_.get(), text.data(), text.size(), 0) < 0)
    return fail_errno("cannot write " + path);
  return lock;
}

void StateLock::close_to_others() const {
  const struct group* readers = ::getgrnam("p2pd");
  const auto set = [&](const std::filesystem::path& path, mode_t mode) {
    // by name, not through a link: closing a descriptor of a database would drop SQLite's locks
    if (readers != nullptr)
      (void)!::fchownat(AT_FDCWD, path.c_str(), static_cast<uid_t>(-1), readers->gr_gid, AT_SYMLINK_NOFOLLOW);
    (void)!::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW);
  };
  if (own_) set(state_, 0750);
  std::error_code ignored;
  for (const char* name : {"state.db", "state.db-wal", "state.db-shm"})
    if (std::filesystem::symlink_status(state_ / name, ignored).type() == std::filesystem::file_type::regular)
      set(state_ / name, 0640);
}

Failure StateLock::refuse(const std::string& path) const {
  char text[128] = {};
  const std::string written = ::pread(file_.get(), text, sizeof(text) - 1, 0) > 0 ? text : "";
  const std::string holder = holder_of(file_.get());
  const std::size_t pid = written.find("process ");
  const bool its = pid != std::string::npos && holder.find(written.substr(pid) + " of user") != std::string::npos;
  const std::string who = its || holder.empty() ? written : fmt::format("{}, which holds {}", holder, path);
  return fail(ErrorCode::busy, fmt::format("another process holds the state: {}", who.empty() ? "unknown" : who),
              "wait for it, or stop it: SIGTERM ends a worker at the next safe point");
}

}  // namespace p2pd
