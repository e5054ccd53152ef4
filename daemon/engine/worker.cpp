// SPDX-License-Identifier: MIT
#include "engine/worker.hpp"

#include <sys/stat.h>

#include <thread>

#include "engine/state_lock.hpp"

namespace p2pd {

struct Worker::Parts {
  class SystemClock : public Clock {
   public:
    std::chrono::system_clock::time_point now() override { return std::chrono::system_clock::now(); }
    void wait(std::chrono::milliseconds time) override { std::this_thread::sleep_for(time); }
  };

  StateLock lock;
  Journal journal;
  UndoStore undo;
  Host host;
  SystemClock clock;
  Walk walk;

  Parts(StateLock held, Journal opened, UndoStore store, const Root& root, const Registry& registry, const Peers& peers,
        std::string boot_id)
      : lock(std::move(held)),
        journal(std::move(opened)),
        undo(std::move(store)),
        host(root, peers.runner, &undo),
        walk({host, registry, journal, undo, clock, peers.rebooter, peers.observer, peers.requests},
             std::move(boot_id)) {}
};

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker::~Worker() = default;

Walk& Worker::walk() { return parts_->walk; }
bool Worker::changed() const { return parts_->undo.changed(); }

Result<Worker> Worker::open(const Options& options, const Registry& registry, const Peers& peers) {
  const Root root = TRY(Root::open(options.root));
  ::umask(022);  // files on the host get the usual modes, regardless of the caller's umask
  StateLock lock = TRY(StateLock::take(options.root, options.state, options.holder, options.patience));
  const std::filesystem::path& state = lock.state();
  Root files = TRY(Root::open(state));
  UndoStore undo = TRY(UndoStore::open(files, root));
  Result<Journal> opened = Journal::open(state, Journal::Access::write);
  if (!opened && opened.error().code == ErrorCode::database_quarantined && options.accept_state_loss) {
    TRY(Journal::accept_loss(state));
    opened = Journal::open(state, Journal::Access::write);
  }
  Journal journal = TRY(std::move(opened));
  lock.close_to_others();  // restricts the database too, if it is new
  const auto boot = root.read("/proc/sys/kernel/random/boot_id", 64);
  std::string boot_id = boot ? boot->substr(0, boot->find('\n')) : "not-booted";
  Worker worker(std::make_unique<Parts>(std::move(lock), std::move(journal), std::move(undo), root, registry, peers,
                                        std::move(boot_id)));
  constexpr std::string_view kInstalledAgain = "/installed-again";  // made by p2pd.preinst
  if (files.exists(kInstalledAgain)) {
    TRY(worker.walk().abandon("p2pd was removed during this run, and installed again"));
    TRY(files.remove(kInstalledAgain));
  }
  return worker;
}

}  // namespace p2pd
