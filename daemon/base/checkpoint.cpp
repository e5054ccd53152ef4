// SPDX-License-Identifier: MIT
#include "base/checkpoint.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace p2pd {
namespace {

constexpr unsigned long kExt4Checkpoint = _IOW('f', 43, std::uint32_t);  // EXT4_IOC_CHECKPOINT, in no public header
constexpr int kDeadlineMs = 60'000;

/// Forks a process that runs `work`, which allocates nothing: other threads of this process may hold the lock of
/// malloc.
template <class Work>
pid_t start(const Work& work) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);  // the child inherits the mask: no signal but SIGKILL ends it half-way
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return child;
}

/// Empties the journal by a freeze; returns 0 or an errno.
int freeze_and_thaw(int directory, int finished) {
  if (::ioctl(directory, FIFREEZE, 0) != 0) return errno;
  while (::ioctl(directory, FITHAW, 0) != 0)
    if (errno != EINTR) return errno;
  return ::write(finished, "", 1) == 1 ? 0 : errno;
}

/// Thaws the file system if the other process ended without thawing it.
int thaw_unless_finished(int directory, int finished) {
  char byte = 0;
  ssize_t count = 0;
  while ((count = ::read(finished, &byte, 1)) < 0 && errno == EINTR) continue;
  return count == 1 || ::ioctl(directory, FITHAW, 0) == 0 ? 0 : errno;
}

/// Returns the exit status of `child`, -1 if it was killed; leaves it alone after the deadline.
Result<int> wait_for(pid_t child, const std::string& path) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  if (!process || ::poll(&ended, 1, kDeadlineMs) != 1)
    return fail(ErrorCode::timeout, path + ": its file system was not frozen and thawed within a minute",
                "Look for faults of its disk in the kernel's log.");
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Result<void> freeze_once(const Descriptor& directory, const std::string& path) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(path);
  Descriptor heard(ends[0]), finished(ends[1]);
  const pid_t guard = start([&] {
    ::close(finished.get());
    return thaw_unless_finished(directory.get(), heard.get());
  });
  if (guard < 0) return fail_errno(path + ": fork");
  const pid_t worker = start([&] { return freeze_and_thaw(directory.get(), finished.get()); });
  const int error = errno;
  finished.reset();  // the guard sees the end of the worker, which has the only other copy
  if (worker < 0) return fail_errno(path + ": fork", error);
  const int status = TRY(wait_for(worker, path));
  TRY(wait_for(guard, path));
  if (status == 0) return {};
  if (status == EBUSY)
    return fail(ErrorCode::busy, path + ": its file system is frozen by another program",
                "Thaw it (\"fsfreeze --unfreeze\").");
  if (status < 0)
    return fail(ErrorCode::io, path + ": the process that freezes its file system was killed", "Try again.");
  return fail_errno(path + ": its journal cannot be written back for GRUB by freezing it", status);
}

}  // namespace

Result<void> checkpoint_file_system(const Descriptor& directory, std::string_view path_given) {
  const std::string path(path_given);
  struct statfs info {};
  if (::syncfs(directory.get()) != 0) return fail_errno(path + ": sync");
  if (::fstatfs(directory.get(), &info) != 0) return fail_errno(path);
  if (info.f_type == EXT4_SUPER_MAGIC) {
    std::uint32_t flags = 0;
    if (::ioctl(directory.get(), kExt4Checkpoint, &flags) == 0 || errno == ENODEV) return {};  // ENODEV: no journal
    if (errno != ENOTTY && errno != EOPNOTSUPP)
      return fail_errno(path + ": its journal cannot be written back for GRUB");
    return freeze_once(directory, path);
  }
  return info.f_type == XFS_SUPER_MAGIC ? freeze_once(directory, path) : Result<void>();
}

}  // namespace p2pd
