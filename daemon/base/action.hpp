// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/parameters.hpp"

namespace p2pd {

/// When a fix takes effect.
enum class Effect { live, reboot };
inline std::string_view to_string(Effect effect) { return effect == Effect::live ? "live" : "reboot"; }

/// What an action would do: files with their new content, and commands, in order.
struct Description {
  struct File {
    std::string path;
    FileState::Kind kind = FileState::Kind::regular;  ///< absent: the file goes
    std::string content;
  };
  std::string summary;  ///< one line, a verb first, 60 characters where it can be: "p2pctl plan" shows it beside others
  std::vector<File> files;
  std::vector<std::string> commands;
  std::string cost;  ///< what it costs in security, one short sentence; may be empty
  std::vector<std::string> notes = {};  ///< what else to know before
};

/// A fix, as a row of the registry. Files are put back by the engine; `undo` is only for what is not a file.
struct Action {
  std::string_view id;  ///< also the file name, with '_' for '-'
  std::string_view topic = {};  ///< what it changes, one word: changes of one topic are shown together
  std::string_view does = {};
  std::span<const Parameter> parameters = {};
  Effect effect = Effect::live;
  /// A crash in its effect (a hung boot, a wedged module) is expected to be possible: tried twice, then failed.
  bool hazard = false;
  bool reboot_suffices = false;  ///< a reboot alone has its effect: not applied where one is due anyway
  bool each_boot = false;  ///< its effect ends with the boot: made again early in the next one
  Result<void> (*validate)(const Parameters&) = nullptr;  ///< beyond types; may be null
  Result<Description> (*describe)(const Host&, const Parameters&) = nullptr;
  Result<void> (*apply)(Host&, const Parameters&) = nullptr;
  /// What a newly installed kernel needs of what was proven: nothing is tried anew; may be null.
  Result<void> (*new_kernel)(Host&, const Parameters&) = nullptr;
  /// Right before each reboot while the step is not committed; may be null.
  Result<void> (*before_reboot)(Host&, const Parameters&) = nullptr;
  /// Makes permanent what was on trial, once every step holds; may be null.
  Result<void> (*commit)(Host&, const Parameters&) = nullptr;
  /// After the engine has put the files back; may be null.
  Result<void> (*undo)(Host&, const Parameters&) = nullptr;
  /// Where a run rests: it has ended, over however many boots, or a person is needed first; whether anything was applied
  /// or not; may be null. An Error is told as a warning.
  Result<void> (*run_rests)(Host&) = nullptr;
};

}  // namespace p2pd
