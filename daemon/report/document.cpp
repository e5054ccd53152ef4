// SPDX-License-Identifier: MIT
// Content of a report: the answers that a person needs first, from status, history, diagnosis and measurements.
#include "report/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/json_struct.hpp"
#include "engine/journal.hpp"
#include "machine/boot/mounts.hpp"
#include "plan/plan.hpp"
#include "record/private_words.hpp"
#include "record/record_files.hpp"
#include "record/redact.hpp"
#include "report/proof.hpp"

namespace p2pd {

using ctl::OperatorAction;
using ctl::ReportedChange;

template <>
constexpr auto kFields<OperatorAction> = std::tuple(field("step", &OperatorAction::step),
                                                    field("seen", &OperatorAction::seen),
                                                    field("next", &OperatorAction::next));
template <>
constexpr auto kFields<ReportedChange> = std::tuple(field("run", &ReportedChange::run),
                                                    field("step", &ReportedChange::step),
                                                    field("summary", &ReportedChange::summary),
                                                    field("cost", &ReportedChange::cost),
                                                    field("reboot", &ReportedChange::reboot),
                                                    field("files", &ReportedChange::files),
                                                    field("packages", &ReportedChange::packages));

namespace ctl {
namespace {

using nlohmann::json;

/// Titles and reasons of steps by id, from the first plan that has the step; empty if none has it.
class PlanWords {
 public:
  explicit PlanWords(const std::vector<Plan>& plans) {
    for (const Plan& plan : plans)
      for (const Step& step : plan.steps) words_.try_emplace(step.id, step.title, step.why);
  }
  std::string title(const std::string& step) const { return of(step).first; }
  std::string why(const std::string& step) const { return of(step).second; }

 private:
  using Words = std::pair<std::string, std::string>;
  Words of(const std::string& step) const {
    const auto found = words_.find(step);
    return found == words_.end() ? Words() : found->second;
  }

  std::map<std::string, Words> words_;
};

/// Text of a journal event; null: another event has the same meaning.
struct Word {
  const char* type;
  const char* words;
};
constexpr Word kWords[] = {
    {"begun", "the run begins"},
    {"boot", "boot"},
    {"unexpected-boot", "unexpected boot"},
    {"fixed", "fix applied"},
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

/// Keys `runs`, `changes`, `events` and `looks` of a report, from a history. Boots are numbered, the oldest is 1.
/// Runs without changes, as at every boot, are counted in `looks`; the newest run is always included.
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

struct Headline {
  const char* state;  ///< state of a run, or result of an idle one
  const char* tone;   ///< good, warn, bad; open: no verdict yet
  const char* headline;
};
constexpr Headline kHeadlines[] = {
    {"ready", "good", "Ready: P2P is proven"},
    {"limited", "warn", "Limited: P2P works for less than the plan wants"},
    {"blocked", "warn", "Blocked: a person is needed"},
    {"failed", "bad", "Failed"},
    {"reverted", "open", "Reverted: this machine is as it was found"},
    {"cancelled", "open", "Cancelled: what the run changed is undone"},
    {"done", "good", "Every step of the plan holds"},
    {"walking", "open", "A run is under way"},
    {"rebooting", "open", "A run waits for a restart"},
    {"paused", "open", "A run is paused"},
    {"reverting", "open", "Being undone"},
};

json verdict_of_run(const json& status) {
  const std::string state = text_of(status, "state"), result = text_of(status, "result");
  json verdict = {{"state", state},
                  {"tone", "open"},
                  {"headline", state},
                  {"text", text_of(status, "reason")},
                  {"next", text_of(status, "next")}};
  if (state == "idle" && (result == "ready" || result == "limited")) {
    verdict["tone"] = "warn";
    verdict["headline"] = "Proven, but not on this boot";
    return verdict;
  }
  const std::string& key = state == "idle" ? result : state;
  const auto word = std::ranges::find_if(kHeadlines, [&](const Headline& w) { return key == w.state; });
  if (word == std::end(kHeadlines)) return verdict;
  verdict["tone"] = word->tone;
  verdict["headline"] = word->headline;
  return verdict;
}

/// Headline if the plan does not hold; empty if not known.
std::string headline_of(const Sources& sources) {
  const std::string outlook = text_of(sources.diagnosis, "outlook");
  if (text_of(field_of(sources.diagnosis, "conclusion"), "verdict") != "fail") return {};
  if (outlook == "impossible") return "P2P is not possible with this hardware";
  if (const std::size_t things = sources.actions.size(); things > 0)
    return fmt::format("P2P does not work: you must fix {} thing{}", things, things == 1 ? "" : "s");
  return outlook == "fixable" ? "P2P does not work; p2pd can fix it" : "P2P cannot work as this machine is";
}

json verdict_of_diagnosis(const Sources& sources) {
  const json& diagnosis = sources.diagnosis;
  const json& conclusion = field_of(diagnosis, "conclusion");
  json verdict = {{"state", "diagnosed"},
                  {"tone", "open"},
                  {"headline", "Nothing is known"},
                  {"text", ""},
                  {"next", text_of(diagnosis, "next")}};
  if (flag_of(diagnosis, "proven")) {
    verdict["tone"] = "good";
    verdict["headline"] = "P2P is proven between every pair of GPUs";
  } else if (text_of(diagnosis, "outlook") == "limited") {
    verdict["tone"] = "warn";
    verdict["headline"] = "P2P works for less than the plan wants";
    verdict["text"] = text_of(conclusion, "summary");
  } else if (flag_of(diagnosis, "holds") || text_of(diagnosis, "outlook") == "provable") {
    verdict["headline"] = "Nothing is in the way; P2P is not proven yet";
  } else if (conclusion.is_object()) {
    const std::string headline = headline_of(sources);
    verdict["tone"] = headline.empty() ? "warn" : "bad";
    verdict["headline"] = headline.empty() ? "Whether P2P works is unknown" : headline;
    verdict["text"] = text_of(conclusion, "summary");
    if (!sources.actions.empty())
      verdict["next"] = text_of(diagnosis, "outlook") == "impossible" ? "" : "\"sudo p2pctl apply\"";
  }
  return verdict;
}

/// Actions of the operator: those of the diagnosis, or the next one of each step that stopped the run.
json actions_of(const Sources& sources, bool ran) {
  std::vector<OperatorAction> actions = ran ? std::vector<OperatorAction>() : sources.actions;
  for (const json& step : list_of(sources.status, "steps"))
    if (const std::string status = text_of(step, "status"); ran && (status == "blocked" || status == "failed"))
      actions.push_back({text_of(step, "id"), text_of(step, "summary"), text_of(step, "next")});
  std::erase_if(actions, [](const OperatorAction& action) { return action.next.empty(); });
  return JsonWriter::json(actions);
}

// ---- causes of a missing proof --------------------------------------------------------------------------------------

json cause_of(const json& finding, const std::string& step, const PlanWords& words) {
  json cause = {{"step", step}, {"title", words.title(step)}, {"why", words.why(step)}, {"evidence", json::array()}};
  for (const char* key : {"verdict", "summary", "next", "obstacle"}) cause[key] = text_of(finding, key);
  for (const json& seen : list_of(finding, "evidence"))
    cause["evidence"].push_back({{"source", text_of(seen, "source")}, {"value", text_of(seen, "value")}});
  return cause;
}

bool is_failing(const json& finding) {
  return text_of(finding, "verdict") == "fail" || text_of(finding, "verdict") == "unknown";
}

/// Failing steps from the run's findings and the diagnosis, in the order of the plan; those with verdict unknown are
/// last.
json causes_of(const Sources& sources, const PlanWords& words) {
  json causes = json::array();
  const std::string gate = text_of(field_of(sources.diagnosis, "conclusion"), "step");
  if (!gate.empty()) causes.push_back(cause_of(field_of(sources.diagnosis, "conclusion"), gate, words));
  const std::string outlook = text_of(sources.diagnosis, "outlook");
  const bool in_the_way = outlook != "ready" && outlook != "provable";
  for (const json& step : list_of(sources.diagnosis, "steps")) {
    const std::string standing = text_of(step, "standing");
    if (in_the_way && text_of(step, "step") != gate && (standing == "blocked" || standing == "fixable"))
      causes.push_back(cause_of(step, text_of(step, "step"), words));
  }
  const json& run = item_of(list_of(sources.history, "runs"), 0);
  std::map<std::string, const json*> findings;
  for (const json& step : list_of(run, "steps")) findings[text_of(step, "step")] = &field_of(step, "finding");
  const bool ready = text_of(sources.status, "state") == "ready";  // a gate that fails now did not prevent the proof
  for (const json& step : list_of(sources.status, "steps")) {
    const std::string id = text_of(step, "id");
    if (ready || !is_failing(step)) continue;
    const auto whole = findings.find(id);
    causes.push_back(cause_of(whole == findings.end() ? step : *whole->second, id, words));
  }
  std::stable_partition(causes.begin(), causes.end(),
                        [](const json& cause) { return text_of(cause, "verdict") == "fail"; });
  return causes;
}

json steps_of(const Sources& sources, const PlanWords& words) {
  json steps = json::array();
  const bool ran = !list_of(sources.status, "steps").empty();
  for (const json& step : ran ? list_of(sources.status, "steps") : list_of(sources.diagnosis, "steps")) {
    const std::string id = text_of(step, ran ? "id" : "step");
    const bool looked_at = ran || !text_of(step, "summary").empty();
    steps.push_back({{"id", id},
                     {"title", words.title(id).empty() ? text_of(step, "title") : words.title(id)},
                     {"verdict", looked_at ? text_of(step, "verdict") : ""},
                     {"status", text_of(step, ran ? "status" : "standing")},
                     {"summary", text_of(step, "summary")}});
  }
  return steps;
}

/// Files, packages and cost of the changes in place, added to `changes`; those of older runs as changes of their own.
void add_in_place(json& changes, const Sources& sources, const PlanWords& words) {
  for (json& change : changes) {
    const std::string step = text_of(change, "step");
    change.update(JsonWriter::json(ReportedChange{.step = step}));
  }
  for (const ReportedChange& kept : sources.in_place) {
    auto change = std::ranges::find_if(changes, [&](const json& one) {
      return text_of(one, "step") == kept.step && text_of(one, "status") != "reverted" && one["run"] == 0;
    });
    if (change == changes.end()) {
      changes.push_back({{"title", words.title(kept.step)}, {"why", words.why(kept.step)}, {"status", "fixed"}});
      change = std::prev(changes.end());
    }
    change->update(JsonWriter::json(kept));
  }
}

/// Changes that apply would make, in order.
json planned_of(const Sources& sources, const PlanWords& words) {
  json planned = json::array();
  for (const ReportedChange& change : sources.planned) {
    planned.push_back(JsonWriter::json(change));
    planned.back()["title"] = words.title(change.step);
  }
  return planned;
}

// ---- redaction ------------------------------------------------------------------------------------------------------

/// Replaces each `part`, unless it is too short to identify one machine.
void replace_all(std::string& text, const std::string& part, std::string_view by) {
  if (part.size() < 8) return;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size()))
    text.replace(at, part.size(), by);
}

/// Replaces the word after, or before, each `mark`.
void replace_word_behind(std::string& text, std::string_view mark, std::string_view by) {
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + mark.size())) {
    const std::size_t word = at + mark.size();
    text.replace(word, std::min(text.find_first_of(" ,;.)", word), text.size()) - word, by);
  }
}
void replace_word_before(std::string& text, std::string_view mark, std::string_view by) {
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::size_t blank = at == 0 ? std::string::npos : text.rfind(' ', at - 1);
    const std::size_t word = blank == std::string::npos ? 0 : blank + 1;
    text.replace(word, at - word, by);
    at = word + by.size();
  }
}

std::string redacted(std::string text, const Identity& identity) {
  replace_all(text, identity.machine_id, "removed");
  for (const std::string_view kind : {"GPU-", "MIG-"}) {  // the rest of such an id is a UUID
    for (std::size_t at = text.find(kind); at != std::string::npos; at = text.find(kind, at + kind.size())) {
      const std::size_t id = at + kind.size();
      text.replace(id, 36, without_ids(text.substr(id, 36)));
    }
  }
  for (const char* kind : {"container lxc ", "container machine "}) replace_word_behind(text, kind, "name");
  replace_word_before(text, " (process ", "process");
  return without_private_words(public_prose(without_unit_names(std::move(text))), identity);
}

/// Evidence in the syntax of its source keeps what a record of that source keeps.
std::string public_evidence(const std::string& source, std::string seen) {
  if (source == "/proc/cmdline" || source == "Kernel arguments") return public_arguments(seen);
  if (seen.starts_with("ExecStart=")) return unit_excerpt(seen);
  const std::size_t end =
      source == kMountInfo ? seen.rfind(" at /") : std::string::npos;  // "/boot is on ext4 DEVICE at /"
  if (const std::size_t blank = end == 0 ? end : seen.rfind(' ', end - 1); end < seen.size() && blank < end)
    return seen.replace(blank + 1, end - blank - 1, public_device(seen.substr(blank + 1, end - blank - 1)));
  const std::size_t process = source.starts_with("/proc/") && source.ends_with("/fd") ? seen.find(": ") : 0;
  return process == std::string::npos ? seen : seen.replace(0, process, process == 0 ? "" : "process");
}

}  // namespace

json report_document(const Sources& sources) {
  const PlanWords words(sources.plans);
  const bool ran = number_of(sources.status, "run").value_or(0) > 0;
  const std::optional<ProofPart> proof = proof_of(sources);
  json document = {
      {"schema", kReportSchema},
      {"version", P2PD_VERSION},
      {"made", sources.made},
      {"redacted", false},
      {"notes", sources.notes},
      {"verdict", ran ? verdict_of_run(sources.status) : verdict_of_diagnosis(sources)},
      {"actions", actions_of(sources, ran)},
      {"machine", {{"text", text_of(sources.machine, "text")}, {"emulated", text_of(sources.machine, "emulated")}}},
      {"ran", ran},
      {"plan", ran ? text_of(sources.status, "plan") : text_of(sources.diagnosis, "plan")},
      {"causes", causes_of(sources, words)},
      {"planned", planned_of(sources, words)},
      {"steps", steps_of(sources, words)},
      {"proof", proof ? json_of(*proof) : json()},
      {"pairs", pairs_with(sources.machine, proof)},
      {"before", before_of(sources.baseline)},
      {"soak", sources.soak ? json_of(*sources.soak) : json()},
      {"numbers", numbers_of(sources, proof)}};
  for (const char* key : {"environment", "gpus", "topology"}) document[key] = list_of(sources.machine, key);
  document.update(timeline_of(sources.history, words));
  add_in_place(document["changes"], sources, words);
  return document;
}

void redact(json& document, const Identity& identity) {
  json& environment = document["environment"];
  std::erase_if(environment.get_ref<json::array_t&>(), [](const json& row) {
    return text_of(row, "name") == "Host name" || text_of(row, "name") == "Machine id";
  });
  const std::function<void(json&)> visit = [&](json& value) {
    if (value.is_string()) {
      value = redacted(value.get<std::string>(), identity);
    } else if (value.is_structured()) {
      for (json& inner : value) visit(inner);
    }
    if (value.is_object() && value.contains("value") && value["value"].is_string())
      value["value"] =
          public_evidence(text_of(value, value.contains("source") ? "source" : "name"), text_of(value, "value"));
  };
  visit(document);
  document["redacted"] = true;
}

}  // namespace ctl
}  // namespace p2pd
