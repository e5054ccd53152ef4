// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/action.hpp"
#include "base/json.hpp"
#include "base/probe.hpp"
#include "base/result.hpp"

namespace p2pd {

namespace yaml {
class Node;
}

/// The checks and fixes that a plan may name.
struct Registry {
  std::span<const Probe> probes;
  std::span<const Action> actions;

  const Probe* probe(std::string_view id) const;
  const Action* action(std::string_view id) const;
};

/// The role of a step in its plan.
enum class StepKind {
  goal,        ///< what all the others are for; a plan has one at most, and its check proves P2P
  gate,        ///< what traffic between two GPUs must pass: explains and mends a goal that is not reached
  upkeep,      ///< keeps a machine that has reached the goal as it is
  requires_,   ///< what only a fix needs: checked when a step that needs it is about to be fixed
  alternative  ///< a gate once the proof has failed: one at a time, in order, each kept only if the proof then passes
};
inline constexpr StepKind kStepKinds[] = {StepKind::goal, StepKind::gate, StepKind::upkeep, StepKind::requires_, StepKind::alternative};
std::string_view to_string(StepKind kind);

/// What has become of an alternative in a run.
enum class Tried { no, now, ineffective };
std::string_view to_string(Tried value);

/// One entry of a plan: what should be true, how it is checked, and what makes it so.
struct Step {
  std::string id;
  StepKind kind = StepKind::gate;
  std::string title;          ///< the state in words: "BAR1 covers all of the VRAM"
  std::string why;            ///< why P2P needs it; may be empty
  std::string check;          ///< probe id
  std::string fix;            ///< action id; empty when what it needs makes it hold, or only a person can help
  Parameters with;            ///< parameters of both
  std::string operator_text;  ///< what a person does where there is no fix
  std::vector<std::string> after;  ///< steps whose effect this one waits for; of the goal: those that must hold before it is tried
  std::vector<std::string> needs;  ///< requires and upkeep steps that come before its fix; each may need others
  std::vector<std::string> where;  ///< of upkeep: requires steps; where one does not hold, it is not p2pd's to keep
  bool first = false;              ///< of an alternative: tried before the proof has failed, and before the gates that come after it
  Tried tried = Tried::no;         ///< of an alternative, in the plan of a run

  /// On trial from the start of a run, or once the proof has failed.
  void reset_trial() { tried = first ? Tried::now : Tried::no; }
  bool is_gate() const { return kind == StepKind::gate || tried == Tried::now; }
  bool is_checked() const { return is_gate() || kind == StepKind::goal || kind == StepKind::upkeep; }
  bool can_be_mended() const { return !fix.empty() || !needs.empty(); }
};

enum class OnFailure { revert, keep };
enum class RebootPolicy { automatic, external };
enum class Busy { wait, block };
std::string_view to_string(OnFailure value);
std::string_view to_string(RebootPolicy value);
std::string_view to_string(Busy value);

/// Limits and choices of a whole run.
struct Policy {
  int reboots = 4;   ///< at most; crashes count, the way back included
  int attempts = 2;  ///< of one fix
  OnFailure on_failure = OnFailure::revert;
  RebootPolicy reboot = RebootPolicy::automatic;
  Busy busy = Busy::block;  ///< what a machine in use means: wait until it is idle, or a person is needed
};

/// Which driver `entry: chosen` means: the one that fits best, or that of the newest packages that the distribution offers.
enum class DriverWanted { chosen, offered };
std::string_view to_string(DriverWanted value);

/// Ordered steps and policy; says what should be true, never what to do.
struct Plan {
  std::string name;
  std::string title;
  Policy policy;
  DriverWanted driver = DriverWanted::chosen;
  std::vector<std::string> left_out_gpus = {};  ///< see is_gpu_name()
  std::vector<Step> steps;

  const Step* step(std::string_view id) const;
  const Step* goal() const;  ///< null where there is none
  bool only_checks() const;  ///< nothing of it can change this host
  void remove_steps(const std::function<bool(const Step&)>& removed);  ///< and what names them
};

/// Reads "gpus: {exclude: [...]}" of a plan or a configuration, where it is there.
Result<std::vector<std::string>> read_left_out_gpus(const yaml::Node& root);

/// Finds the plan that another one is based on.
using PlanSource = std::function<Result<Plan>(const std::string& name)>;

/// Parses and validates a plan: types, unknown keys, references, cycles, parameters of probes and actions.
///
/// One with `based_on` has the policy and the steps of that plan; a step of the same name takes the place of its step,
/// others come after. With `fixes: none` it only checks: no fixes, and no requires steps.
///
/// Every Error reads "FILE:LINE: KEY: what is wrong, what was expected". `text` is YAML, at most 1 MiB of UTF-8; JSON
/// is YAML too, so that a resolved plan out of the journal is read by the same code.
Result<Plan> parse_plan(std::string_view text, std::string_view file, const Registry& registry,
                        const PlanSource& source = nullptr);

/// What `plan` asserts: its goal, gates and upkeep without fixes. `quick`: each check as the start of every boot can afford it.
Plan checks_of(Plan plan, const Registry& registry, bool quick);

/// The steps of `plan` whose fix lasts for one boot only, by themselves; none: a plan without steps.
Plan each_boot_of(Plan plan, const Registry& registry);

/// The plan with every choice made, as frozen into a run; parse_plan reads it again.
nlohmann::json to_json(const Plan& plan);

}  // namespace p2pd
