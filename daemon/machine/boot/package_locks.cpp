// SPDX-License-Identifier: MIT
#include "machine/boot/package_locks.hpp"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <sstream>

#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLocks[] = {"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock",
                                       "/var/cache/apt/archives/lock"};

/// Process that holds `path`, by the table of locks: "1: POSIX  ADVISORY  WRITE 2301 fd:01:917555 0 EOF".
std::optional<std::int64_t> holder(const Host& host, std::string_view path, const std::string& table) {
  const auto file = host.files().stat(path);
  if (!file) return std::nullopt;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("->") != std::string::npos) continue;  // a process that waits for the lock
    long long pid = 0;
    unsigned major = 0, minor = 0;
    unsigned long long inode = 0;
    const int found = std::sscanf(line.c_str(), "%*u: %*s %*s %*s %lld %x:%x:%llu", &pid, &major, &minor, &inode);
    if (found != 4 || inode != file->st_ino) continue;
    // btrfs and overlays show another device to stat() than to the table of locks
    const bool anonymous = major == 0 || ::major(file->st_dev) == 0;
    if (anonymous || (major == ::major(file->st_dev) && minor == ::minor(file->st_dev))) return pid;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<std::vector<PackageLock>>> package_locks(const Host& host) {
  auto content = host.files().read("/proc/locks", 8U << 20);
  std::optional<std::vector<PackageLock>> held;
  if (!content && content.error().code == ErrorCode::not_found && !host.live()) return held;
  const std::string table = TRY(std::move(content));
  held.emplace();
  for (const std::string_view path : kLocks)
    if (const auto pid = holder(host, path, table))
      held->push_back({std::string(path), *pid, host.line(fmt::format("/proc/{}/comm", *pid)).value_or("")});
  return held;
}

Result<void> wait_for_package_locks(const Host& host, std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (std::string told;;) {
    const auto locks = TRY(package_locks(host));
    if (!locks || locks->empty()) return {};
    const PackageLock& lock = locks->front();
    const std::string who = fmt::format("process {} {} holds {}", lock.pid, lock.process, lock.file);
    if (std::chrono::steady_clock::now() >= until)
      return fail(ErrorCode::busy,
                  fmt::format("packages are being installed: {}{}", who,
                              patience.count() == 0 ? "" : fmt::format(" for {} s", patience.count())),
                  "Wait until it has ended, then try again; do not remove the lock file.");
    if (std::exchange(told, who) != who) log::warning("waiting: {}", who);
    TRY(host.run_readonly({{"sleep", "1"}, {}, {}}));  // a command, so that a request to stop ends it
  }
}

}  // namespace p2pd
