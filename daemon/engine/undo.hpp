// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/root.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Original state of every changed path, as plain files that need no database:
/// STATE/undo/NNNNNN.json (path, mode, owner, xattrs, step) and NNNNNN.bytes (content).
///
/// A path is saved durably before a step first changes it, and again if another step changed it in between.
class UndoStore : public ChangeRecorder {
 public:
  /// Step of a run that made a change; enough to undo it without journal or plan.
  struct Owner {
    std::int64_t run = 0;
    std::string step;
    std::string check;
    std::string fix;
    Parameters with = Parameters::object();
    std::string made_by = {};  ///< version of p2pd; empty: 0.2 or older

    bool operator==(const Owner& other) const { return run == other.run && step == other.step; }
  };

  /// `state`: the state directory; `host`: the tree that changes. Reads the entries of earlier runs; check() reports
  /// damaged ones.
  static Result<UndoStore> open(Root state, Root host);

  /// Sets the owner of the changes that follow. With run 0 they have no owner, and are not saved.
  void begin(Owner owner) { owner_ = std::move(owner), undone_ = {}; }
  /// Marks that an action undoes the changes of `owner`: changes have no owner then.
  void begin_undo(Owner owner) { owner_ = {}, undone_ = std::move(owner); }
  std::string change() const override;
  bool is_as_left(std::string_view path) const override;
  Result<void> before_change(std::string_view path, Restore restore) override;
  /// Removes unfinished data of an interrupted fix of `owner`, which is not needed once its step holds.
  Result<void> clear_unfinished(const Owner& owner);
  /// Records the content of the owner's paths after its fix, to detect later changes by others.
  Result<void> note_result();

  /// Owner of the newest change; nothing if no change is left. Changes are undone strictly newest first, in
  /// groups of one owner. The changes of an open run are newer than those of all other runs.
  std::optional<Owner> newest() const;
  /// Owner of the newest change for `step`, in any run.
  std::optional<Owner> newest_for(std::string_view step) const;
  /// Owners of changes that are in place, each once, oldest first.
  std::vector<Owner> owners() const;
  /// Paths that `owner` changed, each once.
  std::vector<std::string> paths(const Owner& owner) const;
  /// Checks that every change of run `run`, or of all runs if it is 0, can be restored: the records and the saved
  /// contents are whole, and there is room for them. An Error names the file and the next step.
  Result<void> check(std::int64_t run) const;
  /// Restores the newest group. A file that others changed since is saved aside and named in the result. The
  /// entries stay until forget_newest(), so that a kill in between loses nothing.
  Result<std::vector<std::string>> restore_newest();
  Result<void> forget_newest();
  /// Path whose content is not what its fix left there.
  struct Difference {
    Owner owner;
    std::string path;
    bool missing = false;
  };
  /// Differences of the newest change of each path. Values of sysfs and procfs, and files that a tool of the system
  /// generates again, do not count.
  Result<std::vector<Difference>> changed_by_others() const;
  bool changed() const { return changed_; }  ///< true if anything was changed or restored since open()

 private:
  struct Entry {
    std::string name;  ///< NNNNNN
    Owner owner;
    std::string path;
    Restore restore = Restore::bytes;
    std::string result;                ///< digest of the content after the fix; empty while unknown
    std::optional<Error> damage = {};  ///< reason why the record cannot be read; nothing else of it is known
  };

  UndoStore(Root state, Root host) : state_(std::move(state)), host_(std::move(host)) {}
  Result<void> save(const Entry& entry, const FileState* before);
  Result<FileState> before(const Entry& entry) const;
  Result<void> check(const Entry& entry) const;
  Result<std::string> put_back(const Entry& entry);
  const Entry* newest_of(std::string_view path) const;
  std::size_t newest_stretch() const;  ///< index of its first entry

  Root state_;
  Root host_;
  Owner owner_, undone_;
  std::vector<Entry> entries_;
  bool changed_ = false;
};

}  // namespace p2pd
