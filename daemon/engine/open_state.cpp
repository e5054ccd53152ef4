// SPDX-License-Identifier: MIT
#include "engine/open_state.hpp"

#include <sys/stat.h>

namespace p2pd {

OpenState::OpenState(StateLock lock, Journal journal, UndoStore undo, const Root& root, const Registry& registry,
                     const Peers& peers, std::string boot_id)
    : lock_(std::move(lock)),
      journal_(std::move(journal)),
      undo_(std::move(undo)),
      host_(root, peers.runner, &undo_),
      walk_({host_, registry, journal_, undo_, clock_, peers.rebooter, peers.observer, peers.poll},
            std::move(boot_id)) {}

Result<std::unique_ptr<OpenState>> OpenState::open(const Options& options, const Registry& registry,
                                                   const Peers& peers) {
  const Root root = TRY(Root::open(options.root));
  ::umask(022);  // files on the host get the usual modes, regardless of the caller's umask
  StateLock lock = TRY(StateLock::take(options.root, options.state, options.holder, options.patience));
  const std::filesystem::path& state = lock.state();
  Root files = TRY(Root::open(state));
  UndoStore undo = TRY(UndoStore::open(files, root));
  Result<Journal> journal = Journal::open(state, Journal::Access::write);
  if (!journal && journal.error().code == ErrorCode::database_quarantined && options.accept_state_loss) {
    TRY(Database::accept_loss(state));
    journal = Journal::open(state, Journal::Access::write);
  }
  if (!journal) return Failure(journal.error());
  lock.close_to_others();  // restricts the database too, if it is new
  const auto boot = root.read("/proc/sys/kernel/random/boot_id", 64);
  std::string boot_id = boot ? boot->substr(0, boot->find('\n')) : "not-booted";
  std::unique_ptr<OpenState> opened(
      new OpenState(std::move(lock), *std::move(journal), std::move(undo), root, registry, peers, std::move(boot_id)));
  constexpr std::string_view kInstalledAgain = "/installed-again";  // made by p2pd.preinst
  if (files.exists(kInstalledAgain)) {
    TRY(opened->walk_.abandon("p2pd was removed during this run, and installed again"));
    TRY(files.remove(kInstalledAgain));
  }
  return opened;
}

}  // namespace p2pd
