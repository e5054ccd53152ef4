// SPDX-License-Identifier: MIT
// p2pctl doctor: every check of the plan, the root cause of a goal that is not reached, and the next action.
#include "ctl/doctor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>

#include "ctl/print.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

/// Counts the commands of a diagnosis; most data comes from files and registers.
class CountingRunner : public CommandRunner {
 public:
  explicit CountingRunner(CommandRunner& inner) : inner_(inner) {}
  Result<CommandResult> run(const Command& command) override {
    ++count;
    return inner_.run(command);
  }
  int stop_fd() const override { return inner_.stop_fd(); }
  int count = 0;

 private:
  CommandRunner& inner_;
};

/// Cost of the diagnosis.
struct Cost {
  std::int64_t milliseconds;
  int commands;
};

/// Next action, and who takes it.
struct Next {
  std::string text;
  bool by_p2pd = true;
};

Next next_of(const Assessment& seen, const Plan& plan, const Registry& registry) {
  const std::vector<const Standing*> person = seen.for_a_person();
  switch (seen.outlook()) {
    case Outlook::ready: return {""};
    case Outlook::limited: return {seen.goal()->finding.next};
    case Outlook::provable:
      return {fmt::format("p2pctl apply {}  (proves it; changes nothing where it passes)", plan.name)};
    case Outlook::mendable: {
      const Reboots reboots = seen.reboots(registry);
      return {fmt::format("p2pctl apply {}  ({})", plan.name,
                          reboots.most == 0 ? "no reboot" : to_string(reboots) + " reboot")};
    }
    default: break;
  }
  return {person.empty() ? "" : person.front()->next, false};
}

std::vector<std::string> ids(const Assessment& seen, const std::function<bool(const Standing&)>& wanted) {
  std::vector<std::string> names;
  for (const Standing& s : seen.steps)
    if (wanted(s)) names.push_back(s.step->id);
  return names;
}

/// Gates that wait for `gate`, directly or indirectly.
std::vector<std::string> behind(const Assessment& seen, const Standing& gate) {
  std::set<std::string> names = {gate.step->id};
  return ids(seen, [&](const Standing& s) {
    const bool waits = s.kind == Standing::Kind::waits &&
                       std::ranges::any_of(s.step->after, [&](const std::string& id) { return names.contains(id); });
    if (waits) names.insert(s.step->id);
    return waits;
  });
}

/// Failing gates, also with an unknown result, besides `gate`.
std::vector<std::string> beside(const Assessment& seen, const Standing& gate) {
  return ids(seen,
             [&](const Standing& s) { return &s != &gate && s.step->kind != StepKind::upkeep && s.is_failing(); });
}

nlohmann::json to_json(const Standing& standing) {
  nlohmann::json document = p2pd::to_json(standing.finding);
  document["step"] = standing.step->id;
  document["kind"] = to_string(standing.step->kind);
  document["title"] = standing.step->title;
  document["check"] = standing.step->check;
  document["standing"] = to_string(standing.kind);
  if (!standing.obstacle.empty()) document["obstacle"] = standing.obstacle;
  return document;
}

nlohmann::json conclusion_of(const Assessment& seen, const Standing& gate, const Next& next) {
  nlohmann::json document = to_json(gate);
  document["why"] = gate.step->why;
  document["behind"] = behind(seen, gate);
  document["beside"] = beside(seen, gate);
  document["by"] = next.by_p2pd ? "p2pd" : "operator";
  document["next"] = next.text;
  return document;
}

void print_cause(const Assessment& seen, const Standing& gate) {
  const Verdict verdict = gate.finding.verdict;
  const char* const lead = verdict == Verdict::fail ? "Root cause: " : verdict == Verdict::limited ? "" : "Not known: ";
  fmt::print("\n{}\n", paint(Colour::bold, harmless(lead + gate.finding.summary)));
  std::vector<std::vector<std::string>> rows;
  if (!gate.step->why.empty()) rows.push_back({"why", gate.step->why});
  for (const Evidence& e : gate.finding.evidence) rows.push_back({"seen", fmt::format("{}: {}", e.source, e.value)});
  if (!gate.obstacle.empty())
    rows.push_back({gate.kind == Standing::Kind::blocked ? "blocked" : "waits for", gate.obstacle});
  if (const auto names = behind(seen, gate); !names.empty())
    rows.push_back({"behind it", fmt::format("{}", fmt::join(names, ", "))});
  if (const auto names = beside(seen, gate); !names.empty())
    rows.push_back({"besides", fmt::format("{}", fmt::join(names, ", "))});
  print_table(rows);
}

/// Prints the next action: one line if p2pd can act, otherwise every action of the operator.
void print_next(const Assessment& seen, const Next& next) {
  std::vector<std::vector<std::string>> rows;
  if (next.by_p2pd) rows.push_back({"next", paint(Colour::bold, next.text)});
  for (const Standing* s : next.by_p2pd ? std::vector<const Standing*>() : seen.for_a_person())
    rows.push_back({"next", paint(Colour::bold, fmt::format("{}: {}", s->step->id, s->next))});
  print_table(rows);
}

void print_person(const Assessment& seen, const Plan& plan, const Registry& registry, const Cost& cost) {
  const Standing* cause = seen.root_cause();
  const auto looked_at =
      std::ranges::count_if(seen.steps, [](const Standing& s) { return !s.finding.summary.empty(); });
  const Next next = next_of(seen, plan, registry);
  if (cause != nullptr && cause == &seen.steps.front()) {  // the first step is the root cause: one line is enough
    fmt::print("{} {}\n", mark(cause->finding.verdict), harmless(cause->finding.summary + ". " + next.text));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Standing& s : seen.steps) rows.push_back(row_of(s, seen));
  print_table(rows);
  const Outlook outlook = seen.outlook();
  if (cause != nullptr) print_cause(seen, *cause);
  if (outlook == Outlook::ready)
    fmt::print("\n{}\n", paint(Colour::green, seen.goal() != nullptr ? "P2P is proven between every pair of GPUs."
                                                                     : "No gate of plan " + plan.name + " is shut."));
  if (outlook == Outlook::provable) fmt::print("\n{}\n", paint(Colour::bold, "P2P is not proven on this boot."));
  if (outlook == Outlook::impossible) fmt::print("{}\n", paint(Colour::bold, "Not with this hardware."));
  if (outlook != Outlook::ready) print_next(seen, next);
  fmt::print("{}\n", paint(Colour::dim,
                           fmt::format("{} check{} in {} ms, {} command{} run", looked_at, looked_at == 1 ? "" : "s",
                                       cost.milliseconds, cost.commands, cost.commands == 1 ? "" : "s")));
}

}  // namespace

std::vector<std::string> row_of(const Standing& s, const Assessment& seen) {
  const Outlook outlook = seen.outlook();
  const bool excused = (outlook == Outlook::ready || outlook == Outlook::provable) && s.step->kind != StepKind::goal;
  const auto dim = [](const std::string& text) { return paint(Colour::dim, text); };
  const std::string& summary = s.finding.summary;
  if (s.kind == Standing::Kind::untried) return {mark(Verdict::unknown), s.step->id, "not proven on this boot"};
  if (s.kind == Standing::Kind::holds) return {mark(s.finding.verdict), s.step->id, summary};
  if (s.kind == Standing::Kind::note)
    return {dim("·"), dim(s.step->id), dim("not maintained by p2pd" + (summary.empty() ? "" : "; now: " + summary))};
  if (s.kind == Standing::Kind::waits)
    return {dim("·"), dim(s.step->id),
            dim(excused           ? "not in the way" + (summary.empty() ? "" : "; now: " + summary)
                : summary.empty() ? "waits for the steps above"
                                  : "waits; now: " + summary)};
  if (excused && s.step->is_gate()) return {dim("·"), s.step->id, summary + dim("  (not in the way here)")};
  return {mark(s.finding.verdict), s.step->id, summary};
}

nlohmann::json diagnosis_of(const Assessment& seen, const Plan& plan, const Registry& registry) {
  const Standing* cause = seen.root_cause();
  const Next next = next_of(seen, plan, registry);
  nlohmann::json steps = nlohmann::json::array(), person = nlohmann::json::array();
  for (const Standing& s : seen.steps) steps.push_back(to_json(s));
  for (const Standing* s : seen.for_a_person()) person.push_back({{"step", s->step->id}, {"next", s->next}});
  return {{"plan", plan.name},
          {"outlook", to_string(seen.outlook())},
          {"holds", seen.outlook() == Outlook::ready},
          {"fit_for", seen.goal() == nullptr ? std::vector<std::string>() : seen.goal()->finding.fit_for},
          {"proven", seen.outlook() == Outlook::ready && seen.goal() != nullptr},
          {"reboots", seen.reboots(registry).most},
          {"next", next.text},
          {"person", std::move(person)},
          {"steps", std::move(steps)},
          {"conclusion", cause == nullptr ? nlohmann::json() : conclusion_of(seen, *cause, next)}};
}

int exit_status(Outlook outlook) {
  switch (outlook) {
    case Outlook::ready: return kDone;
    case Outlook::limited: return kLimited;
    case Outlook::provable:
    case Outlook::mendable: return kNotReady;
    default: return kBlocked;
  }
}

Result<int> doctor(const Context& context) {
  const auto start = std::chrono::steady_clock::now();
  const auto runner = TRY(context.runner());
  CountingRunner counted(*runner);
  const auto host = TRY(context.host_of_plan(counted)).snapshot();
  const Plan plan = TRY(context.plan(*host));
  const Assessment seen = assess(plan, context.registry, *host);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  const Cost cost{took.count(), counted.count};
  if (context.options.json) {
    nlohmann::json body = diagnosis_of(seen, plan, context.registry);
    body["commands_run"] = cost.commands;
    body["took_ms"] = cost.milliseconds;
    print_json("p2pd.doctor/1", std::move(body));
  } else {
    print_person(seen, plan, context.registry, cost);
  }
  return exit_status(seen.outlook());
}

}  // namespace p2pd::ctl
