// SPDX-License-Identifier: MIT
// Plans in the journal: another version of p2pd, with other words, checks and fixes, may read them.
#include "plan/journalled_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_members.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

constexpr int kFormat = 3;  // 1: p2pd 0.1; 2: p2pd 0.2; both without a number

/// Converts a step of format 1: every step but requirements and alternatives was a `state`, also the proof.
void convert_state(json& step, const Registry& registry) {
  const auto state = step.find("state");
  if (state == step.end()) return;
  const json& check = field_of(step, "check");
  const Probe* probe = check.is_string() ? registry.probe(check.get_ref<const std::string&>()) : nullptr;
  const bool proof = probe != nullptr && probe->proves_p2p;
  step[proof ? "goal" : "gate"] = *state;
  for (const char* key : {"state", "needs", "fix"})
    if (proof || key == std::string_view("state")) step.erase(key);
}

/// Converts a step of format 1 or 2.
void convert(json& step, const Registry& registry) {
  if (!step.is_object()) return;
  convert_state(step, registry);
  if (field_of(step, "tried") == "in-vain") step["tried"] = to_string(Tried::ineffective);
}

Result<json> converted(const std::string& text, const Registry& registry) {
  json document = parse_json(text);
  if (!document.is_object()) return fail(ErrorCode::invalid, "it is damaged");
  const auto format = json_number<int>(document, "format");
  if (format > kFormat)
    return fail(ErrorCode::invalid,
                fmt::format("its format is {}, and the newest that this version of p2pd knows is {}", format, kFormat));
  document.erase("format");
  if (document.contains("steps"))
    for (json& step : document["steps"]) convert(step, registry);
  return document;
}

/// Limits that a rollback keeps, also if other members of the policy cannot be read.
Policy readable_policy(const json& document) {
  Policy policy;
  const json& found = field_of(document, "policy");
  if (field_of(found, "reboot") == to_string(RebootPolicy::external)) policy.reboot = RebootPolicy::external;
  if (field_of(found, "on_failure") == to_string(OnFailure::keep)) policy.on_failure = OnFailure::keep;
  return policy;
}

/// The steps that can be read each by itself, without their references to others.
Plan readable_part(const json& document, const std::string& name, const Registry& registry) {
  json part = {{"name", name}, {"title", name}, {"steps", json::array()}};
  for (json step : field_of(document, "steps")) {
    if (!step.is_object()) continue;
    for (const auto& [key, names] : kStepReferences) step.erase(key);
    json with_it = part;
    with_it["steps"].push_back(step);
    if (parse_plan(with_it.dump(), name, registry)) part = std::move(with_it);
  }
  Plan plan = parse_plan(part.dump(), name, registry).value_or(Plan{});
  plan.name = name;
  plan.policy = readable_policy(document);
  plan.gpus.left_out = json_texts(field_of(document, "gpus"), "exclude");
  plan.gpus.all = field_of(field_of(document, "gpus"), "require") == "all";
  return plan;
}

}  // namespace

std::string journal_text(const Plan& plan) {
  if (plan.steps.empty()) return {};
  json document = to_json(plan);
  document["format"] = kFormat;
  return document.dump();
}

JournalledPlan read_journalled_plan(const std::string& text, const std::string& name, const Registry& registry) {
  JournalledPlan read;
  read.plan.name = name;
  if (text.empty()) return read;
  const Result<json> document = converted(text, registry);
  const Result<Plan> plan = document ? parse_plan(document->dump(), "journal", registry) : Failure(document.error());
  if (plan) return {*plan, std::nullopt};
  read.unread = Error{
      ErrorCode::state,
      fmt::format("this version of p2pd ({}) cannot read its plan: {}", P2PD_VERSION, plan.error().message),
      "\"sudo p2pctl cancel\" undoes it, \"sudo p2pctl apply\" then begins a new one; or install the version of p2pd "
      "that began it"};
  read.plan = readable_part(document ? *document : parse_json(text), name, registry);
  return read;
}

}  // namespace p2pd
