// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/parameters.hpp"

namespace p2pd {

/// Time at which a fix takes effect.
enum class Effect { live, reboot };
inline std::string_view to_string(Effect effect) { return effect == Effect::live ? "live" : "reboot"; }

/// Changes that an action would make: files with their new content, and commands, in order.
struct Description {
  struct File {
    std::string path;
    FileState::Kind kind = FileState::Kind::regular;  ///< absent: the file is removed
    std::string content;
  };
  std::string
      summary;  ///< one line that begins with a verb, 60 characters if possible: "p2pctl plan" lists it beside others
  std::vector<File> files;
  std::vector<std::string> commands;
  std::string cost;                     ///< security cost, one short sentence; may be empty
  std::vector<std::string> notes = {};  ///< facts to know before it is applied
  std::string loses = {};               ///< what the machine will not have any more: "9 packages"; may be empty
  std::chrono::minutes time{0};         ///< estimate for this machine, without downloads; 0: less than a minute
};

/// A fix, as a row of the registry. The engine restores files; `undo` restores only the rest.
struct Action {
  std::string_view id;          ///< file name, with '_' for '-'
  std::string_view topic = {};  ///< thing that it changes, one word: changes of one topic are shown together
  std::string_view does = {};
  std::span<const Parameter> parameters = {};
  Effect effect = Effect::live;
  /// Marks a fix whose effect can crash (a hung boot, a wedged module): it is tried twice, then counts as failed.
  bool hazard = false;
  bool reboot_suffices = false;  ///< a reboot alone has this effect: not applied if a reboot is due anyway
  bool each_boot = false;        ///< effect ends with the boot: applied again early in the next one
  Result<void> (*validate)(const Parameters&) = nullptr;  ///< checks more than types; may be null
  Result<Description> (*describe)(const Host&, const Parameters&) = nullptr;
  Result<void> (*apply)(Host&, const Parameters&) = nullptr;
  /// Prepares a newly installed kernel with a change that is already proven, without a new trial; may be null.
  Result<void> (*new_kernel)(Host&, const Parameters&) = nullptr;
  /// Runs right before each reboot until the step is committed; may be null.
  Result<void> (*before_reboot)(Host&, const Parameters&) = nullptr;
  /// Makes a change on trial permanent once every step holds; may be null.
  Result<void> (*commit)(Host&, const Parameters&) = nullptr;
  /// Makes sure that `undo` can succeed, before the first undo of a rollback changes anything: sums, locks, room, a
  /// simulation by apt; what is missing is fetched again where there is a network. An Error: nothing is undone; it
  /// names the file and the next step. ErrorCode::busy: waited for. May be called for a change that is partly undone,
  /// and must then succeed if undo can continue; may be null.
  Result<void> (*prepare_undo)(Host&, const Parameters&) = nullptr;
  /// Runs after the engine has restored the files; may be null.
  Result<void> (*undo)(Host&, const Parameters&) = nullptr;
  /// Runs when a run has ended, after any number of boots, or the operator must act; even if nothing was applied; may
  /// be null. An Error is reported as a warning.
  Result<void> (*run_rests)(Host&) = nullptr;
};

}  // namespace p2pd
