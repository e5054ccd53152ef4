// SPDX-License-Identifier: MIT
// p2pctl status and is-ready, and following a run of the service: its steps as they change, and a progress line.
#include "ctl/status.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "ctl/walks.hpp"
#include "engine/ready.hpp"
#include "engine/status.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

std::string text(const json& object, const char* key) {
  return object.value(key, json()).is_string() ? object[key].get<std::string>() : "";
}

std::string mark_of(const json& step) {
  const std::string verdict = text(step, "verdict");
  for (const Verdict known : {Verdict::pass, Verdict::fail, Verdict::not_applicable, Verdict::limited})
    if (verdict == to_string(known)) return mark(known);
  return mark(Verdict::unknown);
}

/// "[#####-----] 12 of 33  driver-build: fixing: CC nvidia.o", as wide as the terminal.
std::string progress_line(const json& status) {
  constexpr int kBar = 20;
  const json progress = status.value("progress", json::object()), step = status.value("step", json::object());
  const int done = std::max(json_number<int>(progress, "done"), 0),
            total = std::max(json_number<int>(progress, "total"), 1);
  const std::string bar(static_cast<std::size_t>(kBar * std::int64_t{std::min(done, total)} / total), '#');
  std::string line = fmt::format("[{:-<{}}] {} of {}", bar, kBar, done, total);
  for (const std::string& word : {text(step, "id"), text(step, "doing"), text(progress, "message")})
    if (!word.empty()) line += "  " + harmless(word);
  return line;
}

/// True if the run of a report has changed something, even if it undid that.
bool changed_something(const json& status) {
  const json steps = status.value("steps", json::array());
  return std::ranges::any_of(steps, [](const json& step) { return has_changed(step_status(text(step, "status"))); });
}

std::string listed(const json& names) {
  std::string list;
  for (const json& name : names)
    if (name.is_string()) list += (list.empty() ? "" : ", ") + name.get<std::string>();
  return list;
}

/// Rows about a rollback: the undone steps, and the changes in place of other runs.
std::vector<std::vector<std::string>> changes_in_place(const json& status) {
  const std::string undone = listed(status.value("undone", json::array()));
  if (undone.empty()) return {};
  std::vector<std::vector<std::string>> rows = {{"undone", undone}};
  for (const json& run : status.value("stays", json::array()))
    rows.push_back({"stays", fmt::format("run {} of plan {}: {}", json_number<std::int64_t>(run, "run"),
                                         text(run, "plan"), listed(run.value("steps", json::array())))});
  if (rows.size() == 1) rows.push_back({"stays", "nothing is changed by p2pd"});
  return rows;
}

/// True if nothing more happens by itself before the next boot.
bool at_rest(const json& status) {
  const std::string state = text(status, "state");
  if (state != "walking" && state != "reverting") return true;
  return !status.value("at_work", false) && (status.contains("error") || status.value("reboot_required", false));
}

/// Prints a run as it proceeds: a line for each new finding (one from before a fix is not new after it), and on a
/// terminal a progress line below them.
class Show {
 public:
  /// `ends`: also print the final state of a run.
  Show(bool silent, bool ends) : silent_(silent), ends_(ends), live_(!silent && ::isatty(STDOUT_FILENO) == 1) {}
  ~Show() { clear(); }
  Show(const Show&) = delete;
  Show& operator=(const Show&) = delete;

  void look(const json& status) {
    if (silent_) return;
    clear();
    for (const json& step : status.value("steps", json::array())) {
      const std::string id = text(step, "id"), summary = text(step, "summary"), found = text(step, "verdict") + summary;
      if (text(step, "verdict").empty() || std::exchange(found_[id], found) == found) continue;
      print_table({{mark_of(step), id, summary}});
    }
    if (live_) fmt::print("{}\r", paint(Colour::blue, progress_line(status).substr(0, 100)));
    if (!live_) tell_change(status.value("step", json::object()));
    drawn_ = live_;
    if (const std::string state = text(status, "state");
        ends_ && at_rest(status) && std::exchange(told_, state) != state) {
      clear();
      fmt::print("{}  {}\n", paint(Colour::bold, state), harmless(text(status, "reason")));
    }
    if (!at_rest(status)) told_.clear();
    std::fflush(stdout);
  }
  /// Prints a line for each fix as it begins, without a terminal.
  void tell_change(const json& step) {
    const std::string doing = text(step, "doing"), now = text(step, "id") + " " + doing;
    if (std::exchange(doing_, now) != now && (doing == "fixing" || doing == "undoing"))
      print_table({{paint(Colour::blue, "…"), text(step, "id"), doing}});
  }
  void clear() {
    if (std::exchange(drawn_, false)) fmt::print("\r\033[K");
  }

 private:
  bool silent_;
  bool ends_;
  bool live_;
  bool drawn_ = false;
  std::map<std::string, std::string> found_;  ///< last printed verdict and summary of a step
  std::string doing_;                         ///< the current step, and its operation
  std::string told_;                          ///< last printed final state
};

/// Follows a run until `end`; returns the newest report.
Result<json> follow(Service& service, const Context& context, const std::function<bool(const json&)>& end) {
  Show show(context.options.json, context.options.watch);
  json newest;
  const int stop_fd = stop_signals();
  int idle_looks = 0;
  TRY(service.follow(
      [&](const json& status) {
        newest = status;
        show.look(status);
        const bool abandoned =
            !context.options.watch && !status.value("at_work", false) && ++idle_looks > 10;  // the worker was stopped
        if (status.value("at_work", false)) idle_looks = 0;
        return end(status) || abandoned;
      },
      stop_fd));
  return newest;
}

Result<json> status_here(const Context& context) {
  if (context.options.root == "/" && context.options.state.empty()) return current_status(context.state());
  return status_in_journal(context.state(), true);
}

}  // namespace

Result<json> known_status(const Context& context) {
  if (!over_the_bus(context.options)) return status_here(context);
  Result<Service> service = Service::open(context.options);
  Result<json> report = service ? service->report() : Failure(service.error());
  if (!report && context.options.host.empty())
    return current_status(context.state());  // the bus is down: the published status will do
  return report;
}

int print_status(const Context& context, json status, const Ending& ending) {
  const std::string state = text(status, "state"), result = text(status, "result"), reason = text(status, "reason");
  if (ending.changed) status["changed"] = *ending.changed;
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
    if (status.value("at_work", false)) fmt::print("{}\n", progress_line(status));
    if (status.contains("error")) print_table({{paint(Colour::red, "error"), text(status["error"], "message")}});
    if (const std::string uses = listed(status.value("fit_for", json::array())); !uses.empty())
      print_table({{"fit for", uses}});
    print_table(changes_in_place(status));
    for (const json& step : status.value("steps", json::array()))  // the step holds, with a note
      if (text(step, "verdict") == "pass" && !text(step, "next").empty())
        print_table({{"note", text(step, "summary") + ". " + text(step, "next")}});
    if (const std::string next = text(status, "next"); !next.empty() && !status.value("at_work", false))
      print_table({{"next", next}});
  }
  if (state == "blocked") return kBlocked;
  if (state == "limited" && !ending.stopped && !status.contains("error")) return kLimited;
  return state == "failed" || ending.stopped || status.contains("error") ? kError : kDone;
}

Result<int> ask_service(const Context& context, const std::function<Result<std::uint64_t>(Service&)>& ask,
                        bool turns_back) {
  Service service = TRY(Service::open(context.options));
  {
    const PasswordAgent agent(context.options);
    TRY(ask(service));
  }
  if (context.options.no_block) {  // --no-block: status reports the result
    print_status(context, TRY(service.report()));
    return kDone;
  }
  int looks = 0;
  const json after = TRY(follow(service, context, [&](const json& status) {
    if (turns_back && text(status, "state") == "rebooting" && ++looks < 5) return false;
    return at_rest(status);
  }));
  Ending ending;
  ending.changed = changed_something(after);
  ending.stopped = text(after, "state") == "walking" ||
                   (text(after, "state") == "reverting" && !after.value("reboot_required", false));
  return print_status(context, after, ending);
}

Result<int> status(const Context& context) {
  const Options& options = context.options;
  if (!options.watch && !options.wait) {
    print_status(context, TRY(known_status(context)));
    return kDone;
  }
  if (!over_the_bus(options))
    return fail(ErrorCode::invalid, "--watch and --wait need the service",
                "it runs where systemd does, and for the running system only");
  const auto settled = [&](const json& now) {
    return options.wait && at_rest(now) && text(now, "state") != "rebooting";
  };
  Service service = TRY(Service::open(options));
  const Result<json> seen = follow(service, context, settled);
  if (!seen && options.watch && seen.error().code == ErrorCode::interrupted) return kDone;  // ended by the user
  return print_status(context, TRY(Result<json>(seen)));
}

/// Proof of a machine, from a report of its service.
static Result<Proof> proof_told(const json& status) {
  const std::optional<RunState> state = run_state(text(status, "state"));
  if (!state || !is_proven(*state))
    return fail(ErrorCode::state, fmt::format("{}  {}", text(status, "state"), text(status, "reason")));
  return Proof{*state == RunState::limited, json_texts(status, "fit_for")};
}

Result<int> is_ready(const Context& context) {
  const Options& options = context.options;
  if (!options.uses.empty()) TRY_IN("--for", uses_from(options.uses));
  Result<Proof> proof = Proof{};
  if (options.host.empty()) {
    const auto runner = TRY(context.runner());
    proof = require_proof(TRY(context.host(*runner)));
  } else {
    proof = proof_told(TRY(TRY(Service::open(options)).report()));
  }
  std::string missing;  // missing part of a proven machine
  if (proof && proof->limited && options.uses.empty())
    missing = fmt::format("fit for less than the plan wants: {}", fmt::join(proof->fit_for, ", "));
  for (const std::string& use : options.uses)
    if (proof && missing.empty() && std::ranges::count(proof->fit_for, use) == 0)
      missing = fmt::format("not proven fit for {}", use);
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
