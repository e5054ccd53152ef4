// SPDX-License-Identifier: MIT
// Parser of plans, and the words that they are written in.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/yaml.hpp"
#include "plan/plan.hpp"

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
std::vector<std::string_view> ids(std::span<const Row> rows) {
  std::vector<std::string_view> ids;
  ids.reserve(rows.size());
  for (const Row& row : rows) ids.push_back(row.id);
  return ids;
}

Result<std::string> name(const yaml::Node& node) {
  std::string word = TRY(node.text());
  if (!is_name(word)) return Failure(node.error("expected a name of a-z, 0-9 and -, at most 64 characters"));
  return word;
}

Result<std::string> optional_text(const yaml::Node& map, const std::string& key) {
  return map.has(key) ? TRY(map.at(key)).text() : std::string();
}

Result<std::vector<std::string>> optional_texts(const yaml::Node& map, const std::string& key) {
  return map.has(key) ? TRY(map.at(key)).texts() : std::vector<std::string>();
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
  if (const auto row = std::ranges::find(rows, id, &Row::id); row != rows.end()) return &*row;
  const std::string near = nearest(id, ids(rows));
  return Failure(node.error(
      fmt::format("there is no {} \"{}\"{}", key, id, near.empty() ? "" : "; did you mean \"" + near + "\"?")));
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
  step.after = TRY(optional_texts(node, "after"));
  step.needs = TRY(optional_texts(node, "needs"));
  step.where = TRY(optional_texts(node, "where"));
  step.spares = TRY(optional_texts(node, "spares"));
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

/// Keys of a step that name other steps.
struct Reference {
  const char* key;
  const std::vector<std::string> Step::*names;
  std::vector<StepKind> kinds;
};

/// Checks that references exist and are of the right kind, without a cycle.
Result<void> check_references(const Plan& plan, const StepNodes& nodes, const yaml::Node& root) {
  static const Reference kReferences[] = {
      {"after", &Step::after, {StepKind::gate, StepKind::alternative, StepKind::upkeep}},
      {"needs", &Step::needs, {StepKind::requires_, StepKind::upkeep}},
      {"where", &Step::where, {StepKind::requires_}},
      {"spares", &Step::spares, {StepKind::gate}}};
  std::map<std::string_view, std::size_t> at;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) at.emplace(plan.steps[i].id, i);
  for (const Step& step : plan.steps) {
    for (const auto& [key, names, all_kinds] : kReferences) {
      const bool gates_only = names == &Step::after && step.kind != StepKind::upkeep;
      const std::vector<StepKind> kinds(all_kinds.begin(), gates_only ? all_kinds.end() - 1 : all_kinds.end());
      for (const std::string& word : step.*names) {
        const auto known = at.find(word);
        if (known == at.end() || std::ranges::find(kinds, plan.steps[known->second].kind) == kinds.end()) {
          std::vector<std::string_view> candidates;
          for (const Step& other : plan.steps)
            if (std::ranges::find(kinds, other.kind) != kinds.end()) candidates.push_back(other.id);
          const std::string near = nearest(word, candidates);
          return Failure(error_at(nodes, root, step, key,
                                  fmt::format("there is no {} step \"{}\"{}", to_string(kinds.front()), word,
                                              near.empty() ? "" : "; did you mean \"" + near + "\"?")));
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

}  // namespace p2pd
