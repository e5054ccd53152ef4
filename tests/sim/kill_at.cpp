// SPDX-License-Identifier: MIT
// kill_at N -- PROGRAM ARGUMENT...: runs PROGRAM and kills it (SIGKILL) right before the N-th of its own system calls
// that change a file; then exits 137, else with PROGRAM's status. N 0 never kills and prints the count.
// Counted: creating or truncating, writing, renaming, linking, removing, mode, owner, attributes, and every sync.
// SQLite writes its database and log with pwrite64 and fdatasync, so each point within a commit is among them; its
// shared index (-shm) is mapped, holds nothing durable, and only its ftruncate is seen. Calls of the children that
// PROGRAM starts are not counted; those that are left when it ends are killed.
// A seccomp filter stops only the calls of the table below, so everything else runs at full speed.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

/// When a call of the table counts: always, or as one of its arguments says.
enum class Counts { always, if_open_writes, if_how_writes, if_regular_file };

struct Call {
  long number;
  Counts counts;
  int argument = 0;  ///< flags, pointer to open_how, or descriptor
};

constexpr Call kCalls[] = {
#ifdef __x86_64__
    {SYS_open, Counts::if_open_writes, 1}, {SYS_creat, Counts::always}, {SYS_rename, Counts::always},
    {SYS_unlink, Counts::always}, {SYS_rmdir, Counts::always}, {SYS_mkdir, Counts::always},
    {SYS_symlink, Counts::always}, {SYS_link, Counts::always}, {SYS_chmod, Counts::always},
    {SYS_chown, Counts::always}, {SYS_lchown, Counts::always}, {SYS_mknod, Counts::always},
    {SYS_renameat, Counts::always},
#endif
    {SYS_openat, Counts::if_open_writes, 2}, {SYS_openat2, Counts::if_how_writes, 2},
    {SYS_write, Counts::if_regular_file, 0}, {SYS_pwrite64, Counts::if_regular_file, 0},
    {SYS_writev, Counts::if_regular_file, 0}, {SYS_pwritev, Counts::if_regular_file, 0},
    {SYS_pwritev2, Counts::if_regular_file, 0}, {SYS_sendfile, Counts::if_regular_file, 0},
    {SYS_copy_file_range, Counts::if_regular_file, 2}, {SYS_renameat2, Counts::always},
    {SYS_unlinkat, Counts::always}, {SYS_mkdirat, Counts::always}, {SYS_symlinkat, Counts::always},
    {SYS_linkat, Counts::always}, {SYS_mknodat, Counts::always}, {SYS_truncate, Counts::always},
    {SYS_ftruncate, Counts::if_regular_file, 0}, {SYS_fallocate, Counts::if_regular_file, 0},
    {SYS_fchmod, Counts::always}, {SYS_fchmodat, Counts::always}, {452 /* fchmodat2 */, Counts::always},
    {SYS_fchown, Counts::always}, {SYS_fchownat, Counts::always}, {SYS_setxattr, Counts::always},
    {SYS_lsetxattr, Counts::always}, {SYS_fsetxattr, Counts::always}, {SYS_removexattr, Counts::always},
    {SYS_lremovexattr, Counts::always}, {SYS_fremovexattr, Counts::always}, {SYS_fsync, Counts::always},
    {SYS_fdatasync, Counts::always}, {SYS_msync, Counts::always}, {SYS_sync_file_range, Counts::always}};

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

/// Whether the call at which `pid` stands counts.
bool counts(pid_t pid) {
  struct __ptrace_syscall_info at {};
  if (::ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), pid, sizeof at, &at) < 0) die("read the call");
  for (const Call& call : kCalls) {
    if (static_cast<std::uint64_t>(call.number) != at.seccomp.nr) continue;
    const std::uint64_t argument = at.seccomp.args[call.argument];
    switch (call.counts) {
      case Counts::always: return true;
      case Counts::if_open_writes: return opens_to_write(argument);
      case Counts::if_regular_file: return is_regular_file(pid, argument);
      case Counts::if_how_writes: {
        const long flags = ::ptrace(PTRACE_PEEKDATA, pid, argument + offsetof(open_how, flags), nullptr);
        return opens_to_write(static_cast<std::uint64_t>(flags));
      }
    }
  }
  return false;
}

/// Makes each call of the table stop for the tracer, in this process and its children.
void install_filter() {
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const Call& call : kCalls) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call.number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) die("seccomp");
}

/// Starts `argv`, stopped by a pipe until it is traced.
pid_t start(char** argv) {
  int gate[2];
  if (::pipe(gate) != 0) die("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    char byte = 0;
    ::close(gate[1]);
    (void)!::read(gate[0], &byte, 1);
    ::close(gate[0]);
    install_filter();
    ::execvp(argv[0], argv);
    die(argv[0]);
  }
  constexpr long kOptions = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                            PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SEIZE, pid, nullptr, kOptions) != 0) die("ptrace");
  ::close(gate[0]);
  ::close(gate[1]);
  return pid;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || std::strcmp(argv[2], "--") != 0) {
    std::fprintf(stderr, "usage: kill_at N -- PROGRAM ARGUMENT...\n");
    return 2;
  }
  const long wanted = std::atol(argv[1]);
  const pid_t program = start(argv + 3);
  long count = 0;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, __WALL);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) die("wait");
    if (!WIFSTOPPED(status)) {
      if (pid != program) continue;
      if (wanted == 0) std::fprintf(stderr, "%ld\n", count);
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    const int event = status >> 16;
    if (event == PTRACE_EVENT_SECCOMP && pid == program && counts(pid) && ++count == wanted) {
      ::kill(pid, SIGKILL);  // the call is not made
      continue;
    }
    const bool stays_stopped = event == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP;  // SIGSTOP and the like
    const int signal = event == 0 ? WSTOPSIG(status) : 0;
    ::ptrace(stays_stopped ? PTRACE_LISTEN : PTRACE_CONT, pid, nullptr, signal);
  }
}
