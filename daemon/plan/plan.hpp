// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
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
  goal,        ///< purpose of all other steps; a plan has one at most, and its check proves P2P
  gate,        ///< condition that traffic between two GPUs needs: explains and fixes a goal that is not reached
  upkeep,      ///< keeps a machine that has reached the goal as it is
  requires_,   ///< requirement of a fix only: checked when a step that needs it is about to be fixed
  alternative  ///< a gate once the proof has failed: one at a time, in order, each kept only if the proof then passes
};
inline constexpr StepKind kStepKinds[] = {StepKind::goal, StepKind::gate, StepKind::upkeep, StepKind::requires_,
                                          StepKind::alternative};
std::string_view to_string(StepKind kind);

/// Progress of an alternative in a run.
enum class Tried { no, now, ineffective };
std::string_view to_string(Tried value);

/// One entry of a plan: a state that should be true, its check, and its fix.
struct Step {
  std::string id;
  StepKind kind = StepKind::gate;
  std::string title;          ///< state in words: "BAR1 covers all of the VRAM"
  std::string why;            ///< reason why P2P needs it; may be empty
  std::string check;          ///< probe id
  std::string fix;            ///< action id; empty if its requirements make it hold, or only a person can help
  Parameters with;            ///< parameters of both
  std::string operator_text;  ///< instruction for a person if there is no fix
  std::vector<std::string>
      after;  ///< steps whose effect this one waits for; for the goal: those that must hold before it is tried
  std::vector<std::string> needs;  ///< requires and upkeep steps that come before its fix; each may need others
  std::vector<std::string>
      where;  ///< requires steps of an upkeep step; if one does not hold, p2pd does not keep this state
  std::vector<std::string> spares;  ///< gates that P2P does not need with this step, where it applies
  bool first =
      false;  ///< alternative that is tried before the proof has failed, and before the gates that come after it
  Tried tried = Tried::no;  ///< progress of an alternative, in the plan of a run

  /// Starts the trial with the run if `first`, else after the proof fails.
  void reset_trial() { tried = first ? Tried::now : Tried::no; }
  bool is_gate() const { return kind == StepKind::gate || tried == Tried::now; }
  bool is_checked() const { return is_gate() || kind == StepKind::goal || kind == StepKind::upkeep; }
  bool is_fixable() const { return !fix.empty() || !needs.empty(); }
};

/// Keys of a step that name other steps.
struct StepReference {
  const char* key;
  std::vector<std::string> Step::*names;
};
inline constexpr StepReference kStepReferences[] = {
    {"after", &Step::after}, {"needs", &Step::needs}, {"where", &Step::where}, {"spares", &Step::spares}};

enum class OnFailure { revert, keep };
enum class RebootPolicy { automatic, external };
enum class Busy { wait, block };
std::string_view to_string(OnFailure value);
std::string_view to_string(RebootPolicy value);
std::string_view to_string(Busy value);

/// Limits and choices of a whole run.
struct Policy {
  int reboots = 4;   ///< limit; crashes count, and the reboots of the rollback
  int attempts = 2;  ///< limit for one fix
  OnFailure on_failure = OnFailure::revert;
  RebootPolicy reboot = RebootPolicy::automatic;
  Busy busy = Busy::block;  ///< reaction to a machine in use: wait until it is idle, or ask a person
};

/// Driver that `entry: chosen` means: the one that fits best, or that of the newest packages that the distribution
/// offers.
enum class DriverWanted { chosen, offered };
std::string_view to_string(DriverWanted value);

/// GPUs between which a plan wants P2P.
struct WantedGpus {
  std::vector<std::string> left_out = {};  ///< names, see is_gpu_name()
  bool all = false;                        ///< "require: all": none of the others may be alone, or in another group
  /// Those that can have no peer, by address, with the reason; nullopt: not decided yet. A run that finds some keeps
  /// them to its end, and so do the checks of later boots.
  std::optional<std::map<std::string, std::string>> alone = {};
};

/// Ordered steps and policy; says what should be true, never what to do.
struct Plan {
  std::string name;
  std::string title;
  Policy policy;
  DriverWanted driver = DriverWanted::chosen;
  WantedGpus gpus = {};
  std::vector<Step> steps;

  const Step* step(std::string_view id) const;
  const Step* goal() const;                                            ///< null if there is none
  bool only_checks() const;                                            ///< true if nothing in it can change this host
  void remove_steps(const std::function<bool(const Step&)>& removed);  ///< removes references to them, too
};

/// Reads "gpus: {exclude: [...], require: all}" of a plan or a configuration.
Result<WantedGpus> read_wanted_gpus(const yaml::Node& root);

/// Finds the plan that another one is based on.
using PlanSource = std::function<Result<Plan>(const std::string& name)>;

/// Parses and validates a plan: types, unknown keys, references, cycles, parameters of probes and actions.
///
/// A plan with `based_on` has the policy and the steps of that plan; a step of the same name replaces its step, others
/// are added. A plan with `fixes: none` only checks: it has no fixes, and no requires steps.
///
/// Every Error reads "FILE:LINE: KEY: what is wrong, what was expected". `text` is YAML, at most 1 MiB of UTF-8; JSON
/// is YAML too.
Result<Plan> parse_plan(std::string_view text, std::string_view file, const Registry& registry,
                        const PlanSource& source = nullptr);

/// Assertions of `plan`: its goal, gates and upkeep without fixes. `quick`: each check is cheap enough for the start of
/// every boot.
Plan checks_of(Plan plan, const Registry& registry, bool quick);

/// Steps of `plan`, of every kind, whose fix lasts for one boot only, each on its own; may be empty.
Plan each_boot_of(Plan plan, const Registry& registry);

/// The plan with every choice made, as frozen into a run; parse_plan reads it again.
nlohmann::json to_json(const Plan& plan);

}  // namespace p2pd
