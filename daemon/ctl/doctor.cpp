// SPDX-License-Identifier: MIT
// p2pctl doctor: every check of the plan, the first gate that is shut, and the one next thing to do.
#include "ctl/doctor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "ctl/print.hpp"
#include "ctl/survey.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

/// Counts what a diagnosis had to ask of other programs: files and registers say most of it.
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

/// The end of a diagnosis: the gate to open first, and who opens it.
struct Conclusion {
  const Standing& gate;
  std::vector<const Step*> behind;  ///< judged once it is open
  std::vector<const Step*> beside;  ///< shut, or not known, too
  std::string next;
  bool by_p2pd;
};

/// What the diagnosis took.
struct Cost {
  std::int64_t milliseconds;
  int commands;
};

std::vector<std::string> ids(const std::vector<const Step*>& steps) {
  std::vector<std::string> names;
  for (const Step* step : steps) names.push_back(step->id);
  return names;
}

Conclusion conclude(const Survey& survey, const Standing& gate, const Plan& plan) {
  Conclusion out{gate, survey.behind(gate), survey.beside(gate), "", false};
  const auto blocked = std::ranges::find(survey.steps, Standing::Kind::blocked, &Standing::kind);
  out.by_p2pd = blocked == survey.steps.end();
  if (out.by_p2pd)
    out.next = fmt::format("p2pctl apply {}  ({})", plan.name, survey.reboots() > 0 ? "1 reboot" : "no reboot");
  else if (gate.kind == Standing::Kind::blocked)
    out.next = next_for_operator(gate);
  else  // nothing is changed while a person is needed
    out.next = fmt::format("p2pd can open this gate, but {} needs you first: {}", blocked->step->id, next_for_operator(*blocked));
  return out;
}

nlohmann::json to_json(const Standing& standing) {
  nlohmann::json document = p2pd::to_json(standing.finding);
  document["step"] = standing.step->id;
  document["title"] = standing.step->title;
  document["check"] = standing.step->check;
  document["standing"] = to_string(standing.kind);
  return document;
}

nlohmann::json to_json(const Conclusion& conclusion) {
  nlohmann::json document = to_json(conclusion.gate);
  document["why"] = conclusion.gate.step->why;
  document["behind"] = ids(conclusion.behind);
  document["beside"] = ids(conclusion.beside);
  if (!conclusion.gate.obstacle.empty()) document["obstacle"] = conclusion.gate.obstacle;
  document["by"] = conclusion.by_p2pd ? "p2pd" : "operator";
  document["next"] = conclusion.next;
  return document;
}

void print_steps(const Survey& survey) {
  std::vector<std::vector<std::string>> rows;
  for (const Standing& s : survey.steps) rows.push_back(row_of(s));
  print_table(rows);
}

void print_conclusion(const Conclusion& conclusion) {
  const Standing& gate = conclusion.gate;
  const bool shut = gate.finding.verdict == Verdict::fail;
  fmt::print("\n{}\n", paint(Colour::bold, harmless((shut ? "Root cause: " : "Not known: ") + gate.finding.summary)));
  std::vector<std::vector<std::string>> rows;
  if (!gate.step->why.empty()) rows.push_back({"why", gate.step->why});
  for (const Evidence& e : gate.finding.evidence) rows.push_back({"seen", fmt::format("{}: {}", e.source, e.value)});
  if (!gate.obstacle.empty()) rows.push_back({gate.kind == Standing::Kind::blocked ? "blocked" : "waits for", gate.obstacle});
  if (!conclusion.behind.empty()) rows.push_back({"behind it", fmt::format("{}", fmt::join(ids(conclusion.behind), ", "))});
  if (!conclusion.beside.empty()) rows.push_back({"besides", fmt::format("{}", fmt::join(ids(conclusion.beside), ", "))});
  rows.push_back({"next", paint(Colour::bold, conclusion.next)});
  print_table(rows);
}

/// Some step of the plan proves P2P, and did.
bool is_proven(const Survey& survey, const Vocabulary& vocabulary) {
  return std::ranges::any_of(survey.steps, [&](const Standing& s) {
    return vocabulary.probe(s.step->check)->proves_p2p && s.finding.verdict == Verdict::pass;
  });
}

void print_person(const Survey& survey, const Plan& plan, bool proven, const Cost& cost) {
  const Standing* gate = survey.root_cause();
  const auto looked_at = std::ranges::count_if(survey.steps, [](const Standing& s) { return !s.finding.summary.empty(); });
  if (gate != nullptr && looked_at == 1) {  // nothing else could be looked at: one line says it all
    fmt::print("{} {}\n", mark(gate->finding.verdict),
               harmless(gate->finding.summary + ". " + conclude(survey, *gate, plan).next));
    return;
  }
  print_steps(survey);
  if (gate == nullptr)
    fmt::print("\n{}\n", paint(Colour::green, proven ? "P2P is proven between every pair of GPUs."
                                                     : "No gate of plan " + plan.name + " is shut."));
  else
    print_conclusion(conclude(survey, *gate, plan));
  fmt::print("{}\n", paint(Colour::dim, fmt::format("{} check{} in {} ms, {} command{} run", looked_at,
                                                    looked_at == 1 ? "" : "s", cost.milliseconds, cost.commands,
                                                    cost.commands == 1 ? "" : "s")));
}

}  // namespace

std::vector<std::string> row_of(const Standing& s) {
  if (s.kind != Standing::Kind::waits) return {mark(s.finding.verdict), s.step->id, s.finding.summary};
  const bool seen = !s.finding.summary.empty();
  return {paint(Colour::dim, "·"), paint(Colour::dim, s.step->id),
          paint(Colour::dim, seen ? "waits; now: " + s.finding.summary : "waits for what stands above")};
}

nlohmann::json diagnosis_of(const Survey& survey, const Plan& plan, const Vocabulary& vocabulary) {
  const Standing* gate = survey.root_cause();
  nlohmann::json steps = nlohmann::json::array();
  for (const Standing& s : survey.steps) steps.push_back(to_json(s));
  return {{"plan", plan.name},
          {"holds", gate == nullptr},
          {"proven", is_proven(survey, vocabulary)},
          {"steps", std::move(steps)},
          {"conclusion", gate == nullptr ? nlohmann::json() : to_json(conclude(survey, *gate, plan))}};
}

Result<int> doctor(const Context& context) {
  const auto start = std::chrono::steady_clock::now();
  const auto runner = TRY(context.runner());
  CountingRunner counted(*runner);
  const auto host = TRY(context.host(counted)).snapshot();
  const Plan plan = TRY(context.plan(*host));
  const Survey found = survey(plan, context.vocabulary, *host, false);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  const Cost cost{took.count(), counted.count};
  if (context.options.json) {
    nlohmann::json body = diagnosis_of(found, plan, context.vocabulary);
    body["commands_run"] = cost.commands;
    body["took_ms"] = cost.milliseconds;
    print_json("p2pd.doctor/1", std::move(body));
  } else {
    print_person(found, plan, is_proven(found, context.vocabulary), cost);
  }
  return found.holds() ? kDone : kBlocked;
}

}  // namespace p2pd::ctl
