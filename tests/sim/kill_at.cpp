// SPDX-License-Identifier: MIT
// kill_at N -- PROGRAM ARGUMENT...: runs PROGRAM and kills it (SIGKILL) right before the N-th of its own system calls
// that change a file; then exits 137, else with PROGRAM's status. N 0 never kills and prints the count.
// kill_at each FD -- PROGRAM ARGUMENT...: stops it before each instead: writes a line to the socket FD, the call's
// number and "busy" if a child of PROGRAM is running, and continues when a line comes back; PROGRAM is killed if none
// comes. Counted: creating or truncating, writing, renaming, linking, removing, mode, owner, attributes, and every
// sync. SQLite writes its database and log with pwrite64 and fdatasync, so each point within a commit is among them;
// its shared index (-shm) is mapped, holds nothing durable, and only its ftruncate is seen. The calls of the children
// that PROGRAM starts are not counted, and kill_at ends when the last of them has. A seccomp filter hands only the
// calls of the table below to this process, which lets them continue or kills; ptrace(2) would work, too, but then
// PROGRAM could not wait for its children as usual. Needs Linux 5.9.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

/// Condition under which a call of the table counts: always, or as one of its arguments says.
enum class Counts { always, if_open_writes, if_how_writes, if_regular_file };

struct Call {
  long number;
  Counts counts;
  int argument = 0;  ///< flags, pointer to open_how, or descriptor
};

constexpr Call kCalls[] = {
#ifdef __x86_64__
    {SYS_open, Counts::if_open_writes, 1},
    {SYS_creat, Counts::always},
    {SYS_rename, Counts::always},
    {SYS_unlink, Counts::always},
    {SYS_rmdir, Counts::always},
    {SYS_mkdir, Counts::always},
    {SYS_symlink, Counts::always},
    {SYS_link, Counts::always},
    {SYS_chmod, Counts::always},
    {SYS_chown, Counts::always},
    {SYS_lchown, Counts::always},
    {SYS_mknod, Counts::always},
    {SYS_renameat, Counts::always},
#endif
    {SYS_openat, Counts::if_open_writes, 2},
    {SYS_openat2, Counts::if_how_writes, 2},
    {SYS_write, Counts::if_regular_file, 0},
    {SYS_pwrite64, Counts::if_regular_file, 0},
    {SYS_writev, Counts::if_regular_file, 0},
    {SYS_pwritev, Counts::if_regular_file, 0},
    {SYS_pwritev2, Counts::if_regular_file, 0},
    {SYS_sendfile, Counts::if_regular_file, 0},
    {SYS_copy_file_range, Counts::if_regular_file, 2},
    {SYS_renameat2, Counts::always},
    {SYS_unlinkat, Counts::always},
    {SYS_mkdirat, Counts::always},
    {SYS_symlinkat, Counts::always},
    {SYS_linkat, Counts::always},
    {SYS_mknodat, Counts::always},
    {SYS_truncate, Counts::always},
    {SYS_ftruncate, Counts::if_regular_file, 0},
    {SYS_fallocate, Counts::if_regular_file, 0},
    {SYS_fchmod, Counts::always},
    {SYS_fchmodat, Counts::always},
    {452 /* fchmodat2 */, Counts::always},
    {SYS_fchown, Counts::always},
    {SYS_fchownat, Counts::always},
    {SYS_setxattr, Counts::always},
    {SYS_lsetxattr, Counts::always},
    {SYS_fsetxattr, Counts::always},
    {SYS_removexattr, Counts::always},
    {SYS_lremovexattr, Counts::always},
    {SYS_fremovexattr, Counts::always},
    {SYS_fsync, Counts::always},
    {SYS_fdatasync, Counts::always},
    {SYS_msync, Counts::always},
    {SYS_sync_file_range, Counts::always}};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "kill_at: %s: %s\n", what, std::strerror(errno));
  std::exit(2);
}

bool opens_to_write(std::uint64_t flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

bool is_regular_file(pid_t pid, std::uint64_t fd) {
  const std::string name = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(static_cast<int>(fd));
  char target[16] = {};
  struct stat info {};
  if (::readlink(name.c_str(), target, sizeof target - 1) < 0 || std::strncmp(target, "/memfd:", 7) == 0) return false;
  return ::stat(name.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::uint64_t flags_of_how(pid_t pid, std::uint64_t address) {
  std::uint64_t flags = 0;
  const iovec here{&flags, sizeof flags};
  const iovec there{reinterpret_cast<void*>(address + offsetof(open_how, flags)), sizeof flags};
  (void)!::process_vm_readv(pid, &here, 1, &there, 1, 0);
  return flags;
}

/// Checks that a call made by `pid` counts.
bool counts(pid_t pid, const seccomp_data& made) {
  for (const Call& call : kCalls) {
    if (call.number != made.nr) continue;
    const std::uint64_t argument = made.args[call.argument];
    switch (call.counts) {
      case Counts::always: return true;
      case Counts::if_open_writes: return opens_to_write(argument);
      case Counts::if_how_writes: return opens_to_write(flags_of_how(pid, argument));
      case Counts::if_regular_file: return is_regular_file(pid, argument);
    }
  }
  return false;
}

/// Makes each call of the table wait for the holder of the returned descriptor, in this process and its children.
int install_filter() {
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const Call& call : kCalls) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call.number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(code.size()), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

struct Traced {
  pid_t pid;
  int pidfd;
  int listener;
};

/// Action at a call that counts.
struct Wanted {
  long killed_at = 0;  ///< 0: at none
  int told = -1;       ///< a socket; -1: none
};

/// Checks that a child of `pid` has not ended yet.
bool has_children(pid_t pid) {
  std::ifstream children("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  for (std::string child; children >> child;) {
    std::ifstream stat("/proc/" + child + "/stat");
    const std::string line((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.compare(name_end, 3, ") Z") != 0) return true;
  }
  return false;
}

/// Sends call `count` to the listener, and waits for its answer. False if the listener has ended.
bool tell(int to, long count, bool busy) {
  const std::string line = std::to_string(count) + (busy ? " busy\n" : "\n");
  char answer = 0;
  return ::write(to, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && ::read(to, &answer, 1) == 1;
}

/// Starts `argv` under the filter. It waits, stopped, until its end of the filter has been fetched.
Traced start(char** argv, const Wanted& wanted) {
  void* shared = ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("mmap");
  int* listener = static_cast<int*>(shared);
  const pid_t pid = ::fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    *listener = install_filter();
    if (*listener < 0) die("seccomp");
    if (wanted.told >= 0) ::close(wanted.told);
    ::raise(SIGSTOP);
    ::execvp(argv[0], argv);
    die(argv[0]);
  }
  int status = 0;
  if (::waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) std::exit(2);
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  const int fetched = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, *listener, 0));
  if (pidfd < 0 || fetched < 0) {
    ::kill(pid, SIGKILL);
    die("fetch the listener");
  }
  ::kill(pid, SIGCONT);
  return {pid, pidfd, fetched};
}

/// Takes one waiting call and lets it continue, or kills `program` if that is wanted.
void answer(const Traced& program, const Wanted& wanted, long& count) {
  seccomp_notif call{};
  if (::ioctl(program.listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;  // the caller died meanwhile
  const auto caller = static_cast<pid_t>(call.pid);
  if (caller == program.pid && counts(caller, call.data)) {
    ++count;
    if (count == wanted.killed_at || (wanted.told >= 0 && !tell(wanted.told, count, has_children(program.pid)))) {
      ::kill(program.pid, SIGKILL);  // the call is not made
      return;
    }
  }
  seccomp_notif_resp go_on{};
  go_on.id = call.id;
  go_on.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ::ioctl(program.listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
}

}  // namespace

int main(int argc, char** argv) {
  const bool each = argc > 2 && std::strcmp(argv[1], "each") == 0;
  const int words = each ? 3 : 2;  // before "--"
  if (argc < words + 2 || std::strcmp(argv[words], "--") != 0) {
    std::fprintf(stderr, "usage: kill_at N | each FD -- PROGRAM ARGUMENT...\n");
    return 2;
  }
  Wanted wanted;
  if (each)
    wanted.told = std::atoi(argv[2]);
  else
    wanted.killed_at = std::atol(argv[1]);
  const Traced program = start(argv + words + 1, wanted);
  long count = 0;
  int status = 0;
  pollfd fds[] = {{program.listener, POLLIN, 0}, {program.pidfd, POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {  // poll(2) skips negative ones
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) die("poll");
    if ((fds[0].revents & POLLIN) != 0)
      answer(program, wanted, count);
    else if ((fds[0].revents & POLLHUP) != 0)
      fds[0].fd = -1;  // the program and its children have ended
    if ((fds[1].revents & POLLIN) != 0) {
      ::waitpid(program.pid, &status, 0);
      fds[1].fd = -1;
    }
  }
  if (!each && wanted.killed_at == 0) std::fprintf(stderr, "%ld\n", count);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
