// SPDX-License-Identifier: MIT
// Verbs that walk: apply, revert, pause, resume, retry, cancel. They ask the service, or run the engine in this
// process.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <fstream>

#include "base/json_members.hpp"
#include "base/recorded.hpp"
#include "base/root.hpp"
#include "ctl/service.hpp"
#include "engine/open_state.hpp"
#include "engine/status.hpp"
#include "machine/driver/logind_files.hpp"
#include "plan/config.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

/// True if cloud-init runs this command (runcmd), and continues after its end.
bool cloud_init_waits() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.find("/system.slice/cloud-") != line.npos) return true;
  return false;
}

/// Runner for a verb that changes the tree: in an image the commands run inside (chroot), unlike those of read-only
/// verbs.
Result<std::unique_ptr<CommandRunner>> changing_runner(const Context& context, int stop_fd) {
  if (RecordedRunner::is_record(TRY(context.root()))) return context.runner(stop_fd);
  return std::make_unique<ProcessRunner>(context.options.root, stop_fd);
}

/// Prints each step as the walk checks it.
class Progress : public Observer {
 public:
  explicit Progress(bool silent) : silent_(silent) {}
  void run_changed(const Run&, const Plan&, const std::map<std::string, StepRecord>& steps) override { steps_ = steps; }
  void waiting(std::string_view why) override { show({paint(Colour::yellow, "…"), "waiting: " + std::string(why)}); }
  const std::map<std::string, StepRecord>& steps() const { return steps_; }
  void checked(const Step& step, const Finding& finding) override {
    const bool planned = finding.verdict == Verdict::fail && !step.fix.empty();
    show({planned ? mark_of_planned() : mark(finding.verdict), step.id, finding.summary});
  }
  void fixing(const Step& step) override { show({paint(Colour::blue, "…"), step.id, "applying fix: " + step.title}); }
  void fixed(const Step& step, const StepRecord&, const Result<void>& result) override {
    if (!result) show({paint(Colour::red, "✗"), step.id, result.error().message});
  }
  void undoing(std::string_view step) override { show({paint(Colour::blue, "↶"), std::string(step), "undoing"}); }

 private:
  /// Prints a row. A closed pipe ends the output, not the walk.
  void show(std::vector<std::string> row) {
    if (silent_) return;
    try {
      print_table({std::move(row)});
      std::fflush(stdout);
    } catch (const std::system_error&) {
      silent_ = true;
    }
  }

  bool silent_;
  std::map<std::string, StepRecord> steps_;
};

/// Restarts through systemd. Leaves the restart to the operator for a tree that is not running, or if none is wanted.
class AskSystemd : public Rebooter {
 public:
  AskSystemd(CommandRunner& runner, bool allowed) : runner_(runner), allowed_(allowed) {}
  Result<Outcome> reboot(RebootPolicy policy, std::string_view, bool) override {
    if (!allowed_ || policy == RebootPolicy::external || !in_the_way().empty()) return Outcome::under_way;
    const Command command{{"systemctl", "reboot"}};
    TRY(require_success(command, TRY_IN("cannot restart", runner_.run(command))));
    return Outcome::under_way;
  }
  std::string in_the_way() override {
    const Result<Root> root = Root::open("/");
    return allowed_ && root ? scheduled_shutdown(*root) : "";
  }

 private:
  CommandRunner& runner_;
  bool allowed_;
};

/// True once a signal has asked this process to stop.
bool is_stopped(int stop_fd) {
  pollfd stop{stop_fd, POLLIN, 0};
  return stop_fd >= 0 && ::poll(&stop, 1, 0) == 1;
}

/// Next action that differs in a walk without the service; empty: it does not differ.
std::string next_here(const Context& context, const Run& run, bool stopped) {
  if (run.state == RunState::rebooting && context.options.root != "/")
    return "boot that system, then \"sudo p2pctl apply\" again";
  if (run.state == RunState::reverting && stopped) return "\"sudo p2pctl revert\" continues";
  return "";
}

/// True if p2pd never worked on this tree: it has no state, and this function makes none.
bool untouched(const Context& context) {
  std::error_code error;
  return !std::filesystem::exists(context.state(), error) && !error;
}

/// Opens the state, runs `work`, prints the state of the run. Returns the exit code of the verb.
Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work) {
  const Options& options = context.options;
  TRY(context.require_directory());
  const int stop_fd = stop_signals();
  const auto runner = TRY(changing_runner(context, stop_fd));
  Progress progress(options.json);
  const Poll poll = [&] { return is_stopped(stop_fd) ? std::optional(Event::stopped) : std::nullopt; };
  AskSystemd rebooter(*runner, !options.no_reboot && options.root == "/");
  const auto opened =
      TRY(OpenState::open({options.root, options.state, fmt::format("p2pctl {}", verb), options.accept_state_loss},
                          context.registry, {*runner, progress, poll, rebooter}));
  const Run run = TRY(work(opened->walk()));
  if (options.root == "/") ::unlink(status_file().c_str());  // status file of the service's last walk
  const bool stopped = (run.state == RunState::walking || run.state == RunState::reverting) && is_stopped(stop_fd);
  nlohmann::json status = status_of(run, progress.steps());
  if (std::string next = next_here(context, run, stopped); !next.empty()) status["next"] = std::move(next);
  return print_status(context, status, {opened->changed(), stopped});
}

}  // namespace

Result<int> apply(const Context& context) {
  const Options& options = context.options;
  const bool returns_at_once = over_the_bus(options) && options.no_block;
  if (options.root == "/" && options.host.empty() && !returns_at_once && cloud_init_waits())
    return fail(ErrorCode::state, "cloud-init waits for this command, and the run would wait for cloud-init",
                "p2pctl apply --yes --no-block");
  if (over_the_bus(options)) {
    if (is_plan_file(options.plan))
      return fail(ErrorCode::invalid, "the service takes plans by their names: " + options.plan,
                  "put the file into /etc/p2pd/plans, or walk without the service: --no-dbus");
    if (options.accept_state_loss)
      return fail(ErrorCode::invalid, "--accept-state-loss needs --no-dbus",
                  "\"sudo p2pctl apply --no-dbus --accept-state-loss\"");
    if (!TRY(wants_changes(context))) return not_wanted();
    return ask_service(context, {.plan = options.plan, .reboot = !options.no_reboot});
  }
  const Plan plan = TRY(context.plan());
  if (!TRY(wants_changes(context))) return not_wanted();
  return walk_with(context, "apply", [&](Walk& walk) { return walk.apply(plan); });
}

/// Changes that a request undoes, a row a run.
static Rows undone_by(const nlohmann::json& status, Event event) {
  const std::optional<RunState> state = run_state(text_of(status, "state"));
  Rows rows;
  if (state && is_open(*state)) {
    std::vector<std::string> steps;
    for (const nlohmann::json& step : list_of(status, "steps"))
      if (is_changed(step)) steps.push_back(text_of(step, "id"));
    rows.push_back({fmt::format("run {} of plan {}", json_number<std::int64_t>(status, "run"), text_of(status, "plan")),
                    steps.empty() ? "nothing is changed yet" : fmt::format("{}", fmt::join(steps, ", "))});
  }
  if (event != Event::revert) return rows;  // a cancel is of the open run only
  for (const nlohmann::json& run : list_of(status, "stays"))
    rows.push_back({fmt::format("run {} of plan {}", json_number<std::int64_t>(run, "run"), text_of(run, "plan")),
                    fmt::format("{}", fmt::join(json_texts(run, "steps"), ", "))});
  const bool lost = rows.empty() && json_number<std::int64_t>(status, "run") == 0 && !text_of(status, "next").empty();
  if (lost) rows.push_back({"runs", text_of(status, "reason")});
  return rows;
}

/// Shows the changes that a request undoes, and asks; returns true for yes, or if it undoes none.
static Result<bool> wants_undo(const Context& context, Event event) {
  const Options& options = context.options;
  if (options.yes || (event != Event::revert && event != Event::cancel)) return true;
  TRY(require_consent(options));
  const Result<nlohmann::json> status = known_status(context);
  if (!status && !options.host.empty()) return Failure(status.error());
  if (!status) return said_yes(options, "The state cannot be read; the undo records suffice. Undo the changes?");
  const Rows rows = undone_by(*status, event);
  if (rows.empty()) return true;
  fmt::print("Undoes the changes of\n");
  print_table(rows);
  return said_yes(options, "Undo them? The machine restarts where that needs it.");
}

Result<int> request(const Context& context, Event event) {
  if (over_the_bus(context.options)) {
    if (context.options.no_reboot)
      return fail(ErrorCode::invalid, "--no-reboot is set when a run starts: use it with apply",
                  "leave it out, or walk without the service: --no-dbus");
    if (!TRY(wants_undo(context, event))) return not_wanted();
    return ask_service(context, {.event = event});
  }
  const bool reverts = event == Event::revert;
  if (untouched(context) && reverts)
    return print_status(context, TRY(status_in_journal(context.state(), false)), {false});
  if (untouched(context)) return fail(ErrorCode::state, fmt::format("there is no run to {}", to_string(event)));
  if (!TRY(wants_undo(context, event))) return not_wanted();
  Context here = context;  // the undo records suffice: an unusable journal must not prevent a rollback
  here.options.accept_state_loss |= reverts;
  return walk_with(here, to_string(event), [&](Walk& walk) { return reverts ? walk.revert() : walk.request(event); });
}

}  // namespace p2pd::ctl
