// SPDX-License-Identifier: MIT
#include "base/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/inode.hpp"
#include "base/result.hpp"

#ifndef CLOSE_RANGE_CLOEXEC  // headers before Linux 5.11
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

namespace p2pd {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC

constexpr milliseconds kGrace{2'000};       // time from SIGTERM to SIGKILL
constexpr milliseconds kDeathLimit{5'000};  // time from SIGKILL until it counts as stuck in the kernel
constexpr std::size_t kLineLimit = 64U << 10;

/// One output stream of a running command: keeps its output and passes its lines to the listener.
class Stream {
 public:
  Stream(Descriptor fd, const std::function<void(std::string_view)>& on_line)
      : fd_(std::move(fd)), on_line_(&on_line) {}

  int fd() const { return fd_.get(); }

  /// Takes one piece of available output; false if there is none now, or the stream has ended.
  bool take() {
    if (!fd_) return false;
    std::array<char, 65536> buffer;
    const ssize_t count = ::read(fd_.get(), buffer.data(), buffer.size());
    if (count > 0) {
      keep({buffer.data(), static_cast<std::size_t>(count)});
      return true;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) fd_.reset();
    return false;
  }

  /// Returns all kept output.
  std::string finish() {
    if (!line_.empty()) emit();
    if (dropped_ > 0) kept_ += "\n[p2pd dropped " + std::to_string(dropped_) + " more bytes]\n";
    return std::move(kept_);
  }

 private:
  void keep(std::string_view bytes) {
    const std::size_t room = std::min(CommandResult::kOutputLimit - kept_.size(), bytes.size());
    kept_.append(bytes.substr(0, room));
    dropped_ += bytes.size() - room;
    if (!*on_line_) return;
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t length = std::min({end, bytes.size(), kLineLimit - line_.size()});
      line_.append(bytes.substr(0, length));
      bytes.remove_prefix(length);
      if (length == end) bytes.remove_prefix(1);
      if (length == end || line_.size() == kLineLimit) emit();
    }
  }

  void emit() {
    const std::string line = std::exchange(line_, {});
    (*on_line_)(line);
  }

  Descriptor fd_;
  const std::function<void(std::string_view)>* on_line_;
  std::string kept_;
  std::string line_;
  std::size_t dropped_ = 0;
};

/// A started process: waits for it within bounds, and never leaves its group behind.
class Child {
 public:
  enum class Event { exited, expired, stopped };

  Child(pid_t pid, Descriptor pidfd, Stream output, Stream errors)
      : pid_(pid), pidfd_(std::move(pidfd)), output_(std::move(output)), errors_(std::move(errors)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {  // acts only after a failed poll(2) or when a listener throws
    if (settled_) return;
    signal_group(SIGKILL);
    pollfd dead{pidfd_.get(), POLLIN, 0};
    ::poll(&dead, 1, static_cast<int>(kDeathLimit.count()));
    ::waitpid(pid_, nullptr, WNOHANG);
  }

  pid_t pid() const { return pid_; }
  bool watched() const { return static_cast<bool>(pidfd_); }

  /// Takes output until the process has exited, `until` has passed or `stop_fd` is readable. With `renewal`, each
  /// output moves `until` to that long after the output. Calls `on_idle` after each second without output.
  Result<Event> watch(Clock::time_point until, int stop_fd, milliseconds renewal = {},
                      const std::function<void()>& on_idle = {}) {
    for (;;) {
      std::array<pollfd, 4> fds{{{pidfd_.get(), POLLIN, 0},
                                 {stop_fd, POLLIN, 0},  // poll(2) skips negative descriptors
                                 {output_.fd(), POLLIN, 0},
                                 {errors_.fd(), POLLIN, 0}}};
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      const int wait = static_cast<int>(std::clamp<long long>(left, 0, on_idle ? 1'000 : 3'600'000));
      const int ready = ::poll(fds.data(), fds.size(), wait);
      if (ready < 0 && errno != EINTR) return fail_errno("poll");
      if (ready == 0 && on_idle) on_idle();
      const bool output = fds[2].revents != 0 && output_.take();
      const bool errors = fds[3].revents != 0 && errors_.take();
      if ((output || errors) && renewal > milliseconds{0}) until = Clock::now() + renewal;
      if (fds[0].revents != 0) return Event::exited;
      if (fds[1].revents != 0) return Event::stopped;
      if (Clock::now() >= until) return Event::expired;
    }
  }

  /// Sends SIGTERM, waits, sends SIGKILL; false if the process survives both.
  Result<bool> end() {
    signal_group(SIGTERM);
    if (TRY(watch(Clock::now() + kGrace, -1)) == Event::exited) return true;
    signal_group(SIGKILL);
    settled_ =
        TRY(watch(Clock::now() + kDeathLimit, -1)) != Event::exited;  // a process that survives SIGKILL is left alone
    return !settled_;
  }

  /// Returns its output so far, with `status`.
  CommandResult result(int status) { return {status, output_.finish(), errors_.finish()}; }

  /// Kills the rest of the group after the exit, takes the rest of the output; returns the status. Kills the group
  /// first: until the process is reaped, no other one can get its number.
  Result<int> reap() {
    signal_group(SIGKILL);
    constexpr int kPieces = 64;  // a process that left the group may write for ever
    for (Stream* stream : {&output_, &errors_})
      for (int piece = 0; piece < kPieces && stream->take();) ++piece;
    int status = 0;
    settled_ = true;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return fail_errno("waitpid");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  void signal_group(int number) const {
    if (::kill(-pid_, number) != 0) ::kill(pid_, number);  // the child may not have made its group yet
  }

  pid_t pid_;
  Descriptor pidfd_;
  Stream output_;
  Stream errors_;
  bool settled_ = false;
};

constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the same descriptor, numbered above the standard ones, so that the child can assign those in any order.
Descriptor above_standard(int fd) {
  Descriptor given(fd);
  if (fd < 0 || fd > STDERR_FILENO) return given;
  return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

struct Pipe {
  Descriptor read;  ///< does not block
  Descriptor write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe");
  Pipe pipe{above_standard(ends[0]), above_standard(ends[1])};
  if (!pipe.read || !pipe.write || ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("pipe");
  return pipe;
}

/// Makes standard input a memory file: it never blocks p2pd, and a reader that exits early causes no SIGPIPE.
Result<Descriptor> make_input(std::string_view bytes) {
  if (bytes.empty()) {
    Descriptor null = above_standard(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) return fail_errno("/dev/null");
    return null;
  }
  Descriptor file = above_standard(::memfd_create("p2pd-input", MFD_CLOEXEC));
  if (!file) return fail_errno("memfd_create");
  TRY(write_all(file, bytes, "standard input"));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno("standard input");
  return file;
}

/// Failure of the child before it became the program.
struct Refusal {
  enum class At : int { none, standard_streams, chroot, exec };
  At at = At::none;
  int error = 0;
};

/// Data that the child needs, made before the fork: after it only async-signal-safe calls are allowed.
struct Program {
  std::vector<std::string> candidates;  ///< paths to try, from PATH
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  const char* root = nullptr;  ///< null: no chroot
  pid_t parent = 0;
  int input = -1, output = -1, errors = -1, report = -1;
};

[[noreturn]] void refuse(const Program& program, Refusal::At at) {
  const Refusal refusal{at, errno};
  (void)!::write(program.report, &refusal, sizeof refusal);
  ::_exit(127);
}

/// The child's side of the fork.
[[noreturn]] void become(const Program& program) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != program.parent) ::_exit(127);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(program.input, STDIN_FILENO) < 0 || ::dup2(program.output, STDOUT_FILENO) < 0 ||
      ::dup2(program.errors, STDERR_FILENO) < 0) {
    refuse(program, Refusal::At::standard_streams);
  }
  // Fails before Linux 5.11; then p2pd's own descriptors still close, as all of them are close-on-exec.
  ::syscall(__NR_close_range, 3U, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  ::umask(022);
  if (program.root != nullptr && (::chdir(program.root) != 0 || ::chroot(".") != 0))
    refuse(program, Refusal::At::chroot);
  if (::chdir("/") != 0) refuse(program, Refusal::At::chroot);
  int error = ENOENT;
  for (const std::string& candidate : program.candidates) {
    ::execve(candidate.c_str(), program.argv.data(), program.envp.data());
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
  }
  errno = error;
  refuse(program, Refusal::At::exec);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> candidates_of(const std::string& program, std::string_view path) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> candidates;
  while (!path.empty()) {
    const std::string_view directory = path.substr(0, path.find(':'));
    if (!directory.empty()) candidates.push_back(std::string(directory) + "/" + program);
    path.remove_prefix(std::min(directory.size() + 1, path.size()));
  }
  return candidates;
}

/// Forks with every signal blocked, so that no handler of p2pd runs in the child.
pid_t fork_quietly(const Program& program) {
  sigset_t all, old;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  const pid_t pid = ::fork();
  if (pid == 0) become(program);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  errno = error;
  return pid;
}

/// Joins the last lines of `text`, without characters that act on a terminal.
std::string tail(std::string_view text) {
  constexpr int kLines = 5;
  constexpr std::size_t kWidth = 300;
  std::string joined;
  int count = 0;
  while (count < kLines && !text.empty()) {
    const std::size_t at = text.rfind('\n');
    std::string_view last = at == std::string_view::npos ? text : text.substr(at + 1);
    text = text.substr(0, at == std::string_view::npos ? 0 : at);
    if (last.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (last.size() > kWidth) last.remove_suffix(last.size() - kWidth);
    joined = count++ == 0 ? std::string(last) : std::string(last) + " | " + joined;
  }
  for (char& c : joined)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return joined;
}

std::string last_words(const std::string& output, const std::string& errors) {
  const std::string words = tail(errors);
  return words.empty() ? tail(output) : words;
}

Failure cut_short(ErrorCode code, const Command& command, const std::string& why, const CommandResult& result,
                  std::string next = {}) {
  const std::string words = last_words(result.output, result.errors);
  return fail(code, "`" + command.text() + "` " + why + (words.empty() ? "" : "; its last output: " + words),
              std::move(next));
}

Failure refused(const Command& command, const Refusal& refusal, const std::string& root) {
  const std::string program = "`" + command.text() + "`";
  switch (refusal.at) {
    case Refusal::At::chroot: return fail_errno(program + ": enter root directory " + root, refusal.error);
    case Refusal::At::exec:
      if (refusal.error == ENOENT)
        return fail(ErrorCode::not_found, program + ": there is no program " + command.argv[0]);
      return fail_errno(program + ": start " + command.argv[0], refusal.error);
    default: return fail_errno(program + ": standard streams", refusal.error);
  }
}

/// Waits for the end of a started command, or ends it at the deadline or a stop.
Result<CommandResult> supervise(const Command& command, Child& child, Clock::time_point until, int stop_fd) {
  if (!child.watched()) return fail_errno("`" + command.text() + "`: pidfd_open");
  const milliseconds renewal = command.while_silent ? command.deadline : milliseconds{};
  const Child::Event event = TRY(child.watch(until, stop_fd, renewal, command.on_idle));
  if (event == Child::Event::exited) return child.result(TRY(child.reap()));
  const bool stopped = event == Child::Event::stopped;
  const ErrorCode code = stopped ? ErrorCode::interrupted : ErrorCode::timeout;
  const std::string why =
      stopped ? "was ended: p2pd is stopping"
              : fmt::format("was ended, {} {} s", command.while_silent ? "silent for" : "still running after",
                            static_cast<double>(command.deadline.count()) / 1000);
  if (TRY(child.end())) return cut_short(code, command, why, child.result(TRY(child.reap())));
  const std::string pid = std::to_string(child.pid());
  return cut_short(code, command, why + ", but process " + pid + " survives SIGKILL", child.result(-1),
                   "It hangs in the kernel; see /proc/" + pid + "/stack. Only a reboot clears it.");
}

Result<void> check(const Command& command) {
  if (command.argv.empty() || command.argv[0].empty()) return fail(ErrorCode::invalid, "a command without a program");
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  bool nul = std::any_of(command.argv.begin(), command.argv.end(), has_nul);
  for (const auto& [name, value] : command.environment) nul = nul || has_nul(name) || has_nul(value);
  if (nul) return fail(ErrorCode::invalid, "`" + command.argv[0] + "`: an argument contains a NUL byte");
  return {};
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=+,@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

}  // namespace

std::map<std::string, std::string> Command::full_environment() const {
  std::map<std::string, std::string> all = environment;
#ifdef P2PD_PORTABLE  // p2p-bench is beside p2pctl
  std::error_code error;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  all.emplace("PATH", own.empty() ? kPath : own + ":" + kPath);
#else
  all.emplace("PATH", kPath);
#endif
  all.emplace("LC_ALL", "C");
  all.emplace("HOME", ::geteuid() == 0 ? "/root" : "/");
  return all;
}

std::string Command::text() const {
  std::string out;
  for (const std::string& word : argv) out += (out.empty() ? "" : " ") + quoted(word);
  return out;
}

int stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM}) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Result<CommandResult> ProcessRunner::run(const Command& command) {
  TRY(check(command));
  pollfd stop{stop_fd_, POLLIN, 0};
  if (stop_fd_ >= 0 && ::poll(&stop, 1, 0) > 0)
    return fail(ErrorCode::interrupted, "`" + command.text() + "` was not started: p2pd is stopping");
  Pipe output = TRY(make_pipe());
  Pipe errors = TRY(make_pipe());
  Pipe report = TRY(make_pipe());
  const Descriptor input = TRY(make_input(command.input));

  const auto environment = command.full_environment();
  std::vector<std::string> argv = command.argv;
  Program program;
  program.candidates = candidates_of(argv[0], environment.at("PATH"));
  for (const auto& [name, value] : environment) program.environment.push_back(name + "=" + value);
  program.argv = pointers(argv);
  program.envp = pointers(program.environment);
  program.root = root_ == "/" || command.outside ? nullptr : root_.c_str();
  program.parent = ::getpid();
  program.input = input.get();
  program.output = output.write.get();
  program.errors = errors.write.get();
  program.report = report.write.get();

  const auto longest = std::chrono::hours(24 * 365);  // keeps the sum below from overflowing
  const auto until = Clock::now() + std::min<milliseconds>(command.deadline, longest);
  const pid_t pid = fork_quietly(program);
  if (pid < 0) return fail_errno("`" + command.text() + "`: fork");
  output.write.reset();
  errors.write.reset();
  report.write.reset();
  const std::function<void(std::string_view)>& on_line = command.on_line;
  Child child(pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
              Stream(std::move(output.read), on_line), Stream(std::move(errors.read), on_line));
  Result<CommandResult> result = supervise(command, child, until, stop_fd_);
  Refusal refusal;
  if (::read(report.read.get(), &refusal, sizeof refusal) == sizeof refusal) return refused(command, refusal, root_);
  return result;
}

Result<void> require_success(const Command& command, const CommandResult& result) {
  if (result.status == 0) return {};
  const std::string words = last_words(result.output, result.errors);
  return fail(ErrorCode::command, "`" + command.text() + "` ended with status " + std::to_string(result.status) +
                                      (words.empty() ? ", without output" : ": " + words));
}

}  // namespace p2pd
