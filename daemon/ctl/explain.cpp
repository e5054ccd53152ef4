// SPDX-License-Identifier: MIT
// p2pctl explain STEP: assertion of a step, reason why P2P needs it, effect of its fix, and the parameters of both.
#include <fmt/format.h>

#include "ctl/verb.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

void explain_parameters(std::span<const Parameter> parameters, const Parameters& with,
                        std::vector<std::vector<std::string>>& rows) {
  for (const Parameter& p : parameters) {
    const std::string value = with.contains(p.name) ? with[std::string(p.name)].dump() : "(default)";
    rows.push_back({"", fmt::format("{} = {}  ({}: {})", p.name, value, to_string(p.type), p.meaning)});
  }
}

}  // namespace

/// Lists the steps of a plan.
static int list_steps(const Context& context, const Plan& plan) {
  if (context.options.json) {
    nlohmann::json steps = nlohmann::json::array();
    for (const Step& s : plan.steps) steps.push_back({{"step", s.id}, {"kind", to_string(s.kind)}, {"title", s.title}});
    print_json("p2pd.steps/1", {{"plan", plan.name}, {"steps", std::move(steps)}});
    return kDone;
  }
  Rows rows;
  for (const Step& s : plan.steps) rows.push_back({std::string(to_string(s.kind)), s.id, s.title});
  fmt::print("{}  {}\n", paint(Colour::bold, plan.name), harmless(plan.title));
  print_table(rows);
  return kDone;
}

Result<int> explain(const Context& context) {
  const Plan plan = TRY(context.plan());
  if (context.options.name.empty()) return list_steps(context, plan);
  const Step* step = plan.step(context.options.name);
  if (step == nullptr) {
    std::vector<std::string_view> ids;
    for (const Step& s : plan.steps) ids.push_back(s.id);
    return fail(ErrorCode::not_found,
                fmt::format("plan {} has no step \"{}\"{}", plan.name, context.options.name,
                            did_you_mean(context.options.name, ids)),
                "\"p2pctl explain\" lists them");
  }
  const Probe& probe = *context.registry.probe(step->check);
  const Action* action = step->fix.empty() ? nullptr : context.registry.action(step->fix);
  if (context.options.json) {
    nlohmann::json body = {{"step", step->id},
                           {"title", step->title},
                           {"why", step->why},
                           {"check", step->check},
                           {"asserts", probe.asserts},
                           {"with", step->with},
                           {"operator", step->operator_text}};
    if (action != nullptr)
      body["fix"] = {{"action", action->id}, {"does", action->does}, {"effect", to_string(action->effect)}};
    print_json("p2pd.step/1", std::move(body));
    return kDone;
  }
  fmt::print("{}  {}\n", paint(Colour::bold, step->id), step->title);
  std::vector<std::vector<std::string>> rows;
  if (!step->why.empty()) rows.push_back({"why", step->why});
  rows.push_back({"check", fmt::format("{}: {}", step->check, probe.asserts)});
  explain_parameters(probe.parameters, step->with, rows);
  if (action != nullptr) {
    rows.push_back({"fix", fmt::format("{} ({}): {}", action->id, to_string(action->effect), action->does)});
    explain_parameters(action->parameters, step->with, rows);
  }
  if (!step->operator_text.empty()) rows.push_back({"operator", step->operator_text});
  print_table(rows);
  return kDone;
}

}  // namespace p2pd::ctl
