// SPDX-License-Identifier: MIT
#include "engine/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/directories.hpp"

namespace p2pd {
namespace {

/// The process that holds the lock of an open file, as the kernel lists it; empty where it does not tell.
std::string holder_of(int fd) {
  struct stat file {};
  std::ifstream locks("/proc/locks");
  if (::fstat(fd, &file) != 0) return {};
  const std::string inode = fmt::format(":{}", file.st_ino);  // the device in front of it is another one on an overlay
  std::string number, kind, mode, access, pid, where, rest;
  while (locks >> number >> kind) {
    if (kind == "->") locks >> kind;  // somebody who waits for it
    locks >> mode >> access >> pid >> where && std::getline(locks, rest);
    if (kind != "FLOCK" || !where.ends_with(inode)) continue;
    struct stat process {};
    std::string name;
    std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
    if (::stat(("/proc/" + pid).c_str(), &process) != 0) return "process " + pid + ", which has ended, or one that it started";
    return fmt::format("{}, process {} of user {}", name, pid, process.st_uid);
  }
  return {};
}

/// Keeps the state to root and the service p2pd, which reads it: every reader could hold its locks. Closes what an older version
/// left open to all. `own`: the directory is p2pd's, not one that somebody named.
void keep_to_ourselves(const std::filesystem::path& state, bool own) {
  const struct group* readers = ::getgrnam("p2pd");
  const auto set = [&](const std::filesystem::path& path, mode_t mode) {
    // by name and not through a link: to close a descriptor of a database would drop SQLite's locks
    if (readers != nullptr) (void)!::fchownat(AT_FDCWD, path.c_str(), static_cast<uid_t>(-1), readers->gr_gid, AT_SYMLINK_NOFOLLOW);
    (void)!::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW);
  };
  if (own) set(state, 0750);
  std::error_code ignored;
  for (const char* name : {"state.db", "state.db-wal", "state.db-shm"})
    if (std::filesystem::symlink_status(state / name, ignored).type() == std::filesystem::file_type::regular) set(state / name, 0640);
}

}  // namespace

struct Worker::Parts {
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
      auto lock = std::make_unique<Lock>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (lock->fd_ < 0) return fail_errno("cannot open " + path);
      (void)!::fchmod(lock->fd_, 0600);  // who may open it may hold it
      const auto until = std::chrono::steady_clock::now() + options.patience;
      while (::flock(lock->fd_, LOCK_EX | LOCK_NB) != 0) {
        if (std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          continue;
        }
        return lock->refuse(path);
      }
      const std::string text = fmt::format("{}, process {}", options.holder, ::getpid());
      if (::ftruncate(lock->fd_, 0) != 0 || ::pwrite(lock->fd_, text.data(), text.size(), 0) < 0)
        return fail_errno("cannot write " + path);
      return lock;
    }
    /// Names the process that holds it, as the kernel knows it; what it does, where that is a worker that wrote so.
    Failure refuse(const std::string& path) const {
      char text[128] = {};
      const std::string written = ::pread(fd_, text, sizeof(text) - 1, 0) > 0 ? text : "";
      const std::string holder = holder_of(fd_);
      const std::size_t pid = written.find("process ");
      const bool its = pid != std::string::npos && holder.find(written.substr(pid) + " of user") != std::string::npos;
      const std::string who = its || holder.empty() ? written : fmt::format("{}, which holds {}", holder, path);
      return fail(ErrorCode::busy, fmt::format("somebody else is at work here: {}", who.empty() ? "unknown" : who),
                  "wait for it, or stop it: SIGTERM ends a worker at the next safe point");
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
  ::umask(022);  // whoever starts it: what it makes on the host gets the usual modes
  std::error_code error;
  const bool own = std::filesystem::create_directories(state, error) || options.state.empty();
  if (error)
    return fail(ErrorCode::denied, fmt::format("cannot make the state directory {}: {}", state.string(), error.message()),
                "run as root, or name another one with --state");
  keep_to_ourselves(state, own);
  auto lock = TRY(Parts::Lock::take(state, options));
  UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state)), root));
  Result<Journal> opened = Journal::open(state, Journal::Access::write);
  if (!opened && opened.error().code == ErrorCode::set_aside && options.accept_state_loss) {
    TRY(Journal::accept_loss(state));
    opened = Journal::open(state, Journal::Access::write);
  }
  Journal journal = TRY(std::move(opened));
  keep_to_ourselves(state, own);  // the database, where it is new
  const auto boot = root.read("/proc/sys/kernel/random/boot_id", 64);
  std::string boot_id = boot ? boot->substr(0, boot->find('\n')) : "not-booted";
  return Worker(std::make_unique<Parts>(std::move(lock), std::move(journal), std::move(undo), root, vocabulary, peers,
                                        std::move(boot_id)));
}

}  // namespace p2pd
