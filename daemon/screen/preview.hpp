// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/action.hpp"
#include "plan/assess.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {

/// Description of a fix.
struct Change {
  const Step* step;  ///< step that does not hold, or one of its requirements
  Description description;
};

/// State of a step with the changes that apply would make.
struct Preview {
  const Standing& standing;
  std::vector<Change> changes = {};          ///< in order
  std::string obstacle = standing.obstacle;  ///< of the step, or of a change that cannot be described, and so not made
  std::string next = standing.next;
  bool blocked = standing.kind == Standing::Kind::blocked;

  /// True if p2pd fixes the step as soon as something else is out of the way.
  bool fixed_later() const { return blocked && !obstacle.empty() && standing.step->is_fixable(); }
};

/// Preview of a whole plan for a host, which must outlive it.
struct PlanPreview {
  /// `in_turn`: the last description of a file has the content that it ends with, for more time.
  PlanPreview(Plan plan, const Registry& registry, const Host& host, bool in_turn = false);
  PlanPreview(PlanPreview&&) = default;

  /// True if the change takes effect with a reboot.
  bool reboots_for(const Preview& preview, const Change& change) const;

  Plan plan;
  Registry registry;
  const Host& host;
  Assessment seen;
  Outlook outlook;
  std::vector<Preview> steps = {};     ///< in the plan's order
  std::vector<std::string> ends = {};  ///< services and sessions that the fixes or the restart end, by the requirements
  bool changes = false;                ///< apply would change something
  bool blocked = false;                ///< nothing is changed before the operator has acted
  Reboots reboots{};                   ///< expected
  std::chrono::minutes time{0};        ///< estimate of the changes, without downloads and reboots
};

/// What apply does where something that it hopes for does not come true.
struct Otherwise {
  std::vector<std::string> changes;  ///< summaries
  std::vector<std::string> steps;    ///< gates that p2pd then fixes
  std::string obstacle;              ///< what a person must do before, "STEP: next"; empty: nothing
};
/// Next changes if the proof fails, with the alternative `trial` undone if there is one.
Otherwise if_the_proof_fails(const PlanPreview& all, const Step* trial);
/// Changes for `step`, which waits and fails, if it still fails once the steps before it are fixed.
Otherwise if_it_still_fails(const PlanPreview& all, const Step& step);

/// "sudo p2pctl apply", with the name of a plan that is not the default one.
std::string apply_command(const Plan& plan);

/// "no reboot", "0 or 1 reboot"
std::string reboots_text(const Reboots& reboots);

/// "9 packages": what the changes of the plan remove; empty: nothing.
std::string losses_text(const PlanPreview& all);

/// "550.163.01 (5 packages stay) -> tinygrad/550.90.07-p2p-on-550.163.01": the driver before and after apply, and the
/// evidence for the new one; or that it is not chosen yet. Empty: apply changes no driver.
std::string driver_text(const PlanPreview& all);

/// True if each change to the driver was reported to give P2P between such cards, or none comes: no options of the
/// driver that nobody reported, and none that only shows later.
bool is_reported(const PlanPreview& all);

/// Blocked steps that one action of the operator unblocks.
struct Obstruction {
  std::vector<const Preview*> steps;
  std::string obstacle;  ///< of the first; empty: the step itself
  std::string next;
};
/// Obstructions of a plan, in its order.
std::vector<Obstruction> obstructions(const PlanPreview& all);

/// Step of `seen` as a row of a table: its mark, its name, its finding.
std::vector<std::string> row_of(const Standing& standing, const Assessment& seen);
/// Rows of row_of(), with each summary cut to `lines` lines.
Rows check_rows(std::span<const Preview* const> previews, const PlanPreview& all, std::size_t lines);

/// "2 x GeForce RTX 4090; Ubuntu 24.04; Linux 6.14.0-37-generic; driver 580.95.05", at most two lines.
std::string machine_text(const Host& host);

/// Prints "p2pctl doctor": the verdict, what the operator must do, what p2pd does, and the next command. Fits a
/// terminal of 24 lines.
void print_verdict(const PlanPreview& preview);

/// Prints "p2pctl plan". Fits a terminal of 24 lines of 80 columns as long as checks and actions keep their texts
/// short.
void print_screen(const PlanPreview& preview);

}  // namespace p2pd::ctl
