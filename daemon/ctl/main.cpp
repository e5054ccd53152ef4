// SPDX-License-Identifier: MIT
// The verb table of p2pctl, its options, and what happens around a verb: signals, errors, exit codes.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.hpp"
#include "base/recorded.hpp"
#include "ctl/print.hpp"
#include "ctl/verb.hpp"
#include "engine/worker.hpp"
#include "plan/config.hpp"

namespace p2pd::ctl {
namespace {

void takes_nothing(CLI::App&, Options&) {}
void takes_plan(CLI::App& app, Options& o) { app.add_option("PLAN", o.plan, "name of a plan, or a file"); }
void takes_preview(CLI::App& app, Options& o) {
  takes_plan(app, o);
  app.add_flag("--detailed-exitcode", o.detailed_exitcode, "exit 2 when something would change");
}
void takes_apply(CLI::App& app, Options& o) {
  takes_plan(app, o);
  app.add_flag("--no-reboot", o.no_reboot, "leave reboots to somebody else");
  app.add_flag("--accept-state-loss", o.accept_state_loss, "go on although the state database was unusable");
}
void takes_reboot(CLI::App& app, Options& o) { app.add_flag("--no-reboot", o.no_reboot, "leave reboots to somebody else"); }
void takes_lines(CLI::App& app, Options& o) { app.add_option("-n,--lines", o.lines, "how many runs")->check(CLI::Range(1, 10'000)); }
void takes_step(CLI::App& app, Options& o) {
  app.add_option("STEP", o.name, "a step of the plan")->required();
  app.add_option("--plan", o.plan, "name of a plan, or a file");
}
void takes_directory(CLI::App& app, Options& o) { app.add_option("DIR", o.name, "a new directory")->required(); }

constexpr Verb kVerbs[] = {
    {"doctor", "find what keeps P2P from working; changes nothing", takes_plan, doctor},
    {"plan", "show what apply would change: diffs, commands, reboots, cost", takes_preview, show_plan},
    {"apply", "walk the plan: make every step hold", takes_apply, apply},
    {"revert", "undo everything, to the byte", takes_reboot, revert},
    {"status", "how the last run stands", takes_nothing, status},
    {"history", "what was done, when, on which boot", takes_lines, history},
    {"explain", "what a step is for and what its fix does", takes_step, explain},
    {"record", "capture this machine into a directory that --root reads", takes_directory, record},
    {"pause", "hold an open run where it is", takes_nothing, [](const Context& c) { return request(c, "pause"); }},
    {"resume", "go on with a paused run", takes_reboot, [](const Context& c) { return request(c, "resume"); }},
    {"retry", "try a blocked or failed run again", takes_reboot, [](const Context& c) { return request(c, "retry"); }},
    {"cancel", "stop an open run and undo it", takes_reboot, [](const Context& c) { return request(c, "cancel"); }},
};

/// SIGTERM and SIGINT become readable, so that a walk ends at a safe point; a closed pipe is an error, not a death.
int stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int print_error(const Context& context, const Error& error) {
  if (context.options.json)
    print_json("p2pd.error/1", {{"error", error.message}, {"code", to_string(error.code)}, {"next", error.next}});
  fmt::print(stderr, "p2pctl: {}\n", error.message);
  if (!error.next.empty()) fmt::print(stderr, "  next: {}\n", error.next);
  return kError;
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

Result<std::unique_ptr<CommandRunner>> Context::runner() const {
  const Root root = TRY(Root::open(options.root));
  if (RecordedRunner::is_record(root)) return std::make_unique<RecordedRunner>(root);
  return std::make_unique<ProcessRunner>(options.root, stop_fd);
}

Result<Host> Context::host(CommandRunner& runner) const { return Host(TRY(Root::open(options.root)), runner); }

Result<Plan> Context::plan() const {
  return load_plan(options.plan.empty() ? TRY(load_config()).plan : options.plan, vocabulary);
}

int main(int argc, char** argv, const Vocabulary& vocabulary) {
  Context context;
  context.vocabulary = vocabulary;
  CLI::App app{"p2pctl: GPU peer-to-peer over PCIe, made to work and proven"};
  app.set_version_flag("--version", "p2pctl " P2PD_VERSION);
  app.require_subcommand(1);
  const Verb* chosen = nullptr;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    sub->add_option("--root", context.options.root, "work on this tree: an image or a machine record");
    sub->add_option("--state", context.options.state, "where the state lies (default: /var/lib/p2pd, or beside the tree)");
    sub->add_flag("--json", context.options.json, "print JSON");
    verb.options(*sub, context.options);
    sub->callback([&chosen, &verb] { chosen = &verb; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kError;
  }
  context.stop_fd = stop_signals();
  log::start("p2pctl", spdlog::level::warn);
  try {
    const Result<int> code = chosen->run(context);
    return code ? *code : print_error(context, code.error());
  } catch (const std::exception& error) {
    return print_error(context, {ErrorCode::invalid, std::string("unexpected: ") + error.what(), ""});
  }
}

}  // namespace p2pd::ctl
