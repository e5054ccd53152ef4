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

/// What every changed path held before p2pd touched it, as plain files that need no database:
/// STATE/undo/NNNNNN.json (path, mode, owner, xattrs, step) and NNNNNN.bytes (content).
///
/// A path is kept durably before a step first changes it, and again when another step did in between.
class UndoStore : public ChangeRecorder {
 public:
  /// A step of some run that changed something; enough to undo it without journal or plan.
  struct Owner {
    std::int64_t run = 0;
    std::string step;
    std::string check;
    std::string fix;
    Parameters with = Parameters::object();

    bool operator==(const Owner& other) const { return run == other.run && step == other.step; }
  };

  /// `state`: the state directory; `host`: the tree that changes. Entries of earlier runs are read.
  static Result<UndoStore> open(Root state, Root host);

  /// From now on changes are the owner's; of run 0: nobody's, and not kept.
  void begin(Owner owner) { owner_ = std::move(owner), undone_ = {}; }
  /// The same while an action undoes what `owner` changed: changes are nobody's then.
  void begin_undo(Owner owner) { owner_ = {}, undone_ = std::move(owner); }
  std::string change() const override;
  Result<void> before_change(std::string_view path, Restore restore) override;
  /// Removes what a fix of `owner` that was cut short left unfinished: once its step holds, it is of no use.
  Result<void> clear_unfinished(const Owner& owner);
  /// Notes what the owner's paths hold after its fix, so that a later change by somebody else is recognised.
  Result<void> note_result();

  /// Owner of the newest change; nothing when all is as it was found. Changes are undone strictly newest first, in
  /// stretches of one owner. The changes of an open run are newer than those of all other runs.
  std::optional<Owner> newest() const;
  /// Owner of the newest change that was made for `step`, of whatever run.
  std::optional<Owner> newest_for(std::string_view step) const;
  /// Each owner of a change that is in place, once, oldest first.
  std::vector<Owner> owners() const;
  /// Puts back the newest stretch; what somebody else changed since is kept aside and named in the result. The
  /// entries stay until forget_newest(), so that a kill in between loses nothing.
  Result<std::vector<std::string>> restore_newest();
  Result<void> forget_newest();
  bool changed() const { return changed_; }  ///< anything was changed or put back since open()

 private:
  struct Entry {
    std::string name;  ///< NNNNNN
    Owner owner;
    std::string path;
    Restore restore = Restore::bytes;
    std::string result;  ///< digest of what the fix left; empty while unknown
  };

  UndoStore(Root state, Root host) : state_(std::move(state)), host_(std::move(host)) {}
  Result<void> save(const Entry& entry, const FileState* before);
  Result<FileState> before(const Entry& entry) const;
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
