// SPDX-License-Identifier: MIT
// Plans: their steps, and the words that they are written in.
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/yaml.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kStepLimit = 256;
constexpr std::string_view kOnFailure[] = {"revert", "keep"};
constexpr std::string_view kReboot[] = {"automatic", "external"};
constexpr std::string_view kBusy[] = {"wait", "block"};
constexpr std::string_view kDrivers[] = {"chosen", "offered"};
constexpr std::string_view kKinds[] = {"goal", "gate", "upkeep", "requires", "alternative"};
constexpr std::string_view kTried[] = {"no", "now", "ineffective"};

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

/// "there is no KIND \"ID\"", with the nearest of `rows` that `fits`.
template <class Rows, class Fits>
std::string unknown_id(std::string_view kind, std::string_view id, const Rows& rows, const Fits& fits) {
  std::vector<std::string_view> known;
  for (const auto& row : rows)
    if (fits(row)) known.push_back(row.id);
  return fmt::format("there is no {} \"{}\"{}", kind, id, did_you_mean(id, known));
}

Result<std::string> name(const yaml::Node& node) {
  std::string word = TRY(node.text());
  if (!is_name(word)) return Failure(node.error("expected a name of a-z, 0-9 and -, at most 64 characters"));
  return word;
}

Result<std::string> optional_text(const yaml::Node& map, const std::string& key) {
  return map.has(key) ? TRY(map.at(key)).text() : std::string();
}

Result<Policy> read_policy(const yaml::Node& node) {
  static constexpr std::string_view kKeys[] = {"reboots", "attempts", "on_failure", "reboot", "busy"};
  TRY(node.keys(kKeys));
  Policy policy;
  if (node.has("reboots")) policy.reboots = static_cast<int>(TRY(TRY(node.at("reboots")).integer(0, 20)));
  if (node.has("attempts")) policy.attempts = static_cast<int>(TRY(TRY(node.at("attempts")).integer(1, 10)));
  if (node.has("on_failure")) policy.on_failure = OnFailure(TRY(TRY(node.at("on_failure")).choice(kOnFailure)));
  if (node.has("reboot")) policy.reboot = RebootPolicy(TRY(TRY(node.at("reboot")).choice(kReboot)));
  if (node.has("busy")) policy.busy = Busy(TRY(TRY(node.at("busy")).choice(kBusy)));
  return policy;
}

/// Reads the id of a known probe or action under `key`.
template <class Row>
Result<const Row*> read_reference(const yaml::Node& step, const std::string& key, std::span<const Row> rows) {
  const yaml::Node node = TRY(step.at(key));
  const std::string id = TRY(node.text());
  if (const Row* row = find(rows, id); row != nullptr) return row;
  return Failure(node.error(unknown_id(key, id, rows, [](const Row&) { return true; })));
}

/// Reads `with:`: parameters that the probe or the action declares, checked by both.
Result<Parameters> read_parameters(const yaml::Node& step, const Probe& probe, const Action* action) {
  std::map<std::string_view, const Parameter*> known;
  for (const Parameter& p : probe.parameters) known[p.name] = &p;
  if (action != nullptr) {
    for (const Parameter& p : action->parameters) known.try_emplace(p.name, &p);
  }
  Parameters values = Parameters::object();
  const yaml::Node with = step.has("with") ? TRY(step.at("with")) : step;
  if (step.has("with")) {
    std::vector<std::string_view> names;
    for (const auto& [key, parameter] : known) names.push_back(key);
    TRY(with.keys(names));
    for (const auto& [key, parameter] : known) {
      const std::string word(key);
      if (with.has(word)) values[word] = TRY(TRY(with.at(word)).value(*parameter));
    }
  }
  for (const auto& [key, parameter] : known) {
    if (parameter->required && !values.contains(key))
      return Failure(with.error(fmt::format("parameter \"{}\" is missing ({})", key, parameter->meaning)));
  }
  const auto accept = [&](auto validate) -> Result<void> {
    if (validate == nullptr) return {};
    const Result<void> valid = validate(values);
    if (!valid) return Failure(with.error(valid.error().message));
    return {};
  };
  TRY(accept(probe.validate));
  if (action != nullptr) TRY(accept(action->validate));
  return values;
}

Result<StepKind> read_kind(const yaml::Node& node) {
  std::vector<StepKind> found;
  for (const StepKind kind : kStepKinds)
    if (node.has(std::string(to_string(kind)))) found.push_back(kind);
  if (found.size() == 1) return found.front();
  return Failure(
      node.error("expected one of \"goal\", \"gate\", \"upkeep\", \"requires\" and \"alternative\", each with a name"));
}

Result<Step> read_step(const yaml::Node& node, const Registry& registry) {
  static constexpr std::string_view kKeys[] = {"goal",  "gate",     "upkeep", "requires", "alternative", "title",
                                               "why",   "check",    "fix",    "with",     "after",       "needs",
                                               "where", "operator", "first",  "spares",   "tried"};
  TRY(node.keys(kKeys));
  Step step;
  step.kind = TRY(read_kind(node));
  step.id = TRY(name(TRY(node.at(std::string(to_string(step.kind))))));
  step.title = TRY(TRY(node.at("title")).text());
  step.why = TRY(optional_text(node, "why"));
  step.operator_text = TRY(optional_text(node, "operator"));
  for (const auto& [key, names] : kStepReferences)
    if (node.has(key)) step.*names = TRY(TRY(node.at(key)).texts());
  const Probe* probe = TRY(read_reference(node, "check", registry.probes));
  const Action* action = node.has("fix") ? TRY(read_reference(node, "fix", registry.actions)) : nullptr;
  step.check = probe->id;
  if (action != nullptr) step.fix = action->id;
  step.with = TRY(read_parameters(node, *probe, action));
  if (step.kind == StepKind::requires_ && !step.after.empty())
    return Failure(node.error("a requires step has no \"after\" of its own"));
  if (step.kind == StepKind::requires_ && action == nullptr && !step.needs.empty())
    return Failure(node.error("\"needs\" of a requires step without a \"fix\""));
  if (step.kind != StepKind::upkeep && !step.where.empty())
    return Failure(node.error("\"where\" of a step that is not upkeep"));
  if ((step.kind == StepKind::goal) != probe->proves_p2p)
    return Failure(node.error(
        probe->proves_p2p
            ? "a check that proves P2P is the goal of a plan, and nothing else"
            : fmt::format("the goal must be a check that proves P2P, like p2p-bench; {} does not", step.check)));
  if (step.kind == StepKind::goal && step.is_fixable())
    return Failure(node.error("\"fix\" or \"needs\" of the goal: its fixes are the gates"));
  if (step.kind == StepKind::alternative && action == nullptr)
    return Failure(node.error("an alternative without a \"fix\": there is nothing to try"));
  for (const char* key : {"first", "tried"})
    if (node.has(key) && step.kind != StepKind::alternative)
      return Failure(node.error(fmt::format("\"{}\" of a step that is not an alternative", key)));
  if (node.has("first"))
    step.first = TRY(TRY(node.at("first")).value({"first", Parameter::Type::boolean, false, ""})).get<bool>();
  step.reset_trial();
  if (node.has("tried")) step.tried = Tried(TRY(TRY(node.at("tried")).choice(kTried)));
  return step;
}

/// Nodes of the steps that a plan's own text has, by name; other steps are of the plan that it is based on.
using StepNodes = std::map<std::string, yaml::Node, std::less<>>;

/// Makes the Error about `key` of a step, where it was read.
Error error_at(const StepNodes& nodes, const yaml::Node& root, const Step& step, const char* key, std::string what) {
  const auto node = nodes.find(step.id);
  if (node == nodes.end()) return root.error(fmt::format("based_on: step \"{}\": {}: {}", step.id, key, what));
  const auto value = node->second.at(key);
  return value ? value->error(std::move(what)) : node->second.error(std::move(what));
}

/// Kinds of the steps that `step` may name in its `names`.
std::vector<StepKind> kinds_named(const Step& step, std::vector<std::string> Step::*names) {
  if (names == &Step::needs) return {StepKind::requires_, StepKind::upkeep};
  if (names == &Step::where) return {StepKind::requires_};
  if (names == &Step::spares) return {StepKind::gate};
  if (step.kind == StepKind::upkeep) return {StepKind::gate, StepKind::alternative, StepKind::upkeep};
  return {StepKind::gate, StepKind::alternative};
}

/// Checks that references exist and are of the right kind, without a cycle.
Result<void> check_references(const Plan& plan, const StepNodes& nodes, const yaml::Node& root) {
  std::map<std::string_view, std::size_t> at;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) at.emplace(plan.steps[i].id, i);
  for (const Step& step : plan.steps) {
    for (const auto& [key, names] : kStepReferences) {
      const std::vector<StepKind> kinds = kinds_named(step, names);
      const auto fits = [&](const Step& other) { return std::ranges::find(kinds, other.kind) != kinds.end(); };
      for (const std::string& word : step.*names) {
        const auto known = at.find(word);
        if (known == at.end() || !fits(plan.steps[known->second])) {
          const std::string kind = fmt::format("{} step", to_string(kinds.front()));
          return Failure(error_at(nodes, root, step, key, unknown_id(kind, word, plan.steps, fits)));
        }
        const bool brought = step.kind == StepKind::requires_ || step.kind == StepKind::upkeep;  // met in plan order
        const bool any_order = names == &Step::spares || (names != &Step::after && !brought);
        if (known->second < at[step.id] || any_order) continue;
        const char* what = word == step.id ? "waits for itself" : "comes later: a cycle or the wrong order";
        return Failure(error_at(nodes, root, step, key, fmt::format("\"{}\" {}", word, what)));
      }
    }
  }
  return {};
}

Result<Plan> base_of(const yaml::Node& node, const PlanSource& source) {
  const std::string base = TRY(name(node));
  if (!source) return Failure(node.error("no other plan can be read here"));
  Result<Plan> plan = source(base);
  if (!plan) return Failure(node.error(plan.error().message));
  return plan;
}

/// Adds the steps of `list` to `plan`; a step of a known name replaces that one. New alternatives come before those of
/// the plan that it is based on: they are its purpose. New gates come before its goal.
Result<StepNodes> read_steps(const yaml::Node& list, const Registry& registry, Plan& plan) {
  const std::vector<yaml::Node> all = TRY(list.list());
  if (all.empty()) return Failure(list.error("empty; expected at least one step"));
  if (all.size() + plan.steps.size() > kStepLimit)
    return Failure(list.error(fmt::format("more than {} steps", kStepLimit)));
  StepNodes nodes;
  const auto later = std::ranges::find_if(
      plan.steps, [](const Step& step) { return step.kind == StepKind::alternative || step.kind == StepKind::goal; });
  auto before =
      static_cast<std::size_t>(later - plan.steps.begin());  // place of new alternatives among the other steps
  const bool based = later != plan.steps.end();
  for (const yaml::Node& node : all) {
    Step step = TRY(read_step(node, registry));
    if (!nodes.emplace(step.id, node).second) return Failure(node.error("step \"" + step.id + "\" is there twice"));
    const auto place = std::ranges::find(plan.steps, step.id, &Step::id);
    if (place == plan.steps.end() && based && step.kind == StepKind::alternative)
      plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(before++), std::move(step));
    else if (place == plan.steps.end() && based && step.kind == StepKind::gate)
      plan.steps.insert(std::ranges::find(plan.steps, StepKind::goal, &Step::kind), std::move(step));
    else if (place == plan.steps.end())
      plan.steps.push_back(std::move(step));
    else
      *place = std::move(step);
  }
  return nodes;
}

/// Checks for one goal at most, and that alternatives precede it.
Result<void> check_goal(const Plan& plan, const StepNodes& nodes, const yaml::Node& root) {
  const Step* goal = nullptr;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::goal && goal != nullptr)
      return Failure(error_at(nodes, root, step, "goal", "a second goal; a plan has one"));
    if (step.kind == StepKind::goal) goal = &step;
    if (goal != nullptr && step.kind == StepKind::alternative)
      return Failure(error_at(nodes, root, step, "alternative", "stands after the goal; move it before that"));
  }
  return {};
}

Result<void> read_fixes(const yaml::Node& node, const Registry& registry, Plan& plan) {
  static constexpr std::string_view kWords[] = {"all", "none"};
  if (TRY(node.choice(kWords)) == 1) plan = checks_of(std::move(plan), registry, false);
  return {};
}

}  // namespace

const Probe* Registry::probe(std::string_view id) const { return find(probes, id); }
const Action* Registry::action(std::string_view id) const { return find(actions, id); }

const Step* Plan::step(std::string_view id) const { return find(std::span(steps), id); }

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
  for (Step& step : steps)
    for (const auto& [key, names] : kStepReferences) std::erase_if(step.*names, is_left);
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
      if (const auto value = step.with.find(parameter.name); value != step.with.end())
        with[std::string(parameter.name)] = *value;
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
    for (const auto& [key, names] : kStepReferences) (step.*names).clear();
  }
  return plan;
}

std::string_view to_string(StepKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
std::string_view to_string(Tried value) { return kTried[static_cast<std::size_t>(value)]; }
std::string_view to_string(OnFailure value) { return kOnFailure[static_cast<std::size_t>(value)]; }
std::string_view to_string(RebootPolicy value) { return kReboot[static_cast<std::size_t>(value)]; }
std::string_view to_string(DriverWanted value) { return kDrivers[static_cast<std::size_t>(value)]; }
std::string_view to_string(Busy value) { return kBusy[static_cast<std::size_t>(value)]; }

Result<Plan> parse_plan(std::string_view text, std::string_view file, const Registry& registry,
                        const PlanSource& source) {
  static constexpr std::string_view kKeys[] = {"name",   "title",  "based_on", "fixes",
                                               "policy", "driver", "gpus",     "steps"};
  const yaml::Node root = TRY(yaml::parse(text, file));
  TRY(root.keys(kKeys));
  Plan plan;
  if (root.has("based_on")) plan = TRY(base_of(TRY(root.at("based_on")), source));
  plan.name = TRY(name(TRY(root.at("name"))));
  plan.title = TRY(TRY(root.at("title")).text());
  if (root.has("policy")) plan.policy = TRY(read_policy(TRY(root.at("policy"))));
  if (root.has("driver")) plan.driver = DriverWanted(TRY(TRY(root.at("driver")).choice(kDrivers)));
  if (root.has("gpus")) plan.gpus = TRY(read_wanted_gpus(root));
  StepNodes nodes;
  if (plan.steps.empty() || root.has("steps")) nodes = TRY(read_steps(TRY(root.at("steps")), registry, plan));
  if (root.has("fixes")) TRY(read_fixes(TRY(root.at("fixes")), registry, plan));
  TRY(check_references(plan, nodes, root));
  TRY(check_goal(plan, nodes, root));
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
    for (const auto& [key, names] : kStepReferences)
      if (!(step.*names).empty()) document[key] = step.*names;
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
