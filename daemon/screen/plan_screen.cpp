// SPDX-License-Identifier: MIT
// p2pctl plan on one screen: failing checks, changes of apply, their cost, and the command that undoes them. Each text
// comes from a check or an action; the changes of one topic share a row.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "screen/preview.hpp"

namespace p2pd::ctl {
namespace {

constexpr std::size_t kLine = 69;   ///< characters of a row next to its topic
constexpr std::size_t kNotes = 2;   ///< lines
constexpr std::size_t kLines = 24;  ///< of a terminal; the prompt has the last one

/// Blocked steps by obstruction, with the next action of the operator.
Rows blocked_rows(const PlanPreview& all) {
  Rows rows;
  for (const Obstruction& one : obstructions(all)) {
    std::ranges::move(check_rows(one.steps, all, 2), std::back_inserter(rows));
    if (!one.obstacle.empty())
      rows.push_back({"", paint(Colour::red, "blocked by"), shortened(one.obstacle, 2 * kLine)});
    rows.push_back({"", paint(Colour::bold, "next"), one.next});
  }
  return rows;
}

/// Failing steps that apply fixes, and transient obstacles.
Rows open_rows(const PlanPreview& all) {
  std::vector<const Preview*> open;
  std::set<std::string> obstacles;
  for (const Preview& preview : all.steps) {
    const bool excused = all.outlook == Outlook::provable && preview.standing.step->kind == StepKind::gate;
    if (!preview.standing.is_failing() || all.outlook == Outlook::ready) continue;
    if (preview.blocked && !excused) continue;
    open.push_back(&preview);
    if (!preview.blocked && !preview.obstacle.empty()) obstacles.insert(preview.obstacle);
  }
  Rows rows = check_rows(open, all, open.size() <= 2 && !all.blocked ? 2 : 1);
  for (const std::string& obstacle : obstacles)
    rows.push_back({"", paint(Colour::yellow, "waits for"), shortened(obstacle, 2 * kLine)});
  return rows;
}

/// Leaves out leading words that a summary shares with the one before it: "boot with a, b; build modules".
std::string joined(const std::vector<std::string>& summaries) {
  std::string text, before;
  for (const std::string& summary : summaries) {
    const auto differs = std::ranges::mismatch(before, summary).in2;
    const std::size_t shared = summary.substr(0, static_cast<std::size_t>(differs - summary.begin())).rfind(' ') + 1;
    if (!text.empty()) text += shared > 0 ? ", " : "; ";
    text += summary.substr(shared);
    before = summary;
  }
  return text;
}

/// True for upkeep of a machine on which only the proof is missing: that comes after the proof.
bool follows_the_proof(const PlanPreview& all, const Preview& preview) {
  return all.outlook == Outlook::provable && preview.standing.step->kind == StepKind::upkeep;
}

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (!text.empty() && std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
}

/// "3 in /etc, 1 in /boot"
std::string counted(const std::set<std::string>& files) {
  std::map<std::string, int> counts;
  for (const std::string& path : files) ++counts[path.substr(0, path.find('/', 1))];
  std::string text;
  for (const auto& [directory, count] : counts)
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", count, directory);
  return text;
}

/// Changes of one topic.
struct Topic {
  std::string name;
  std::vector<std::string> summaries = {};
  bool reboot = false;
};

/// Changes by topic, in the order of the first change of each.
Rows topic_rows(const PlanPreview& all) {
  std::vector<Topic> topics;
  std::set<std::string> files;
  std::vector<std::string> costs, notes;
  for (const Preview& preview : all.steps) {
    for (const Change& change : preview.changes) {
      if (follows_the_proof(all, preview)) continue;
      const Action& action = *all.registry.action(change.step->fix);
      const std::string name(action.topic.empty() ? action.id : action.topic);
      auto topic = std::ranges::find(topics, name, &Topic::name);
      if (topic == topics.end()) topic = topics.insert(topic, {name});
      add_once(topic->summaries, shortened(change.description.summary, 3 * kLine));
      topic->reboot |= all.reboots_for(preview, change);
      for (const Description::File& file : change.description.files) files.insert(file.path);
      for (const std::string& note : change.description.notes) add_once(notes, note);
      add_once(costs, change.description.cost);
    }
  }
  Rows rows;
  for (const Topic& topic : topics)
    rows.push_back({topic.name, joined(topic.summaries) + (topic.reboot ? paint(Colour::yellow, " (reboot)") : "")});
  if (!files.empty()) rows.push_back({"files", counted(files)});
  for (const std::string& cost : costs) rows.push_back({paint(Colour::yellow, "security"), shortened(cost, 2 * kLine)});
  const std::size_t shown = notes.size() <= kNotes ? notes.size() : kNotes - 1;
  for (std::size_t i = 0; i < shown; ++i) rows.push_back({"note", shortened(notes[i], 2 * kLine)});
  if (shown < notes.size()) rows.push_back({"", fmt::format("{} more: p2pctl plan --diff", notes.size() - shown)});
  return rows;
}

/// "; then you: bar1-room: Update the vBIOS ...", "; then fix driver", or nothing.
std::string then_text(const Otherwise& otherwise) {
  if (!otherwise.obstacle.empty()) return "; then you: " + shortened(otherwise.obstacle, 2 * kLine);
  return otherwise.steps.empty() ? "" : fmt::format(", then fix {}", fmt::join(otherwise.steps, ", "));
}

/// Alternatives, in the order of the trials. `first`: what a person must do anyway where the proof fails.
Rows fallback_rows(const PlanPreview& all, const std::string& first) {
  Rows rows;
  for (const Preview& preview : all.steps)
    if (const Step& step = *preview.standing.step; step.first && !preview.changes.empty()) {
      const Otherwise then = if_the_proof_fails(all, &step);
      rows.push_back({paint(Colour::blue, "fallback"),
                      fmt::format("if the proof fails: undo {}{}", step.id,
                                  !first.empty() && then.obstacle == first ? "" : then_text(then))});
    }
  for (const Step& step : all.plan.steps) {
    if (step.kind != StepKind::alternative || step.tried != Tried::no) continue;
    if (finding_of(step, all.registry, all.host).holds()) continue;
    const std::string told =
        all.registry.action(step.fix)->describe(all.host, step.with).value_or(Description()).summary;
    rows.push_back({paint(Colour::blue, "fallback"),
                    "if the proof fails: " + shortened(told.empty() ? step.title : told, 2 * kLine)});
  }
  return rows;
}

/// Steps that are checked again after the changes; of those that are fixed by what they need, the changes.
Rows later_rows(const PlanPreview& all) {
  std::vector<std::string> checked, failing, changes;
  for (const Preview& preview : all.steps) {
    const Step& step = *preview.standing.step;
    if (!preview.changes.empty() || preview.standing.kind != Standing::Kind::waits ||
        preview.standing.finding.verdict != Verdict::fail || !step.is_fixable())
      continue;
    if (!step.fix.empty()) {
      checked.push_back(step.id);
      continue;
    }
    const std::vector<std::string> more = if_it_still_fails(all, step).changes;
    if (!more.empty()) failing.push_back(step.id);
    for (const std::string& change : more) add_once(changes, change);
  }
  Rows rows;
  if (!checked.empty())
    rows.push_back(
        {"later", shortened(fmt::format("checked again, fixed where needed: {}", fmt::join(checked, ", ")), kLine)});
  if (!failing.empty())
    rows.push_back(
        {"later",
         shortened(fmt::format("if {} still fails: {}", fmt::join(failing, " or "), joined(changes)), 3 * kLine)});
  return rows;
}

std::string heading(const PlanPreview& all, const std::string& first) {
  const std::string losses = losses_text(all),
                    will = losses.empty() ? "will" : fmt::format("purges {}, and will", losses);
  if (all.blocked) return "Then p2pctl apply " + will;
  std::string proof;
  if (all.outlook == Outlook::provable) proof = "p2pctl apply proves P2P; ";
  if (all.outlook == Outlook::ready && all.seen.goal() != nullptr) proof = "P2P is proven on this boot; ";
  if (all.outlook == Outlook::limited) proof = "P2P is proven for less than the plan wants; ";
  if (!all.changes) return proof.empty() ? "Nothing to do." : proof + "nothing to change.";
  if (all.outlook != Outlook::provable) return fmt::format("{}p2pctl apply {}", proof, will);
  if (topic_rows(all).empty()) return proof + "it changes nothing before.";
  return proof + (first.empty() ? "only if that fails, it " + will : "if that fails: you, then p2pd:");
}

Rows change_rows(const PlanPreview& all, const std::string& first) {
  Rows rows = topic_rows(all);
  if (!all.ends.empty())
    rows.push_back({paint(Colour::yellow, "ends"), shortened(fmt::format("{}", fmt::join(all.ends, ", ")), 2 * kLine)});
  if (all.changes) std::ranges::move(later_rows(all), std::back_inserter(rows));
  for (const Preview& preview : all.steps)
    for (const Change& change : preview.changes)
      if (follows_the_proof(all, preview))
        rows.push_back(
            {"after", shortened(fmt::format("where the proof passes: {}", change.description.summary), kLine)});
  if (!first.empty())
    rows.push_back({paint(Colour::yellow, "you"), "if the proof fails: " + shortened(first, 2 * kLine)});
  const bool proves = all.outlook == Outlook::provable || all.outlook == Outlook::fixable;
  if (proves && !all.blocked) std::ranges::move(fallback_rows(all, first), std::back_inserter(rows));
  if (!all.changes && !proves) return rows;
  const std::string time =
      all.time.count() == 0 ? "" : fmt::format("; about {} min without them and downloads", all.time.count());
  rows.push_back(
      {"reboots", fmt::format("{} expected, {} at most{}", to_string(all.reboots), all.plan.policy.reboots, time)});
  return rows;
}

}  // namespace

void print_screen(const PlanPreview& all) {
  const bool ends_here = all.outlook == Outlook::impossible || (all.blocked && !all.changes);
  const std::string first =  // what a person must do where the proof fails
      all.outlook == Outlook::provable ? if_the_proof_fails(all, nullptr).obstacle : std::string();
  Rows machine = {{machine_text(all.host)}}, obstacles = all.blocked ? blocked_rows(all) : Rows(),
       open = open_rows(all), changes = ends_here ? Rows() : change_rows(all, first);
  const std::string driver = ends_here ? "" : driver_text(all);
  if (!driver.empty()) changes.push_back({"driver", driver});  // fit() cuts the last row last
  const std::size_t others = 2 + (all.blocked ? 2 : 0) + (ends_here ? 0 : 2) + (all.changes ? 1 : 0);
  fit({&machine, &obstacles, &open, &changes}, kLines - others);
  if (!driver.empty()) std::ranges::rotate(changes, std::prev(changes.end()));
  fmt::print("{}: {}\n", paint(Colour::bold, all.plan.name), all.plan.title);
  print_table(machine);
  if (all.blocked) {
    const char* const text = all.outlook == Outlook::impossible
                                 ? "Not possible with this hardware"
                                 : "Blocked; p2pctl apply changes nothing before this is settled";
    fmt::print("\n{}\n", paint(Colour::bold, text));
    print_table(obstacles);
  }
  print_table(open);
  if (ends_here) return;
  fmt::print("\n{}\n", paint(Colour::bold, heading(all, first)));
  print_table(changes);
  if (all.changes) fmt::print("Undo: p2pctl revert.  Details: p2pctl plan --diff\n");
}

}  // namespace p2pd::ctl
