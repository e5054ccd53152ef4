// SPDX-License-Identifier: MIT
// The verbs that walk: apply, revert, pause, resume, retry, cancel. The worker runs in this process.
#include "ctl/walks.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "ctl/print.hpp"

namespace p2pd::ctl {
namespace {

/// Prints each step as the walk meets it.
class Progress : public Observer {
 public:
  explicit Progress(bool silent) : silent_(silent) {}
  void checked(const Step& step, const Finding& finding) override {
    if (!silent_) print_table({{mark(finding.verdict), step.id, finding.summary}});
    std::fflush(stdout);
  }
  void fixing(const Step& step) override {
    if (!silent_) print_table({{paint(Colour::blue, "…"), step.id, "making it so: " + step.title}});
    std::fflush(stdout);
  }
  void fixed(const Step& step, const Result<void>& result) override {
    if (!silent_ && !result) print_table({{paint(Colour::red, "✗"), step.id, result.error().message}});
  }
  void undoing(std::string_view step) override {
    if (!silent_) print_table({{paint(Colour::blue, "↶"), std::string(step), "undoing"}});
  }

 private:
  bool silent_;
};

std::string next_command(const Context& context, const Run& run, bool stopped) {
  if (run.state == RunState::rebooting && context.options.root != "/") return "boot that system, then \"p2pctl apply\" again";
  switch (run.state) {
    case RunState::blocked: return "settle that, then \"p2pctl retry\" (it also goes on by itself at the next boot)";
    case RunState::rebooting: return "reboot; it goes on by itself";
    case RunState::reverting: return stopped || !run.reboot_due ? "\"p2pctl revert\" goes on" : "reboot; it goes on by itself";
    case RunState::paused: return "\"p2pctl resume\" goes on, \"p2pctl revert\" undoes";
    case RunState::failed: return "\"p2pctl history\" shows every step of it";
    case RunState::walking: return "\"p2pctl apply\" goes on";
    default: return "";
  }
}

/// p2pd never worked on this tree: there is no state, and none is made to say so.
bool untouched(const Context& context) {
  std::error_code error;
  return !std::filesystem::exists(context.state(), error) && !error;
}

}  // namespace

int stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Run nothing_yet() {
  Run run;
  run.reason = "nothing has run on this machine yet";
  return run;
}

int print_run(const Context& context, const Run& run, std::optional<bool> changed, bool stopped) {
  if (context.options.json) {
    nlohmann::json body = to_json(run);
    body["run"] = run.id;
    if (changed) body["changed"] = *changed;
    body["next"] = next_command(context, run, stopped);
    print_json("p2pd.run/1", std::move(body));
  } else {
    const Colour colour = run.state == RunState::failed    ? Colour::red
                          : run.state == RunState::blocked ? Colour::yellow
                                                           : Colour::green;
    const std::string state = run.result == "done" || run.result == "reverted" ? run.result : std::string(to_string(run.state));
    const bool same = run.id != 0 && changed == false;
    fmt::print("{}{}{}{}\n", paint(colour, state), run.reason.empty() ? "" : "  ", harmless(run.reason), same ? "  (nothing changed)" : "");
    const std::string next = next_command(context, run, stopped);
    if (!next.empty()) print_table({{"next", next}});
  }
  if (run.state == RunState::blocked) return kBlocked;
  return run.state == RunState::failed || stopped ? kError : kDone;
}

Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work) {
  const Options& options = context.options;
  const int stop_fd = stop_signals();
  const auto runner = TRY(context.runner(stop_fd));
  Progress progress(options.json);
  Worker worker = TRY(Worker::open({options.root, options.state, fmt::format("p2pctl {}", verb),
                                    options.accept_state_loss, stop_fd, !options.no_reboot},
                                   context.vocabulary, *runner, progress));
  const Run run = TRY(work(worker.walk()));
  pollfd stop{stop_fd, POLLIN, 0};
  const bool stopped = (run.state == RunState::walking || run.state == RunState::reverting) && ::poll(&stop, 1, 0) == 1;
  return print_run(context, run, worker.changed(), stopped);
}

Result<int> apply(const Context& context) {
  const Plan plan = TRY(context.plan());
  return walk_with(context, "apply", [&](Walk& walk) { return walk.apply(plan); });
}

Result<int> revert(const Context& context) {
  if (untouched(context)) return print_run(context, nothing_yet(), false);
  Context undoing = context;  // the undo records are enough: an unusable journal must not keep the changes here
  undoing.options.accept_state_loss = true;
  return walk_with(undoing, "revert", [](Walk& walk) { return walk.revert(); });
}

Result<int> request(const Context& context, std::string_view event) {
  if (untouched(context)) return fail(ErrorCode::state, fmt::format("there is no run to {}", event));
  const Event asked = event == "pause" ? Event::pause : event == "resume" ? Event::resume : event == "retry" ? Event::retry : Event::cancel;
  return walk_with(context, event, [&](Walk& walk) { return walk.request(asked); });
}

}  // namespace p2pd::ctl
