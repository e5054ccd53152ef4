// SPDX-License-Identifier: MIT
// p2pctl doctor: every check of the plan, the first gate that is shut, and the one next thing to do.
#include <fmt/format.h>

#include <algorithm>

#include "ctl/print.hpp"
#include "ctl/survey.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

nlohmann::json to_json(const Standing& standing) {
  nlohmann::json json = p2pd::to_json(standing.finding);
  json["step"] = standing.step->id;
  json["title"] = standing.step->title;
  json["standing"] = to_string(standing.kind);
  return json;
}

/// Who does it: "p2pctl apply" where p2pd can, else the operator's text.
std::string next_thing(const Survey& survey, const Plan& plan) {
  const auto blocked = std::find_if(survey.steps.begin(), survey.steps.end(),
                                    [](const Standing& s) { return s.kind == Standing::Kind::blocked; });
  if (blocked != survey.steps.end()) return next_for_operator(*blocked);
  return fmt::format("p2pctl apply {}  ({})", plan.name, survey.reboots() > 0 ? "1 reboot" : "no reboot");
}

void print_person(const Survey& survey, const Plan& plan) {
  const Standing* first = survey.first_shut();
  const auto others = std::count_if(survey.steps.begin(), survey.steps.end(),
                                    [&](const Standing& s) { return s.kind != Standing::Kind::waits; });
  if (first != nullptr && others == 1) {  // nothing else could be looked at: one line says it all
    fmt::print("{} {}\n", mark(first->finding.verdict), harmless(first->finding.summary + ". " + next_thing(survey, plan)));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Standing& s : survey.steps) {
    if (s.kind == Standing::Kind::waits)
      rows.push_back({paint(Colour::dim, "·"), paint(Colour::dim, s.step->id), paint(Colour::dim, "waits for what stands above")});
    else
      rows.push_back({mark(s.finding.verdict), s.step->id, s.finding.summary});
  }
  print_table(rows);
  if (first == nullptr) {
    fmt::print("\n{}\n", paint(Colour::green, "Every check of plan " + plan.name + " passes."));
    return;
  }
  const auto shut = std::count_if(survey.steps.begin(), survey.steps.end(), [](const Standing& s) {
    return s.kind != Standing::Kind::waits && !s.finding.holds();
  });
  fmt::print("\n{}\n", paint(Colour::bold, fmt::format("{} of {} checks fail; the first: {}", shut, survey.steps.size(),
                                                       first->finding.summary)));
  if (!first->step->why.empty()) print_table({{"why", first->step->why}});
  for (const Evidence& e : first->finding.evidence) print_table({{"seen", fmt::format("{}: {}", e.source, e.value)}});
  print_table({{"next", paint(Colour::bold, next_thing(survey, plan))}});
}

}  // namespace

Result<int> doctor(const Context& context) {
  const auto runner = TRY(context.runner());
  const Host host = TRY(context.host(*runner));
  const Plan plan = TRY(context.plan());
  const Survey found = survey(plan, context.vocabulary, host, false);
  if (context.options.json) {
    nlohmann::json steps = nlohmann::json::array();
    for (const Standing& s : found.steps) steps.push_back(to_json(s));
    const Standing* first = found.first_shut();
    print_json("p2pd.doctor/1", {{"plan", plan.name},
                                 {"holds", found.holds()},
                                 {"steps", std::move(steps)},
                                 {"first", first == nullptr ? nlohmann::json() : nlohmann::json(first->step->id)},
                                 {"next", found.holds() ? "" : next_thing(found, plan)}});
  } else {
    print_person(found, plan);
  }
  return found.holds() ? kDone : kBlocked;
}

}  // namespace p2pd::ctl
