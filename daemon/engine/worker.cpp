// SPDX-License-Identifier: MIT
#include "engine/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/directories.hpp"

namespace p2pd {
namespace {

class SystemClock : public Clock {
 public:
  std::chrono::system_clock::time_point now() override { return std::chrono::system_clock::now(); }
  void wait(std::chrono::milliseconds time) override { std::this_thread::sleep_for(time); }
};

/// STATE/lock, held while a worker lives; its text says who holds it.
class Lock {
 public:
  using Options = Worker::Options;
  static Result<std::unique_ptr<Lock>> take(const std::filesystem::path& state, const Options& options) {
    const std::string path = state / "lock";
    auto lock = std::make_unique<Lock>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (lock->fd_ < 0) return fail_errno("cannot open " + path);
    const auto until = std::chrono::steady_clock::now() + options.patience;
    while (::flock(lock->fd_, LOCK_EX | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        continue;
      }
      char other[128] = {};
      const ssize_t length = ::pread(lock->fd_, other, sizeof(other) - 1, 0);
      return fail(ErrorCode::busy, fmt::format("somebody else is at work here: {}", length > 0 ? other : "unknown"),
                  "wait for it, or stop it: SIGTERM ends it at the next safe point");
    }
    const std::string text = fmt::format("{}, process {}", options.holder, ::getpid());
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

struct Worker::Parts {
  std::unique_ptr<Lock> lock;
  Journal journal;
  UndoStore undo;
  Host host;
  SystemClock clock;
  Walk walk;

  Parts(std::unique_ptr<Lock> held, Journal opened, UndoStore store, const Root& root, const Vocabulary& vocabulary,
        const Peers& peers, std::string boot_id)
      : lock(std::move(held)),
        journal(std::move(opened)),
        undo(std::move(store)),
        host(root, peers.runner, &undo),
        walk({host, vocabulary, journal, undo, clock, peers.rebooter, peers.observer, peers.requests}, std::move(boot_id)) {}
};

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker::~Worker() = default;

Walk& Worker::walk() { return parts_->walk; }
bool Worker::changed() const { return parts_->undo.changed(); }

Result<Worker> Worker::open(const Options& options, const Vocabulary& vocabulary, const Peers& peers) {
  const std::filesystem::path state = options.state.empty() ? state_directory(options.root) : options.state;
  const Root root = TRY(Root::open(options.root));
  ::umask(022);  // whoever starts it: everybody may read how it stands
  std::error_code error;
  std::filesystem::create_directories(state, error);
  if (error)
    return fail(ErrorCode::denied, fmt::format("cannot make the state directory {}: {}", state.string(), error.message()),
                "run as root, or name another one with --state");
  auto lock = TRY(Lock::take(state, options));
  UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state)), root));
  Result<Journal> opened = Journal::open(state, Journal::Access::write);
  if (!opened && opened.error().code == ErrorCode::set_aside && options.accept_state_loss) {
    TRY(Journal::accept_loss(state));
    opened = Journal::open(state, Journal::Access::write);
  }
  Journal journal = TRY(std::move(opened));
  const auto boot = root.read("/proc/sys/kernel/random/boot_id", 64);
  std::string boot_id = boot ? boot->substr(0, boot->find('\n')) : "not-booted";
  return Worker(std::make_unique<Parts>(std::move(lock), std::move(journal), std::move(undo), root, vocabulary, peers,
                                        std::move(boot_id)));
}

}  // namespace p2pd
