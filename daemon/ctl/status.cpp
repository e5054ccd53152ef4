// SPDX-License-Identifier: MIT
// p2pctl status, history and is-ready.
#include "ctl/service.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "engine/status.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

/// "fixing driver-build: CC nvidia.o"; empty: nothing is done now.
std::string activity(const json& status) {
  if (!status.value("at_work", false)) return "";
  const json& step = field_of(status, "step");
  std::string line = text_of(step, "doing");
  if (line.empty()) return "";  // between two steps
  if (const std::string id = text_of(step, "id"); !id.empty()) line += " " + id;
  if (const std::string message = text_of(field_of(status, "progress"), "message"); !message.empty())
    line += ": " + message;
  return line;
}

std::string listed(const json& object, const char* key) {
  return fmt::format("{}", fmt::join(json_texts(object, key), ", "));
}

/// Rows about a rollback: the undone steps, and the changes in place of other runs.
std::vector<std::vector<std::string>> changes_in_place(const json& status) {
  const std::string undone = listed(status, "undone");
  if (undone.empty()) return {};
  std::vector<std::vector<std::string>> rows = {{"undone", undone}};
  for (const json& run : status.value("stays", json::array()))
    rows.push_back({"stays", fmt::format("run {} of plan {}: {}", json_number<std::int64_t>(run, "run"),
                                         text_of(run, "plan"), listed(run, "steps"))});
  if (rows.size() == 1) rows.push_back({"stays", "nothing is changed by p2pd"});
  for (const json& step : list_of(status, "steps"))  // files that were changed by others
    if (const std::string note = text_of(step, "summary"); text_of(step, "status") == "reverted" && !note.empty())
      rows.push_back({"note", note});
  return rows;
}

/// Prints what the operator must do, numbered as `doctor` does, and the command that goes on after it.
void print_tasks(const json& status) {
  std::vector<std::pair<std::string, std::string>> tasks;  // what is wrong, what to do: once each
  for (const json& step : list_of(status, "steps")) {
    if (text_of(step, "status") != to_string(StepStatus::blocked)) continue;
    const std::string next = text_of(step, "next"), obstacle = text_of(step, "obstacle");
    if (std::ranges::count(tasks, next, &std::pair<std::string, std::string>::second) == 0)
      tasks.emplace_back(obstacle.empty() ? text_of(step, "id") + ": " + text_of(step, "summary") : obstacle, next);
  }
  Rows rows;
  for (const auto& [wrong, next] : tasks) {
    rows.push_back({fmt::format("{}.", rows.size() / 2 + 1), wrong});
    rows.push_back({"", paint(Colour::bold, next.empty() ? "Resolve that." : next)});
  }
  print_table(rows);
  const std::string next = text_of(status, "next");
  print_line(next.substr(rows.empty() ? 0 : std::min(next.size(), next.rfind("Then "))));
}

}  // namespace

std::string mark_of(const json& step) {
  const std::string verdict = text_of(step, "verdict"), status = text_of(step, "status");
  const bool stuck = status == to_string(StepStatus::blocked) || status == to_string(StepStatus::failed);
  if (verdict == to_string(Verdict::fail) && !stuck && !text_of(step, "fix").empty()) return mark_of_planned();
  for (const Verdict known : {Verdict::pass, Verdict::fail, Verdict::not_applicable, Verdict::limited})
    if (verdict == to_string(known)) return mark(known);
  return mark(Verdict::unknown);
}

bool is_changed(const json& step) { return has_changed(step_status(text_of(step, "status"))); }

bool is_noted(const json& step) {
  return text_of(step, "verdict") == to_string(Verdict::pass) && !text_of(step, "next").empty();
}

bool at_rest(const json& status) {
  const std::string state = text_of(status, "state");
  if (state != "walking" && state != "reverting") return true;
  return !status.value("at_work", false) && (status.contains("error") || status.value("reboot_required", false));
}

/// Exit code of a verb that ended with this status.
static int exit_status(const json& status, const Ending& ending) {
  const std::string state = text_of(status, "state");
  if (state == "blocked") return kBlocked;
  if (state == "limited" && !ending.stopped && !status.contains("error")) return kLimited;
  return state == "failed" || ending.stopped || status.contains("error") ? kError : kDone;
}

/// The same of `status`: 0 only if P2P is proven on this boot, or a plan without a proof is done.
static int exit_of_question(const json& status) {
  const int code = exit_status(status, {});
  const bool reached = text_of(status, "state") == "ready" || text_of(status, "result") == "done";
  return code == kDone && !reached ? kNotReady : code;
}

int show_status(const Context& context, json status, const Ending& ending, int code) {
  const std::string state = text_of(status, "state"), result = text_of(status, "result"),
                    reason = text_of(status, "reason");
  if (ending.changed) status["changed"] = *ending.changed;
  status["exit_status"] = code;
  if (context.options.json) {
    print_json(kStatusSchema, status);
  } else {
    const Colour colour = state == "failed"                          ? Colour::red
                          : state == "blocked" || state == "limited" ? Colour::yellow
                                                                     : Colour::green;
    const bool same = json_number<std::uint64_t>(status, "run") != 0 && ending.changed == false;
    const bool told = result == "done" || result == "reverted" || result == "cancelled";
    fmt::print("{}{}{}{}\n", paint(colour, state == "idle" && told ? result : state), reason.empty() ? "" : "  ",
               harmless(reason), same ? "  (nothing changed)" : "");
    if (const std::string now = activity(status); !now.empty()) print_table({{"now", now}});
    if (status.contains("error")) print_table({{paint(Colour::red, "error"), text_of(status["error"], "message")}});
    if (const std::string uses = listed(status, "fit_for"); !uses.empty()) print_table({{"fit for", uses}});
    print_table(changes_in_place(status));
    for (const json& step : list_of(status, "steps"))
      if (is_noted(step)) print_table({{"note", text_of(step, "summary") + ". " + text_of(step, "next")}});
    const std::string next = text_of(status, "next");
    if (state == "blocked")
      print_tasks(status);
    else if (!next.empty() && !status.value("at_work", false))
      print_table({{"next", next}});
  }
  return code;
}

int print_status(const Context& context, const json& status, const Ending& ending) {
  return show_status(context, status, ending, exit_status(status, ending));
}

/// Prints the answer of `status`; returns its exit code.
static int answer(const Context& context, const json& status) {
  return show_status(context, status, {}, exit_of_question(status));
}

Result<int> status(const Context& context) {
  const Options& options = context.options;
  if (!options.watch && !options.wait) return answer(context, TRY(known_status(context)));
  if (!over_the_bus(options))
    return fail(ErrorCode::invalid, "--watch and --wait need the service",
                "it runs where systemd does, and for the running system only");
  Service service = TRY(Service::open(options));
  const Result<json> seen = follow(service, context, [&](const json& now) {
    const bool restarts = at_rest(now) && now.value("reboot_required", false);
    return restarts ? options.watch : options.wait && at_rest(now);
  });
  if (!seen && options.watch && seen.error().code == ErrorCode::interrupted) return kDone;  // ended by the user
  const json last = TRY(Result<json>(seen));
  if (!options.watch || options.json) return options.watch ? kDone : answer(context, last);
  print_line(fmt::format("A restart is due: {}. The run continues after it; \"p2pctl status --watch\" shows it again.",
                         text_of(last, "reason")));
  return kDone;
}

Result<int> history(const Context& context) {
  const json found = TRY(known_history(context, context.options.lines));
  if (context.options.json) {
    print_json(found.value("schema", ""), found);
    return kDone;
  }
  if (list_of(found, "runs").empty()) {
    fmt::print("nothing has run on this machine yet\n");
    return kDone;
  }
  Rows rows;
  if (!context.options.all) {
    rows.push_back({"run", "began", "plan", "state", "changed", "reason"});
    for (const json& run : list_of(found, "runs")) {
      const std::string state = text_of(run, "state"), result = text_of(run, "result");
      const auto fixed = std::ranges::count_if(list_of(run, "steps"), is_changed);
      rows.push_back({fmt::format("{}", json_number<std::int64_t>(run, "id")), text_of(run, "started"),
                      text_of(run, "plan"), state == "idle" && !result.empty() ? result : state,
                      fmt::format("{} steps", fixed), text_of(run, "reason")});
    }
    print_table(rows);
    fmt::print("Every event of them: p2pctl history --all\n");
    return kDone;
  }
  for (const json& event : found.value("events", json::array()))
    rows.push_back({event.value("time", ""), fmt::format("run {}", json_number<std::int64_t>(event, "run")),
                    event.value("boot_id", "").substr(0, 8), event.value("type", ""), event.value("step", ""),
                    event.value("text", "")});
  print_table(rows);
  return kDone;
}

/// Proof of a machine, from a report of its service.
static Result<Proof> proof_told(const json& status) {
  const std::optional<RunState> state = run_state(text_of(status, "state"));
  if (!state || !is_proven(*state))
    return fail(ErrorCode::state, fmt::format("{}  {}", text_of(status, "state"), text_of(status, "reason")));
  return Proof{*state == RunState::limited, json_texts(status, "fit_for")};
}

Result<int> is_ready(const Context& context) {
  const Options& options = context.options;
  if (!options.uses.empty()) TRY_IN("--for", uses_from(options.uses));
  Result<Proof> proof = Proof{};
  if (options.host.empty()) {
    proof = require_proof(TRY(context.host()));
  } else {
    proof = proof_told(TRY(TRY(Service::open(options)).report()));
  }
  std::string missing;  // missing part of a proven machine
  if (proof && proof->limited && options.uses.empty())
    missing = fmt::format("fit for less than the plan wants: {}", fmt::join(proof->fit_for, ", "));
  for (const std::string& use : options.uses)
    if (proof && missing.empty() && !proof->is_fit_for(use)) missing = fmt::format("not proven fit for {}", use);
  const bool ready = proof && missing.empty();
  const std::string reason = proof ? missing : proof.error().text();
  if (options.json)
    print_json("p2pd.ready/1", {{"ready", ready},
                                {"reason", proof ? missing : proof.error().message},
                                {"fit_for", proof ? proof->fit_for : std::vector<std::string>()}});
  else if (!ready)
    fmt::print("{}\n", harmless(reason));
  return ready ? kDone : proof && proof->limited && options.uses.empty() ? kLimited : kNotReady;
}

}  // namespace p2pd::ctl
