// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace p2pd {

enum class RunState { idle, walking, rebooting, ready, limited, blocked, failed, paused, reverting };
std::string_view to_string(RunState state);
std::optional<RunState> run_state(std::string_view name);

/// Event that changes the state of a run: a request of the operator, or the result of a pass over the plan.
enum class Event {
  apply,       ///< request: satisfy the plan
  go_on,       ///< the worker started again: after a boot, a kill or a stop
  pause,       ///< request
  resume,      ///< request
  retry,       ///< request
  cancel,      ///< request: stop and undo the changes of this run
  revert,      ///< request: undo all changes of all runs
  superseded,  ///< request for another plan, while this one only checks
  abandoned,   ///< p2pd was removed and installed again since; the changes stay
  stopped,     ///< the worker received SIGTERM; the run stays open
  blocker,     ///< the operator must act
  reboot_due,  ///< steps wait for a reboot
  proven,      ///< goal reached: P2P is proven
  in_part,     ///< P2P is proven for less than the plan wants, and nothing is left to fix
  settled,     ///< all steps hold; the plan has no proof
  failure,     ///< failure; the plan keeps the changes
  give_back,   ///< failure; the plan undoes the changes of the run
  reverted,    ///< requested rollback is complete
  given_back   ///< rollback after a failure is complete
};
std::string_view to_string(Event event);

/// Request of an operator to the worker.
struct Request {
  Event event = Event::apply;  ///< apply, pause, resume, retry, cancel or revert
  std::string plan = {};       ///< for apply; empty: the configured plan
  bool reboot = true;          ///< for apply: false leaves restarts to the operator
};

/// State after `event`; nothing if `state` does not allow it.
std::optional<RunState> next_state(RunState state, Event event);

/// True if a run in this state is open; otherwise it has ended.
bool is_open(RunState state);
/// True if P2P was proven, also in part.
inline bool is_proven(RunState state) { return state == RunState::ready || state == RunState::limited; }

}  // namespace p2pd
