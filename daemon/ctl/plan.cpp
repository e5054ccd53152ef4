// SPDX-License-Identifier: MIT
// p2pctl plan: what apply would change, as diffs and commands, how many reboots, and what it costs in security.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ctl/changes.hpp"
#include "ctl/doctor.hpp"
#include "ctl/print.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

std::string current(const Host& host, const std::string& path) { return host.files().read(path).value_or(""); }

nlohmann::json to_json(const Change& change, const Host& host) {
  nlohmann::json files = nlohmann::json::array();
  for (const Description::File& file : change.description.files) {
    const bool goes = file.kind == FileState::Kind::absent;
    files.push_back({{"path", file.path},
                     {"before", current(host, file.path)},
                     {"after", goes ? nlohmann::json() : nlohmann::json(file.content)}});
  }
  return {{"step", change.step->id},
          {"change", change.description.summary},
          {"cost", change.description.cost},
          {"notes", change.description.notes},
          {"commands", change.description.commands},
          {"files", std::move(files)}};
}

/// A standing with what apply would do about it.
struct Preview {
  const Standing& standing;
  Changes changes;
  bool blocked() const { return standing.kind == Standing::Kind::blocked || !changes.obstacle.empty(); }
  const std::string& obstacle() const { return changes.obstacle.empty() ? standing.obstacle : changes.obstacle; }
  const std::string& next() const { return changes.next.empty() ? standing.next : changes.next; }
};

Effect effect_of(const Step& step, const Vocabulary& vocabulary) {
  return step.fix.empty() ? Effect::live : vocabulary.action(step.fix)->effect;
}

nlohmann::json to_json(const Preview& preview, const Vocabulary& vocabulary, const Host& host) {
  const Standing& s = preview.standing;
  nlohmann::json document = {{"step", s.step->id}, {"kind", to_string(s.step->kind)}, {"standing", preview.blocked() ? "blocked" : to_string(s.kind)}, {"summary", s.finding.summary}};
  if (!preview.obstacle().empty()) document["obstacle"] = preview.obstacle();
  if (preview.blocked()) document["next"] = preview.next();
  if (preview.changes.made.empty()) return document;
  document["effect"] = to_string(effect_of(*s.step, vocabulary));
  for (const Change& change : preview.changes.made) document["changes"].push_back(to_json(change, host));
  return document;
}

/// What is tried where the proof fails, in order.
nlohmann::json alternatives(const Plan& plan) {
  nlohmann::json found = nlohmann::json::array();
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::alternative) found.push_back({{"step", step.id}, {"title", step.title}});
  return found;
}

void print_change(const Change& change, bool reboot, const Host& host) {
  const Description& description = change.description;
  fmt::print("   {}{}\n", description.summary, reboot ? paint(Colour::yellow, "  (reboot)") : "");
  for (const Description::File& file : description.files)
    fmt::print("{}", unified_diff(file.path, current(host, file.path), file.content));
  for (const std::string& command : description.commands) fmt::print("      {}\n", paint(Colour::blue, "$ " + command));
  for (const std::string& note : description.notes) print_table({{"  ", "note", note}});
  if (!description.cost.empty()) print_table({{"  ", paint(Colour::yellow, "cost"), description.cost}});
}

const char* verdict_text(Outlook outlook, bool blocked, bool changes) {
  if (blocked) return "Blocked: nothing is changed until the points above are settled.";
  if (outlook == Outlook::provable)
    return changes ? "p2pctl apply proves P2P first; only where that fails are these changes made." : "p2pctl apply proves P2P; there is nothing to change.";
  return changes ? "p2pctl apply makes these changes; p2pctl revert takes them back." : "Nothing to do.";
}

void print_plan(const Plan& plan, const Assessment& seen, const std::vector<Preview>& previews, const Vocabulary& vocabulary, const Host& host) {
  fmt::print("{}  {}\n\n", paint(Colour::bold, plan.name), plan.title);
  for (const Preview& preview : previews) {
    const Standing& s = preview.standing;
    print_table({row_of(s, seen)});
    for (const Change& change : preview.changes.made)
      print_change(change, change.step == s.step && effect_of(*s.step, vocabulary) == Effect::reboot, host);
    if (!preview.obstacle().empty())
      print_table({{"  ", preview.blocked() ? paint(Colour::red, "blocked") : paint(Colour::yellow, "waits for"), preview.obstacle()}});
    if (preview.blocked()) print_table({{"  ", paint(Colour::bold, "next"), preview.next()}});
  }
  if (const auto ended = ends(seen); !ended.empty())
    print_table({{"  ", paint(Colour::yellow, "ends"), fmt::format("{}", fmt::join(ended, ", "))}});
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::alternative) print_table({{"  ", paint(Colour::blue, "if the proof fails"), step.title}});
}

}  // namespace

Result<int> show_plan(const Context& context) {
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
  const Plan plan = TRY(context.plan(*host));
  const Assessment seen = assess(plan, context.vocabulary, *host);
  ChangeTeller teller(plan, context.vocabulary, *host, seen);
  std::vector<Preview> previews;
  for (const Standing& s : seen.steps) {
    const bool needless = seen.outlook() == Outlook::ready && s.step->kind != StepKind::upkeep;
    previews.push_back({s, needless ? Changes{} : teller.tell(s)});
  }
  const Outlook outlook = seen.outlook();
  const bool changes = std::ranges::any_of(previews, [](const Preview& p) { return !p.changes.made.empty(); });
  const bool blocked = outlook == Outlook::person || outlook == Outlook::impossible ||
                       (outlook == Outlook::mendable && std::ranges::any_of(previews, &Preview::blocked));
  const int reboots = outlook == Outlook::ready ? 0 : seen.reboots(context.vocabulary);
  if (context.options.json) {
    nlohmann::json steps = nlohmann::json::array();
    for (const Preview& preview : previews) steps.push_back(to_json(preview, context.vocabulary, *host));
    print_json("p2pd.plan-preview/1", {{"plan", plan.name},
                                       {"outlook", to_string(outlook)},
                                       {"changes", changes},
                                       {"blocked", blocked},
                                       {"reboots", reboots},
                                       {"reboots_at_most", plan.policy.reboots},
                                       {"alternatives", alternatives(plan)},
                                       {"ends", ends(seen)},
                                       {"steps", std::move(steps)}});
  } else {
    print_plan(plan, seen, previews, context.vocabulary, *host);
    fmt::print("\n{}  Reboots: {} expected, {} at most.\n", paint(Colour::bold, verdict_text(outlook, blocked, changes)), reboots, plan.policy.reboots);
  }
  if (blocked) return kBlocked;
  return context.options.detailed_exitcode && (changes || (outlook != Outlook::ready && outlook != Outlook::limited)) ? kChanges : kDone;
}

}  // namespace p2pd::ctl
