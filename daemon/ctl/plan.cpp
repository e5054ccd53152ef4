// SPDX-License-Identifier: MIT
// p2pctl plan: changes that apply would make, on one screen. With --diff: every check, diffs and commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/command.hpp"
#include "ctl/verb.hpp"
#include "screen/preview.hpp"

namespace p2pd::ctl {
namespace {

std::string current(const Host& host, const std::string& path) { return host.files().read(path).value_or(""); }

nlohmann::json to_json(const Change& change, const Host& host) {
  nlohmann::json files = nlohmann::json::array();
  for (const Description::File& file : change.description.files) {
    const bool goes = file.kind == FileState::Kind::absent;
    files.push_back({{"path", file.path},
                     {"before", current(host, file.path)},
                     {"after", goes ? nlohmann::json() : nlohmann::json(file.content)}});
  }
  return {
      {"step", change.step->id},           {"change", change.description.summary},    {"cost", change.description.cost},
      {"notes", change.description.notes}, {"commands", change.description.commands}, {"files", std::move(files)}};
}

nlohmann::json to_json(const Preview& preview, const Registry& registry, const Host& host) {
  const Standing& s = preview.standing;
  nlohmann::json document = {{"step", s.step->id},
                             {"kind", to_string(s.step->kind)},
                             {"standing", preview.blocked ? "blocked" : to_string(s.kind)},
                             {"summary", s.finding.summary}};
  if (!preview.obstacle.empty()) document["obstacle"] = preview.obstacle;
  if (preview.blocked) document["next"] = preview.next;
  if (preview.changes.empty()) return document;
  if (!s.step->fix.empty()) document["effect"] = to_string(registry.action(s.step->fix)->effect);
  for (const Change& change : preview.changes) document["changes"].push_back(to_json(change, host));
  return document;
}

/// Alternatives that are tried if the proof fails, in order.
nlohmann::json alternatives(const Plan& plan) {
  nlohmann::json found = nlohmann::json::array();
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::alternative && step.tried == Tried::no)
      found.push_back({{"step", step.id}, {"title", step.title}});
  return found;
}

nlohmann::json to_json(const PlanPreview& all) {
  nlohmann::json steps = nlohmann::json::array();
  for (const Preview& preview : all.steps) steps.push_back(to_json(preview, all.registry, all.host));
  return {{"plan", all.plan.name},
          {"outlook", to_string(all.outlook)},
          {"changes", all.changes},
          {"blocked", all.blocked},
          {"reboots", all.reboots.most},
          {"reboots_at_most", all.plan.policy.reboots},
          {"minutes", all.time.count()},
          {"alternatives", alternatives(all.plan)},
          {"ends", all.ends},
          {"steps", std::move(steps)}};
}

void print_change(const Change& change, bool reboot) {
  const Description& description = change.description;
  fmt::print("   {}{}\n", harmless(description.summary), reboot ? paint(Colour::yellow, "  (reboot)") : "");
  for (const Description::File& file : description.files) fmt::print("      {}\n", harmless(file.path));
  for (const std::string& command : description.commands)
    fmt::print("      {}\n", paint(Colour::blue, "$ " + harmless(command)));
  for (const std::string& note : description.notes) print_table({{"  ", "note", note}});
  if (!description.cost.empty()) print_table({{"  ", paint(Colour::yellow, "cost"), description.cost}});
}

const char* verdict_text(const PlanPreview& all) {
  if (all.blocked) return "Blocked: nothing is changed until the points above are settled.";
  if (all.outlook == Outlook::provable)
    return all.changes ? "p2pctl apply proves P2P first; where that passes, only upkeep is changed."
                       : "p2pctl apply proves P2P; there is nothing to change.";
  return all.changes ? "p2pctl apply makes these changes; p2pctl revert undoes them." : "Nothing to do.";
}

/// Prints the diff of each file, with the content that it ends with.
void print_files(const PlanPreview& all) {
  std::map<std::string, std::string> files;
  for (const Preview& preview : all.steps)
    for (const Change& change : preview.changes)
      for (const Description::File& file : change.description.files) files[file.path] = file.content;
  if (!files.empty()) fmt::print("\n{}\n", paint(Colour::bold, "Files"));
  for (const auto& [path, content] : files) fmt::print("{}", unified_diff(path, current(all.host, path), content));
}

/// Prints every check and every change, in the plan's order.
void print_diff(const PlanPreview& all) {
  fmt::print("{}  {}\n\n", paint(Colour::bold, all.plan.name), harmless(all.plan.title));
  for (const Preview& preview : all.steps) {
    print_table({row_of(preview.standing, all.seen)});
    for (const Change& change : preview.changes) print_change(change, all.reboots_for(preview, change));
    if (!preview.obstacle.empty())
      print_table({{"  ", preview.blocked ? paint(Colour::red, "blocked") : paint(Colour::yellow, "waits for"),
                    preview.obstacle}});
    if (preview.blocked) print_table({{"  ", paint(Colour::bold, "next"), preview.next}});
  }
  if (!all.ends.empty())
    print_table({{"  ", paint(Colour::yellow, "ends"), fmt::format("{}", fmt::join(all.ends, ", "))}});
  for (const Step& step : all.plan.steps)
    if (step.kind == StepKind::alternative && step.tried == Tried::no)
      print_table({{"  ", paint(Colour::blue, "if the proof fails"), step.title}});
  print_files(all);
  fmt::print("\n{}  Reboots: {} expected, {} at most.\n", paint(Colour::bold, verdict_text(all)),
             to_string(all.reboots), all.plan.policy.reboots);
}

/// Prints the plan of another machine.
Result<void> print_plan_there(const Options& options) {
  std::vector<std::string> words = {"p2pctl", "plan"};
  if (!options.plan.empty()) words.push_back(options.plan);
  const CommandResult there = TRY(ProcessRunner().run({on_host(options.host, words)}));
  fmt::print("{}", harmless(there.output));
  if (there.status == kDone || there.status == kBlocked) return {};
  return fail(ErrorCode::io, fmt::format("\"p2pctl plan\" on {} ends with {}", options.host, there.status),
              "\"p2pctl apply --yes -H HOST\" does not ask for it");
}

}  // namespace

Result<bool> wants_changes(const Context& context) {
  const Options& options = context.options;
  if (options.yes) return true;
  TRY(require_consent(options));
  if (!options.host.empty()) {
    TRY(print_plan_there(options));
    return said_yes(options, "Apply this?");
  }
  const auto host = TRY(context.host_of_plan());
  const PlanPreview all(TRY(context.plan(*host)), context.registry, *host);
  if (!all.changes && !all.blocked) return true;
  print_screen(all);
  return said_yes(options, all.blocked ? "Start it? It waits until that is settled." : "Apply this?");
}

Result<int> show_plan(const Context& context) {
  const auto host = TRY(context.host_of_plan());
  const bool in_turn = context.options.diff || context.options.json;
  const PlanPreview all(TRY(context.plan(*host)), context.registry, *host, in_turn);
  if (context.options.json)
    print_json("p2pd.plan-preview/1", to_json(all));
  else
    context.options.diff ? print_diff(all) : print_screen(all);
  if (all.blocked) return kBlocked;
  const bool settled = all.outlook == Outlook::ready || all.outlook == Outlook::limited;
  return context.options.detailed_exitcode && (all.changes || !settled) ? kChanges : kDone;
}

}  // namespace p2pd::ctl
