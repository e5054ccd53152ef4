// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string_view>

namespace p2pd {

enum class RunState { idle, walking, rebooting, ready, limited, blocked, failed, paused, reverting };
std::string_view to_string(RunState state);
std::optional<RunState> run_state(std::string_view name);

/// What moves a run: requests of a person, and what a pass over the plan came to.
enum class Event {
  apply,      ///< asked: make it so
  go_on,      ///< the worker started again: after a boot, a kill, a stop
  pause,      ///< asked
  resume,     ///< asked
  retry,      ///< asked
  cancel,     ///< asked: stop and undo what this run changed
  revert,     ///< asked: undo everything, of all runs
  superseded, ///< asked for another plan, and this one only looks
  stopped,    ///< the worker was told to end (SIGTERM); the run stays open
  blocker,    ///< a person is needed
  reboot_due, ///< steps wait for a reboot
  proven,     ///< the goal is reached: P2P is proven
  in_part,    ///< P2P is proven for less than the plan wants, and nothing is left to mend
  settled,    ///< all steps hold; the plan holds no proof
  failure,    ///< and the plan keeps what was done
  give_back,  ///< failure, and the plan undoes what the run changed
  reverted,   ///< all that was to be is undone, as asked
  given_back  ///< what the run changed is undone, after a failure
};
std::string_view to_string(Event event);

/// The state after `event`; nothing when `state` does not allow it.
std::optional<RunState> next_state(RunState state, Event event);

/// A run in this state waits for something; otherwise it has ended.
bool is_open(RunState state);
/// P2P was proven, be it for less than the plan wants.
inline bool is_proven(RunState state) { return state == RunState::ready || state == RunState::limited; }

}  // namespace p2pd
