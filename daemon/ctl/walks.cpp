// SPDX-License-Identifier: MIT
// The verbs that walk: apply, revert, pause, resume, retry, cancel. The worker runs in this process.
#include "ctl/walks.hpp"

#include <fmt/format.h>
#include <poll.h>

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

}  // namespace

int print_run(const Context& context, const Run& run, bool changed, bool stopped) {
  if (context.options.json) {
    nlohmann::json body = to_json(run);
    body["run"] = run.id;
    body["changed"] = changed;
    body["next"] = next_command(context, run, stopped);
    print_json("p2pd.run/1", std::move(body));
  } else {
    const Colour colour = run.state == RunState::failed    ? Colour::red
                          : run.state == RunState::blocked ? Colour::yellow
                                                           : Colour::green;
    const std::string state = run.result == "done" || run.result == "reverted" ? run.result : std::string(to_string(run.state));
    fmt::print("{}  {}{}\n", paint(colour, state), run.reason, changed || run.id == 0 ? "" : "  (nothing changed)");
    const std::string next = next_command(context, run, stopped);
    if (!next.empty()) print_table({{"next", next}});
  }
  if (run.state == RunState::blocked) return kBlocked;
  return run.state == RunState::failed || stopped ? kError : kDone;
}

Result<int> walk_with(const Context& context, std::string_view verb, const std::function<Result<Run>(Walk&)>& work) {
  const Options& options = context.options;
  const auto runner = TRY(context.runner());
  Progress progress(options.json);
  Worker worker = TRY(Worker::open({options.root, options.state, std::string(verb), context.stop_fd, !options.no_reboot},
                                   context.vocabulary, *runner, progress));
  const Run run = TRY(work(worker.walk()));
  pollfd stop{context.stop_fd, POLLIN, 0};
  const bool stopped = (run.state == RunState::walking || run.state == RunState::reverting) && ::poll(&stop, 1, 0) == 1;
  return print_run(context, run, worker.changed(), stopped);
}

Result<int> apply(const Context& context) {
  const Plan plan = TRY(context.plan());
  if (context.options.accept_state_loss) {
    const auto& o = context.options;
    TRY(Journal::accept_loss(o.state.empty() ? state_directory(o.root) : std::filesystem::path(o.state)));
  }
  return walk_with(context, "apply", [&](Walk& walk) { return walk.apply(plan); });
}

Result<int> revert(const Context& context) {
  const auto& o = context.options;  // the undo records are enough: an unusable journal must not keep the changes here
  const auto state = o.state.empty() ? state_directory(o.root) : std::filesystem::path(o.state);
  const auto journal = Journal::open(state, Journal::Access::read);
  if (!journal && journal.error().code == ErrorCode::set_aside) {
    (void)Journal::open(state, Journal::Access::write);
    TRY(Journal::accept_loss(state));
  }
  return walk_with(context, "revert", [](Walk& walk) { return walk.revert(); });
}

Result<int> request(const Context& context, std::string_view event) {
  const Event asked = event == "pause" ? Event::pause : event == "resume" ? Event::resume : event == "retry" ? Event::retry : Event::cancel;
  return walk_with(context, event, [&](Walk& walk) { return walk.request(asked); });
}

}  // namespace p2pd::ctl
