// SPDX-License-Identifier: MIT
#include "report/timeline.hpp"

#include <algorithm>
#include <set>

#include "base/json_members.hpp"
#include "engine/journal.hpp"
#include "plan/plan.hpp"
#include "report/fields.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

/// Text of a journal event; null: another event has the same meaning.
struct Word {
  const char* type;
  const char* words;
};
constexpr Word kWords[] = {
    {"begun", "the run begins"},
    {"boot", "boot"},
    {"unexpected-boot", "unexpected boot"},
    {"fixed", "made so"},
    {"fix-failed", "the fix failed"},
    {"left-to-reboot", "left to the reboot"},
    {"warning", "warning"},
    {"crashed", "crashed the machine"},
    {"escalated", "an alternative is tried"},
    {"reboot-due", "restart"},
    {"committed", "made permanent"},
    {"commit-failed", "not made permanent"},
    {"proof", "proof"},
    {"undone", "undone"},
    {"blocker", "blocked"},
    {"failure", "failed"},
    {"give-back", "failed: what the run changed is undone"},
    {"given-back", "undone after the failure"},
    {"reverted", "undone, as asked"},
    {"proven-again", "what was proven before is proven again"},
    {"hooks", "hooks ran"},
    {"not-idle", "the machine is restarted although it is in use"},
    {"settled", "every step holds"},
    {"proven", "ready"},
    {"in-part", "limited"},
    {"pause", "paused"},
    {"resume", "goes on"},
    {"retry", "tried again"},
    {"cancel", "cancelled"},
    {"revert", "to be undone"},
    {"stopped", "stopped"},
    {"abandoned", "ended: p2pd was removed and installed again"},
    {"chosen", nullptr},
    {"fixing", nullptr},
    {"trial", nullptr},
    {"held", nullptr},
    {"proving", nullptr},
    {"proving-again", nullptr},
    {"committing", nullptr},
    {"undoing", nullptr},
    {"apply", nullptr},
    {"go-on", nullptr},
    {"superseded", nullptr},
};
constexpr const char* kChange[] = {"fixed", "fix-failed", "undone", "committed", "crashed", "escalated"};

std::int64_t run_of(const json& event, const char* key) {
  const json& run = field_of(event, key);
  return json_number<std::int64_t>(run).value_or(0);
}

json runs_of(const json& history) {
  json runs = json::array();
  for (const json& run : list_of(history, "runs")) {
    json row = {{"id", run_of(run, "id")}, {"reboots", run_of(run, "reboots")}};
    for (const char* key : {"plan", "state", "result", "reason", "started", "ended"}) row[key] = text_of(run, key);
    runs.push_back(std::move(row));
  }
  return runs;
}

/// Steps of a run in the order of its events.
std::vector<std::string> order_of(const json& history, std::int64_t run) {
  std::vector<std::string> order;
  for (const json& event : list_of(history, "events")) {
    const std::string step = text_of(event, "step");
    if (run_of(event, "run") == run && std::ranges::find(order, step) == order.end()) order.push_back(step);
  }
  return order;
}

/// Changes that the newest run with changes made or undid.
json changes_of(const json& history, const PlanWords& words) {
  json changes = json::array();
  for (const json& run : list_of(history, "runs")) {
    for (const json& step : list_of(run, "steps")) {
      const std::string id = text_of(step, "step"), status = text_of(step, "status");
      if (!has_changed(step_status(status))) continue;
      changes.push_back({{"step", id}, {"title", words.title(id)}, {"why", words.why(id)}, {"status", status}});
    }
    if (changes.empty()) continue;
    const std::vector<std::string> order = order_of(history, run_of(run, "id"));
    std::ranges::stable_sort(changes.get_ref<json::array_t&>(), {}, [&](const json& change) {
      return std::ranges::find(order, text_of(change, "step")) - order.begin();
    });
    break;
  }
  return changes;
}

std::set<std::int64_t> runs_that_changed(const json& history) {
  std::set<std::int64_t> runs;
  if (const json& newest = item_of(list_of(history, "runs"), 0); newest.is_object()) runs.insert(run_of(newest, "id"));
  for (const json& event : list_of(history, "events"))
    if (std::ranges::find(kChange, text_of(event, "type")) != std::end(kChange)) runs.insert(run_of(event, "run"));
  return runs;
}

}  // namespace

PlanWords::PlanWords(const json& plans) {
  for (const json& plan : plans)
    for (const json& step : list_of(plan, "steps"))
      for (const StepKind kind : kStepKinds)
        if (const std::string id = text_of(step, std::string(to_string(kind)).c_str()); !id.empty())
          words_.try_emplace(id, text_of(step, "title"), text_of(step, "why"));
}

std::string PlanWords::title(const std::string& step) const {
  const auto found = words_.find(step);
  return found == words_.end() ? std::string() : found->second.first;
}

std::string PlanWords::why(const std::string& step) const {
  const auto found = words_.find(step);
  return found == words_.end() ? std::string() : found->second.second;
}

json timeline_of(const json& history, const PlanWords& words) {
  const std::set<std::int64_t> told = runs_that_changed(history);
  std::map<std::string, int> boots;
  json events = json::array();
  for (const json& event : list_of(history, "events")) {
    const std::string type = text_of(event, "type"), step = text_of(event, "step");
    const int boot = boots.emplace(text_of(event, "boot_id"), static_cast<int>(boots.size()) + 1).first->second;
    const auto word = std::ranges::find_if(kWords, [&](const Word& w) { return type == w.type; });
    if (!told.contains(run_of(event, "run")) || (word != std::end(kWords) && word->words == nullptr)) continue;
    const bool names_boot = type == "boot" || type == "unexpected-boot";  // the text of the event is the boot id
    events.push_back({{"time", text_of(event, "time")},
                      {"run", run_of(event, "run")},
                      {"boot", boot},
                      {"type", type},
                      {"what", word == std::end(kWords) ? type : word->words},
                      {"step", step},
                      {"title", words.title(step)},
                      {"text", names_boot ? "" : text_of(event, "text")}});
  }
  const std::size_t runs = list_of(history, "runs").size();
  return {{"runs", runs_of(history)},
          {"changes", changes_of(history, words)},
          {"events", std::move(events)},
          {"looks", runs - std::min(runs, told.size())}};
}

}  // namespace p2pd::ctl
