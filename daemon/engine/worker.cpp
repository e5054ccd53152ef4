// SPDX-License-Identifier: MIT
#include "engine/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace p2pd {
namespace {

class SystemClock : public Clock {
 public:
  std::chrono::system_clock::time_point now() override { return std::chrono::system_clock::now(); }
  void wait(std::chrono::milliseconds time) override { std::this_thread::sleep_for(time); }
};

/// Asks systemd; of a tree that is not running, and where the plan says so, the reboot is somebody else's.
class SystemRebooter : public Rebooter {
 public:
  SystemRebooter(CommandRunner& runner, bool allowed) : runner_(runner), allowed_(allowed) {}
  Result<void> reboot(std::string_view) override {
    if (!allowed_) return {};
    Command command;
    command.argv = {"systemctl", "reboot"};
    const CommandResult result = TRY_IN("cannot reboot", runner_.run(command));
    return require_success(command, result);
  }

 private:
  CommandRunner& runner_;
  bool allowed_;
};

/// The one request that a signal can make: end soon.
class StopRequests : public Requests {
 public:
  explicit StopRequests(int fd) : fd_(fd) {}
  std::optional<Event> poll() override {
    pollfd stop{fd_, POLLIN, 0};
    if (fd_ >= 0 && ::poll(&stop, 1, 0) == 1) return Event::stopped;
    return std::nullopt;
  }

 private:
  int fd_;
};

/// STATE/lock, held while a worker lives; its text says who holds it.
class Lock {
 public:
  static Result<std::unique_ptr<Lock>> take(const std::filesystem::path& state, std::string_view holder) {
    const std::string path = state / "lock";
    auto lock = std::make_unique<Lock>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (lock->fd_ < 0) return fail_errno("cannot open " + path);
    if (::flock(lock->fd_, LOCK_EX | LOCK_NB) != 0) {
      char other[128] = {};
      const ssize_t length = ::pread(lock->fd_, other, sizeof(other) - 1, 0);
      return fail(ErrorCode::busy, fmt::format("somebody else is at work here: {}", length > 0 ? other : "unknown"),
                  "wait for it, or stop it: SIGTERM ends it at the next safe point");
    }
    const std::string text = fmt::format("{}, process {}", holder, ::getpid());
    if (::ftruncate(lock->fd_, 0) != 0 || ::pwrite(lock->fd_, text.data(), text.size(), 0) < 0)
      return fail_errno("cannot write " + path);
    return lock;
  }
  explicit Lock(int fd) : fd_(fd) {}
  ~Lock() {
    if (fd_ >= 0) ::close(fd_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_;
};

}  // namespace

std::filesystem::path state_directory(const std::filesystem::path& root) {
  std::error_code error;
  std::string path = std::filesystem::weakly_canonical(root, error);  // one for all names of the tree, as is the lock
  if (error) path = std::filesystem::absolute(root).lexically_normal();
  if (path == "/") return "/var/lib/p2pd";
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path + ".p2pd";
}

struct Worker::Parts {
  std::unique_ptr<Lock> lock;
  Journal journal;
  UndoStore undo;
  Host host;
  SystemClock clock;
  SystemRebooter rebooter;
  StopRequests requests;
  Walk walk;

  Parts(std::unique_ptr<Lock> held, Journal opened, UndoStore store, const Root& root, CommandRunner& runner,
        const Vocabulary& vocabulary, Observer& observer, const Options& options, std::string boot_id)
      : lock(std::move(held)),
        journal(std::move(opened)),
        undo(std::move(store)),
        host(root, runner, &undo),
        rebooter(runner, options.reboot && root.live()),
        requests(options.stop_fd),
        walk({host, vocabulary, journal, undo, clock, rebooter, observer, requests}, std::move(boot_id)) {}
};

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker::~Worker() = default;

Walk& Worker::walk() { return parts_->walk; }
bool Worker::changed() const { return parts_->undo.changed(); }

Result<Worker> Worker::open(const Options& options, const Vocabulary& vocabulary, CommandRunner& runner,
                            Observer& observer) {
  const std::filesystem::path state = options.state.empty() ? state_directory(options.root) : options.state;
  const Root root = TRY(Root::open(options.root));
  ::umask(022);  // whoever starts it: everybody may read how it stands
  std::error_code error;
  std::filesystem::create_directories(state, error);
  if (error)
    return fail(ErrorCode::denied, fmt::format("cannot make the state directory {}: {}", state.string(), error.message()),
                "run as root, or name another one with --state");
  auto lock = TRY(Lock::take(state, options.holder));
  UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state)), root));
  Result<Journal> opened = Journal::open(state, Journal::Access::write);
  if (!opened && opened.error().code == ErrorCode::set_aside && options.accept_state_loss) {
    TRY(Journal::accept_loss(state));
    opened = Journal::open(state, Journal::Access::write);
  }
  Journal journal = TRY(std::move(opened));
  const auto boot = root.read("/proc/sys/kernel/random/boot_id", 64);
  std::string boot_id = boot ? boot->substr(0, boot->find('\n')) : "not-booted";
  return Worker(std::make_unique<Parts>(std::move(lock), std::move(journal), std::move(undo), root, runner, vocabulary,
                                        observer, options, std::move(boot_id)));
}

}  // namespace p2pd
