// SPDX-License-Identifier: MIT
// p2pctl plan: what apply would change, as diffs and commands, how many reboots, and what it costs in security.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ctl/doctor.hpp"
#include "ctl/print.hpp"
#include "ctl/survey.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

std::string current(const Host& host, const std::string& path) { return host.files().read(path).value_or(""); }

nlohmann::json to_json(const Standing::Change& change, const Host& host) {
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
          {"commands", change.description.commands},
          {"files", std::move(files)}};
}

nlohmann::json to_json(const Standing& s, const Host& host) {
  nlohmann::json document = {{"step", s.step->id}, {"standing", to_string(s.kind)}, {"summary", s.finding.summary}};
  if (!s.obstacle.empty()) document["obstacle"] = s.obstacle;
  if (s.kind == Standing::Kind::blocked) document["next"] = next_for_operator(s);
  if (s.changes.empty()) return document;
  document["effect"] = to_string(s.effect);
  for (const Standing::Change& change : s.changes) document["changes"].push_back(to_json(change, host));
  return document;
}

/// What is tried where the proof fails, in order.
nlohmann::json alternatives(const Plan& plan) {
  nlohmann::json found = nlohmann::json::array();
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::alternative) found.push_back({{"step", step.id}, {"title", step.title}});
  return found;
}

void print_change(const Standing::Change& change, bool reboot, const Host& host) {
  const Description& description = change.description;
  fmt::print("   {}{}\n", description.summary, reboot ? paint(Colour::yellow, "  (reboot)") : "");
  for (const Description::File& file : description.files)
    fmt::print("{}", unified_diff(file.path, current(host, file.path), file.content));
  for (const std::string& command : description.commands) fmt::print("      {}\n", paint(Colour::blue, "$ " + command));
  if (!description.cost.empty()) print_table({{"  ", paint(Colour::yellow, "cost"), description.cost}});
}

}  // namespace

Result<int> show_plan(const Context& context) {
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host(*runner)).snapshot();
  const Plan plan = TRY(context.plan(*host));
  const Survey found = survey(plan, context.vocabulary, *host, true);
  if (context.options.json) {
    nlohmann::json steps = nlohmann::json::array();
    for (const Standing& s : found.steps) steps.push_back(to_json(s, *host));
    print_json("p2pd.plan-preview/1", {{"plan", plan.name},
                                       {"changes", !found.holds()},
                                       {"blocked", found.blocked()},
                                       {"reboots", found.reboots()},
                                       {"reboots_at_most", plan.policy.reboots},
                                       {"alternatives", alternatives(plan)},
                                       {"ends", found.ends},
                                       {"steps", std::move(steps)}});
  } else {
    fmt::print("{}  {}\n\n", paint(Colour::bold, plan.name), plan.title);
    for (const Standing& s : found.steps) {
      print_table({row_of(s)});
      for (const Standing::Change& change : s.changes)
        print_change(change, change.step == s.step && s.effect == Effect::reboot, *host);
      const bool blocked = s.kind == Standing::Kind::blocked;
      if (!s.obstacle.empty()) print_table({{"  ", blocked ? paint(Colour::red, "blocked") : paint(Colour::yellow, "waits for"), s.obstacle}});
      if (blocked) print_table({{"  ", paint(Colour::bold, "next"), next_for_operator(s)}});
    }
    const char* verdict = found.holds()     ? "Nothing to do."
                          : found.blocked() ? "Blocked: nothing is changed until the points above are settled."
                                            : "p2pctl apply makes these changes; p2pctl revert takes them back.";
    if (!found.ends.empty())
      print_table({{"  ", paint(Colour::yellow, "ends"), fmt::format("{}", fmt::join(found.ends, ", "))}});
    for (const Step& step : plan.steps)
      if (step.kind == StepKind::alternative) print_table({{"  ", paint(Colour::blue, "if the proof fails"), step.title}});
    fmt::print("\n{}  Reboots: {} expected, {} at most.\n", paint(Colour::bold, verdict), found.reboots(), plan.policy.reboots);
  }
  if (found.blocked()) return kBlocked;
  return context.options.detailed_exitcode && !found.holds() ? kChanges : kDone;
}

}  // namespace p2pd::ctl
