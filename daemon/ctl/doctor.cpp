// SPDX-License-Identifier: MIT
// p2pctl doctor: whether P2P works, and what to do if it does not. The screen is in screen/doctor_screen.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>

#include "base/json_members.hpp"
#include "ctl/service.hpp"
#include "engine/transitions.hpp"
#include "screen/preview.hpp"

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
  std::atomic<int> count = 0;  ///< the driver is asked in a thread

 private:
  CommandRunner& inner_;
};

/// Next action: the operator's, or a command of p2pd.
struct Next {
  std::string text;
  bool by_p2pd = true;
};

Next next_of(const PlanPreview& all) {
  const std::vector<const Standing*> person = all.seen.for_a_person();
  const std::string apply = apply_command(all.plan);
  switch (all.outlook) {
    case Outlook::ready: return {""};
    case Outlook::limited: return {all.seen.goal()->finding.next};
    case Outlook::provable: return {fmt::format("{}  (proves it; changes nothing where it passes)", apply)};
    case Outlook::fixable: return {fmt::format("{}  ({})", apply, reboots_text(all.reboots))};
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

/// Gates that need `gate`, directly or indirectly.
std::vector<std::string> not_checked_after(const Assessment& seen, const Standing& gate) {
  std::set<std::string> names = {gate.step->id};
  return ids(seen, [&](const Standing& s) {
    const bool waits = s.kind == Standing::Kind::waits &&
                       std::ranges::any_of(s.step->after, [&](const std::string& id) { return names.contains(id); });
    if (waits) names.insert(s.step->id);
    return waits;
  });
}

/// Failing gates, also with an unknown result, besides `gate`.
std::vector<std::string> also_failing(const Assessment& seen, const Standing& gate) {
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
  document["not_checked"] = not_checked_after(seen, gate);
  document["also_failing"] = also_failing(seen, gate);
  document["by"] = next.by_p2pd ? "p2pd" : "operator";
  document["next"] = next.text;
  return document;
}

/// Prints every check of the plan, and the evidence of the root cause.
void print_all(const Assessment& seen) {
  Rows rows;
  for (const Standing& s : seen.steps) rows.push_back(row_of(s, seen));
  print_table(rows);
  const Standing* const cause = seen.root_cause();
  if (cause == nullptr) return fmt::print("\n");
  fmt::print("\n{}: {}\n", paint(Colour::bold, cause->step->id), harmless(cause->finding.summary));
  rows.clear();
  if (!cause->step->why.empty()) rows.push_back({"why", cause->step->why});
  for (const Evidence& e : cause->finding.evidence) rows.push_back({"seen", fmt::format("{}: {}", e.source, e.value)});
  print_table(rows);
  fmt::print("\n");
}

/// The last run, if it failed or is blocked; null otherwise, or if its state cannot be read.
nlohmann::json trouble_of(const Context& context) {
  Context here = context;
  here.options.no_dbus = true;  // its files have it, and a diagnosis starts no service
  const nlohmann::json last = known_status(here).value_or(nlohmann::json());
  const std::string state = text_of(last, "state");
  if (state != to_string(RunState::failed) && state != to_string(RunState::blocked)) return nullptr;
  nlohmann::json trouble = nlohmann::json::object();
  for (const char* key : {"plan", "state", "reason", "ended", "undone", "next"}) trouble[key] = field_of(last, key);
  return trouble;
}

void print_trouble(const nlohmann::json& trouble) {
  if (!trouble.is_object()) return;
  const std::vector<std::string> undone = json_texts(trouble, "undone");
  std::string text = fmt::format("Last run {}: {}", text_of(trouble, "state"), text_of(trouble, "reason"));
  if (!undone.empty()) text += fmt::format("; undone: {}", fmt::join(undone, ", "));
  print_line(shortened(text, 2 * kScreen));
}

int exit_status(Outlook outlook) {
  switch (outlook) {
    case Outlook::ready: return kDone;
    case Outlook::limited: return kLimited;
    case Outlook::provable:
    case Outlook::fixable: return kChanges;
    default: return kBlocked;
  }
}

}  // namespace

nlohmann::json diagnosis_of(const PlanPreview& all) {
  const Standing *const cause = all.seen.root_cause(), *const goal = all.seen.goal();
  const Next next = next_of(all);
  const bool ready = all.outlook == Outlook::ready;
  nlohmann::json steps = nlohmann::json::array(), person = nlohmann::json::array();
  for (const Standing& s : all.seen.steps) steps.push_back(to_json(s));
  for (const Standing* s : all.seen.for_a_person()) person.push_back({{"step", s->step->id}, {"next", s->next}});
  return {{"plan", all.plan.name},
          {"outlook", to_string(all.outlook)},
          {"holds", ready},
          {"fit_for", goal == nullptr ? std::vector<std::string>() : goal->finding.fit_for},
          {"proven", ready && goal != nullptr},
          {"reboots", all.reboots.most},
          {"next", next.text},
          {"person", std::move(person)},
          {"steps", std::move(steps)},
          {"conclusion", cause == nullptr ? nlohmann::json() : conclusion_of(all.seen, *cause, next)}};
}

Result<int> doctor(const Context& context) {
  const auto start = std::chrono::steady_clock::now();
  const auto runner = TRY(context.runner());
  CountingRunner counted(*runner);
  const auto host = TRY(context.host_of_plan(counted, true));
  const PlanPreview all(TRY(context.plan(*host)), context.registry, *host);
  const int code = all.blocked ? kBlocked : exit_status(all.outlook);
  if (context.options.json) {
    const auto took = std::chrono::steady_clock::now() - start;
    nlohmann::json body = diagnosis_of(all);
    body["commands_run"] = counted.count.load();
    body["took_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
    body["exit_status"] = code;
    body["last_run"] = trouble_of(context);
    print_json("p2pd.doctor/1", std::move(body));
    return code;
  }
  if (context.options.all) print_all(all.seen);
  print_verdict(all);
  print_trouble(trouble_of(context));
  return code;
}

}  // namespace p2pd::ctl
