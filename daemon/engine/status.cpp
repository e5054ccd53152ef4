// SPDX-License-Identifier: MIT
#include "engine/status.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "base/root.hpp"
#include "machine/driver/ready.hpp"
#include "plan/plan.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

constexpr std::size_t kStatusLimit = 4U << 20;
constexpr std::size_t kPageLimit = 2U << 20;  // for the runs in a page of history: the bus rejects a message of 32 MiB
constexpr int kEventsOfRun = 10;              // average per run in a page
constexpr const char* kNotProven = "P2P was proven, but not on this boot, or not with what is here now";

bool holds(const json& finding) {
  const std::string verdict = finding.value("verdict", "");
  return verdict == "pass" || verdict == "not_applicable";
}

/// Step of the resolved plan with its recorded state.
json step_of(const json& step, const std::map<std::string, StepRecord>& known) {
  std::string kind;
  for (const StepKind known_kind : kStepKinds)
    if (step.contains(to_string(known_kind))) kind = to_string(known_kind);
  json out = {{"id", step.value(kind, "")},
              {"title", step.value("title", "")},
              {"kind", kind},
              {"fix", step.value("fix", "")},
              {"status", to_string(StepStatus::waiting)},
              {"verdict", ""},
              {"summary", ""},
              {"obstacle", ""},
              {"next", ""}};
  const auto record = known.find(out["id"].get<std::string>());
  if (record == known.end()) return out;
  const json& finding = record->second.finding;
  out["status"] = to_string(record->second.status);
  for (const char* key : {"verdict", "summary", "obstacle", "next"})
    if (finding.is_object()) out[key] = finding.value(key, "");
  const bool failing = out["verdict"] == to_string(Verdict::fail) || out["verdict"] == to_string(Verdict::unknown);
  if (failing && out["next"] == "") out["next"] = step.value("operator", "");
  return out;
}

/// Addresses of the GPUs of a proof by their peer groups; empty if it tells none.
json groups_of(const json& report) {
  json groups = json::object();
  for (const json& gpu : field_of(report, "gpus"))
    if (const json& group = field_of(gpu, "group"), &address = field_of(gpu, "address");
        group.is_string() && group != "" && address.is_string())
      groups[group_label(group)].push_back(address);
  return groups;
}

std::size_t size_of(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace).size();
}

/// Status without a run; undo records outlast a lost journal.
json nothing_yet(const std::filesystem::path& state) {
  const Result<Root> root = Root::open(state);
  const auto files = root ? root->list("/undo").value_or(std::vector<std::string>()) : std::vector<std::string>();
  const bool lost = std::ranges::any_of(files, [](const std::string& file) { return file.ends_with(".json"); });
  Run run;
  run.reason =
      lost ? "the record of runs is lost, and their changes are not undone" : "nothing has run on this machine yet";
  json status = status_of(run, {});
  if (lost) status["next"] = "\"sudo p2pctl revert\" undoes them";
  return status;
}

/// Run with its steps. If it is larger than a page, its findings are reduced to verdicts.
Result<json> entry_of(const Journal& journal, const Run& run) {
  json entry = to_json(run);
  for (const StepRecord& step : TRY(journal.steps(run.id))) entry["steps"].push_back(to_json(step));
  if (size_of(entry) > kPageLimit)
    for (json& step : entry["steps"]) step["finding"] = verdict_of(step["finding"]);
  return entry;
}

/// Next steps of the blocked and failed steps of a status, each once, as sentences.
std::string instructions(const json& steps) {
  std::string text;
  for (const json& step : steps) {
    const std::string sentence = step["next"].is_string() ? step["next"].get<std::string>() : "";
    const bool stuck =
        step["status"] == to_string(StepStatus::blocked) || step["status"] == to_string(StepStatus::failed);
    if (stuck && !sentence.empty() && text.find(sentence) == text.npos)
      text += sentence + (sentence.ends_with('.') ? " " : ". ");
  }
  return text;
}

}  // namespace

std::string finish_command(const Run& run) {
  return run.rollback == Rollback::all ? "\"sudo p2pctl revert\" undoes the rest"
                                       : fmt::format("\"sudo p2pctl apply {}\" finishes the rollback", run.plan);
}

std::string next_command(const Run& run, const std::string& instruction) {
  switch (run.state) {
    case RunState::blocked:
      return (instruction.empty() ? "Resolve that. " : instruction) +
             "Then \"sudo p2pctl retry\"; the run also continues at the next boot";
    case RunState::rebooting: return "reboot; it continues by itself";
    case RunState::reverting: return run.reboot_due ? "reboot; it continues by itself" : finish_command(run);
    case RunState::paused: return "\"sudo p2pctl resume\" continues, \"sudo p2pctl cancel\" undoes";
    case RunState::failed: return instruction + "\"p2pctl history --all\" shows every step of it";
    case RunState::walking: return "\"sudo p2pctl apply\" continues";
    case RunState::limited:
      return "\"p2pctl status --json\" shows what is not fit, and why; \"p2pctl is-ready --for USE\" asks for one use";
    default: return "";
  }
}

json status_of(const Run& run, const std::map<std::string, StepRecord>& steps, const Activity& activity) {
  const json plan = run.resolved.empty() ? json::object() : parse_json(run.resolved);
  json list = json::array();
  int done = 0, total = 0;
  std::string title;
  for (const json& step : plan.is_object() ? plan.value("steps", json::array()) : json::array()) {
    json known = step_of(step, steps);
    const bool counts = known["kind"] == to_string(StepKind::gate) || known["kind"] == to_string(StepKind::goal);
    if (!counts && known["verdict"] == "" && known["summary"] == "") continue;  // not needed so far
    total += counts ? 1 : 0;
    done += counts && (holds(known) || is_proven(run.state)) ? 1 : 0;
    if (known["id"] == activity.step) title = known["title"];
    list.push_back(std::move(known));
  }
  json fit_for = json::array(), groups = json::object(), undone = json::array(), stays = json::array();
  for (const RunChanges& changes : run.stays) stays.push_back(to_json(changes));
  for (const auto& [id, step] : steps) {
    if (step.status == StepStatus::reverted) undone.push_back(id);
    if (!is_proven(run.state) || !step.finding.contains("fit_for")) continue;
    fit_for = step.finding["fit_for"];
    groups = groups_of(field_of(step.finding, "facts"));
  }
  return {{"schema", kStatusSchema},
          {"version", P2PD_VERSION},
          {"run", run.id},
          {"plan", run.plan},
          {"title", plan.is_object() ? plan.value("title", "") : ""},
          {"state", to_string(run.state)},
          {"result", run.result},
          {"reason", run.reason},
          {"next", next_command(run, instructions(list))},
          {"started", run.started},
          {"ended", run.ended},
          {"reboots", run.reboots},
          {"reboots_at_most", plan.is_object() ? json_number<int>(plan.value("policy", json()), "reboots") : 0},
          {"reboot_required", run.state == RunState::rebooting || (run.state == RunState::reverting && run.reboot_due)},
          {"fit_for", std::move(fit_for)},
          {"groups", std::move(groups)},
          {"undone", std::move(undone)},
          {"stays", std::move(stays)},
          {"at_work", activity.at_work},
          {"step", {{"id", activity.step}, {"title", title}, {"doing", activity.doing}, {"since", activity.since}}},
          {"progress",
           {{"percent", total == 0 ? 0 : 100 * done / total},
            {"message", activity.message},
            {"done", done},
            {"total", total}}},
          {"steps", std::move(list)}};
}

Result<json> status_in_journal(const std::filesystem::path& state, bool proven) {
  const Result<Journal> journal = Journal::open(state, Journal::Access::read);
  if (!journal && journal.error().code == ErrorCode::not_found) return nothing_yet(state);
  if (!journal) return Failure(journal.error());
  std::optional<Run> run = TRY(journal->last_run());
  if (!run) return nothing_yet(state);
  if (is_proven(run->state) && !proven) {
    run->state = RunState::idle;
    run->reason = kNotProven;
  }
  std::map<std::string, StepRecord> known;
  for (StepRecord& step : TRY(journal->steps(run->id))) known[step.step] = std::move(step);
  return status_of(*run, known);
}

Result<json> current_status(const std::filesystem::path& state) {
  const Root root = TRY(Root::open("/"));
  const bool proven = root.exists(ready_file()) || root.exists(limited_file());
  const auto text = root.read(status_file(), kStatusLimit);
  if (text) {
    json status = parse_json(*text);
    if (status.is_object() && status.value("schema", "") == kStatusSchema) {
      const json word = status.value("state", json());
      const std::optional<RunState> told = word.is_string() ? run_state(word.get<std::string>()) : std::nullopt;
      if (told && is_proven(*told) && !proven) {
        status["state"] = to_string(RunState::idle);
        status["reason"] = kNotProven;
        status["fit_for"] = json::array();
      }
      return status;
    }
  }
  return status_in_journal(state, proven);
}

Result<json> history_in_journal(const std::filesystem::path& state, int count, std::int64_t before) {
  json history = {{"schema", "p2pd.history/1"}, {"runs", json::array()}, {"events", json::array()}, {"before", 0}};
  const Result<Journal> journal = Journal::open(state, Journal::Access::read);
  if (!journal && journal.error().code == ErrorCode::not_found) return history;
  if (!journal) return Failure(journal.error());
  std::size_t size = 0;
  std::int64_t first = before, last = 0;
  for (;;) {
    const std::vector<Run> older = TRY(journal->runs(1, first));
    if (older.empty()) break;
    json entry = TRY(entry_of(*journal, older.front()));
    size += size_of(entry);
    if (last != 0 && (size > kPageLimit || history["runs"].size() == static_cast<std::size_t>(count))) {
      history["before"] = first;
      break;
    }
    first = older.front().id;
    last = std::max(last, first);
    history["runs"].push_back(std::move(entry));
  }
  std::vector<JournalEvent> events = TRY(journal->events(first, last, kEventsOfRun * count));
  size = 0;
  const auto fits = [&](const JournalEvent& event) { return (size += size_of(to_json(event))) <= kPageLimit; };
  events.erase(events.begin(), std::find_if_not(events.rbegin(), events.rend(), fits).base());
  for (const JournalEvent& event : events) history["events"].push_back(to_json(event));
  return history;
}

std::string status_file() { return runtime_directory() + "/status.json"; }

}  // namespace p2pd
