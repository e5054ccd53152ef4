// SPDX-License-Identifier: MIT
#include "plan/plan.hpp"

#include <algorithm>
#include <set>

namespace p2pd {
namespace {

template <class Row>
const Row* find(std::span<const Row> rows, std::string_view id) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.id == id; });
  return row == rows.end() ? nullptr : &*row;
}

/// Turns a proven alternative into a gate.
void settle_alternative(Step& step) {
  if (step.kind == StepKind::alternative) step.kind = StepKind::gate;
  step.first = false;
  step.tried = Tried::no;
}

}  // namespace

const Probe* Registry::probe(std::string_view id) const { return find(probes, id); }
const Action* Registry::action(std::string_view id) const { return find(actions, id); }

const Step* Plan::step(std::string_view id) const {
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.id == id; });
  return found == steps.end() ? nullptr : &*found;
}

const Step* Plan::goal() const {
  const auto found = std::ranges::find(steps, StepKind::goal, &Step::kind);
  return found == steps.end() ? nullptr : &*found;
}

bool Plan::only_checks() const {
  return std::ranges::none_of(steps, [](const Step& step) { return step.is_fixable(); });
}

void Plan::remove_steps(const std::function<bool(const Step&)>& removed) {
  std::set<std::string> left;
  for (const Step& step : steps)
    if (removed(step)) left.insert(step.id);
  const auto is_left = [&](const std::string& id) { return left.contains(id); };
  std::erase_if(steps, [&](const Step& step) { return is_left(step.id); });
  for (Step& step : steps) {
    std::erase_if(step.after, is_left);
    std::erase_if(step.needs, is_left);
    std::erase_if(step.spares, is_left);
  }
}

Plan checks_of(Plan plan, const Registry& registry, bool quick) {
  std::set<std::string> conditions;
  for (const Step& step : plan.steps) conditions.insert(step.where.begin(), step.where.end());
  plan.remove_steps([&](const Step& step) { return !step.is_checked() && !conditions.contains(step.id); });
  for (Step& step : plan.steps) {
    const Probe& probe = *registry.probe(step.check);
    settle_alternative(step);
    step.fix.clear();
    step.needs.clear();
    Parameters with = Parameters::object();
    for (const Parameter& parameter : probe.parameters)
      if (const auto value = step.with.find(parameter.name); value != step.with.end()) with[parameter.name] = *value;
    if (quick && !probe.quick.empty()) with.update(Parameters::parse(probe.quick));
    step.with = std::move(with);
  }
  return plan;
}

Plan each_boot_of(Plan plan, const Registry& registry) {
  std::erase_if(plan.steps, [&](const Step& step) {
    const Action* action = registry.action(step.fix);
    return action == nullptr || !action->each_boot;
  });
  for (Step& step : plan.steps) {
    settle_alternative(step);
    if (step.kind == StepKind::requires_) step.kind = StepKind::gate;
    for (auto names : {&Step::after, &Step::needs, &Step::where, &Step::spares}) (step.*names).clear();
  }
  return plan;
}

nlohmann::json to_json(const Plan& plan) {
  nlohmann::json steps = nlohmann::json::array();
  for (const Step& step : plan.steps) {
    nlohmann::json document = {{to_string(step.kind), step.id}, {"title", step.title}, {"check", step.check}};
    if (!step.fix.empty()) document["fix"] = step.fix;
    if (!step.with.empty()) document["with"] = step.with;
    if (!step.why.empty()) document["why"] = step.why;
    if (!step.operator_text.empty()) document["operator"] = step.operator_text;
    if (!step.after.empty()) document["after"] = step.after;
    if (!step.needs.empty()) document["needs"] = step.needs;
    if (!step.where.empty()) document["where"] = step.where;
    if (!step.spares.empty()) document["spares"] = step.spares;
    if (step.first) document["first"] = true;
    if (step.kind == StepKind::alternative) document["tried"] = to_string(step.tried);
    steps.push_back(std::move(document));
  }
  nlohmann::json document = {{"name", plan.name},
                             {"title", plan.title},
                             {"policy",
                              {{"reboots", plan.policy.reboots},
                               {"attempts", plan.policy.attempts},
                               {"on_failure", to_string(plan.policy.on_failure)},
                               {"reboot", to_string(plan.policy.reboot)},
                               {"busy", to_string(plan.policy.busy)}}},
                             {"steps", std::move(steps)}};
  if (plan.driver != DriverWanted::chosen) document["driver"] = to_string(plan.driver);
  if (!plan.gpus.left_out.empty()) document["gpus"]["exclude"] = plan.gpus.left_out;
  if (plan.gpus.all) document["gpus"]["require"] = "all";
  if (plan.gpus.alone && !plan.gpus.alone->empty()) document["gpus"]["alone"] = *plan.gpus.alone;
  return document;
}

}  // namespace p2pd
