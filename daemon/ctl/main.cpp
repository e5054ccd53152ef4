// SPDX-License-Identifier: MIT
// Verb table of p2pctl, its options, and the code around a verb: signals, errors, exit codes.
#include <fmt/format.h>
#include <signal.h>
#include <CLI/CLI.hpp>

#include "base/directories.hpp"
#include "base/image_runner.hpp"
#include "base/log.hpp"
#include "base/parameters.hpp"
#include "base/recorded.hpp"
#include "ctl/verb.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "plan/config.hpp"
#include "plan/resolve.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

void takes_plan(CLI::App& app, Options& o) { app.add_option("PLAN", o.plan, "plan name or file"); }
void takes_diagnosis(CLI::App& app, Options& o) {
  takes_plan(app, o);
  app.add_flag("--all", o.all, "list every check, and the evidence of the first that fails");
}
void takes_preview(CLI::App& app, Options& o) {
  takes_plan(app, o);
  app.add_flag("--detailed-exitcode", o.detailed_exitcode, "exit 2 when something would change");
  app.add_flag("--diff", o.diff, "show every check, the diff of every file, and every command");
}
void takes_bus(CLI::App& app, Options& o) {
  app.add_flag("--no-dbus", o.no_dbus, "without the service: in this process");
}
void takes_service(CLI::App& app, Options& o) {
  app.add_option("-H,--host", o.host, "[USER@]HOST: of that machine, over ssh");
  takes_bus(app, o);
}
void takes_walk(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--no-reboot", o.no_reboot, "do not reboot; somebody else does");
  app.add_flag("--no-block", o.no_block, "return as soon as the run has started");
}
void takes_status(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--watch", o.watch, "show its steps as they change, until interrupted");
  app.add_flag("--wait", o.wait, "return when the run has ended or waits");
}
void takes_apply(CLI::App& app, Options& o) {
  takes_plan(app, o);
  takes_walk(app, o);
  app.add_flag("--accept-state-loss", o.accept_state_loss, "continue although the state database was unusable");
}
void takes_runs(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_option("-n,--lines", o.lines, "how many runs")->check(CLI::Range(1, 1000));
}
void takes_lines(CLI::App& app, Options& o) {
  app.add_option("-H,--host", o.host, "[USER@]HOST: of that machine, over ssh");
  app.add_option("-n,--lines", o.lines, "how many lines")->check(CLI::Range(1, 1'000'000));
  app.add_flag("-f,--follow", o.follow, "follow new messages");
}
void takes_host(CLI::App& app, Options& o) {
  app.add_option("-H,--host", o.host, "[USER@]HOST: of that machine, over ssh");
}
void takes_shell(CLI::App& app, Options& o) {
  app.add_option("SHELL", o.name, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
}
void takes_step(CLI::App& app, Options& o) {
  app.add_option("STEP", o.name, "a step of the plan")->required();
  app.add_option("--plan", o.plan, "plan name or file");
}
void takes_words(CLI::App& app, Options&) {
  app.prefix_command()->footer("Takes the options of p2p-bench: see \"p2p-bench --help\".");
}
void takes_uses(CLI::App& app, Options& o) {
  takes_host(app, o);
  app.add_option(
         "--for", o.uses,
         "uses that must work: copies, nccl, custom-all-reduce, atomics, managed-memory (default: what the plan wants)")
      ->delimiter(',')
      ->allow_extra_args(false);
}
void takes_application(CLI::App& app, Options& o) {
  const auto one_of = [](auto& names) {
    return CLI::IsMember(std::vector<std::string>(std::begin(names), std::end(names)));
  };
  app.add_option("--for", o.application, "one application (default: all)")->check(one_of(kApplications));
  app.add_option("--format", o.format, "of what is printed (default: sh)")->check(one_of(kEnvFormats));
  takes_bus(app, o);
}
void takes_record(CLI::App& app, Options& o) {
  app.add_option("FILE", o.name, "a new file; with --unpack, the record")->required();
  CLI::Option* directory = app.add_option("DIR", o.directory, "a new directory, with --unpack");
  CLI::Option* unpack =
      app.add_flag("--unpack", o.unpack, "write the files of the record FILE into DIR, to be changed");
  unpack->needs(directory);
  directory->needs(unpack);
}
void takes_page(CLI::App& app, Options& o) {
  app.add_option("FILE", o.name, "file to write (default: p2pd-report.html); \"-\": standard output");
  app.add_flag(
      "--no-redact", o.no_redact,
      "keep what is otherwise removed: serial numbers, UUIDs, network addresses, names of hosts, people and processes");
  takes_bus(app, o);
}
void takes_file(CLI::App& app, Options& o) {
  app.add_option("--output", o.name, "write them into this file, atomically (default: standard output)");
  takes_bus(app, o);
}
void takes_entry(CLI::App& app, Options& o) {
  app.add_option("ID", o.id, "of an entry: \"p2pctl catalogue\" lists them")->required();
}
void takes_catalogue(CLI::App& app, Options& o) {
  app.require_subcommand(0, 1);
  CLI::App* diff =
      app.add_subcommand("diff", "print the patch of an entry, as git-apply(1) takes it, and what is known of it");
  CLI::App* allow = app.add_subcommand("allow", "let this machine use an entry whose hashes have only one source");
  CLI::App* add = app.add_subcommand(
      "add", "pin a branch of a fork, build it for this machine's kernels, and ask whether to use it");
  for (CLI::App* entry : {diff, allow}) takes_entry(*entry, o);
  diff->callback([&o] { o.catalogue_verb = catalogue_diff; });
  allow->callback([&o] { o.catalogue_verb = catalogue_allow; });
  add->callback([&o] { o.catalogue_verb = catalogue_add; });
  for (CLI::App* asks : {allow, add}) asks->add_flag("--yes", o.yes, "do not ask");
  add->add_option("REPOSITORY", o.repository, "https or file address of a git repository, or a directory")->required();
  add->add_option("BRANCH", o.branch, "its branch")->required();
  add->add_option("--id", o.id, "FORK/BRANCH (default: FORK is the owner that the address names)");
  add->add_flag("--no-build", o.no_build, "leave the build to the next apply");
  for (CLI::App* each : {diff, allow, add}) {
    each->fallthrough();
    each->add_option("--mirror", o.mirrors,
                     "URL of a repository, or of what lies above OWNER/NAME, asked first; may be given again")
        ->allow_extra_args(false);
    each->add_option("--runfile-host", o.runfile_hosts, "a mirror, asked before the catalogue's; may be given again")
        ->allow_extra_args(false);
  }
}

constexpr Verb kVerbs[] = {
    {"doctor", "show whether P2P works, and what to do if not; changes nothing", takes_diagnosis, doctor, true},
    {"plan", "show on one screen what apply would change; --diff: files and commands", takes_preview, show_plan, true},
    {"apply", "run the plan: check every step and fix those that fail", takes_apply, apply, true},
    {"revert", "undo everything, to the byte", takes_walk, revert},
    {"status", "state of the last run", takes_status, status},
    {"is-ready", "exit 0 where P2P is proven on this boot, else 3; 5 for less than the plan wants", takes_uses,
     is_ready},
    {"metrics", "print the state for the textfile collector of Prometheus' node_exporter", takes_file, metrics},
    {"features", "print the state for Kubernetes' node feature discovery", takes_file, features},
    {"env", "print P2P settings for applications, with reasons", takes_application, env},
    {"gain", "print what P2P gives: before and now, NCCL, all-reduces of tensor parallelism", takes_bus, gain},
    {"history", "list what was done, when, on which boot", takes_runs, history},
    {"explain", "describe a step and its fix", takes_step, explain},
    {"bench", "prove bytes and speed on every pair of GPUs (p2p-bench)", takes_words, bench},
    {"logs", "show p2pd's messages in the system's journal", takes_lines, logs},
    {"catalogue", "list the driver builds and whether each fits this machine; diff, allow, add", takes_catalogue,
     catalogue},
    {"report", "write a report of this machine and of the last run as one HTML file", takes_page, write_report},
    {"record", "capture this machine into one file that --root reads", takes_record, record},
    {"pause", "pause an open run", takes_walk, [](const Context& c) { return request(c, Request::Kind::pause); }},
    {"resume", "resume a paused run", takes_walk, [](const Context& c) { return request(c, Request::Kind::resume); }},
    {"retry", "retry a blocked or failed run", takes_walk,
     [](const Context& c) { return request(c, Request::Kind::retry); }},
    {"cancel", "stop an open run and undo it", takes_walk,
     [](const Context& c) { return request(c, Request::Kind::cancel); }},
    {"completion", "print a shell's completion script", takes_shell, completion, false, true},
};

/// Returns false, with a message, if the first word is no verb.
bool names_verb(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end()) return true;
  const std::string close = nearest(word, names);
  fmt::print(stderr, "p2pctl: unknown verb \"{}\"{}\n  next: \"p2pctl --help\" lists them\n", harmless(word),
             close.empty() ? "" : fmt::format("; did you mean \"{}\"?", close));
  return false;
}

}  // namespace

int print_error(const Context& context, const Error& error, int code) {
  if (context.options.json || context.options.format == "json")
    print_json("p2pd.error/1", {{"error", error.message}, {"code", to_string(error.code)}, {"next", error.next}});
  fmt::print(stderr, "p2pctl: {}\n", error.message);
  if (!error.next.empty()) fmt::print(stderr, "  next: {}\n", error.next);
  return code;
}

std::span<const Verb> verbs() { return kVerbs; }

void declare(CLI::App& app, const Verb& verb, Options& options) {
  app.add_option("--root", options.root, "work on this tree: an image or a machine record");
  app.add_option("--state", options.state, "state directory (default: /var/lib/p2pd, or beside the tree)");
  app.add_flag("--json", options.json, "print JSON");
  verb.options(app, options);
}

Result<std::unique_ptr<CommandRunner>> Context::runner(int stop_fd) const {
  const Root tree = TRY(root());
  if (RecordedRunner::is_record(tree)) return std::make_unique<RecordedRunner>(tree, stop_fd);
  if (!tree.live()) return std::make_unique<ImageRunner>(tree, stop_fd);
  return std::make_unique<ProcessRunner>("/", stop_fd);
}

Result<Host> Context::host(CommandRunner& runner) const { return Host(TRY(root()), runner); }

Result<Host> Context::host_of_plan(CommandRunner& runner) const {
  Host all = TRY(host(runner));
  if (Result<Plan> asked = plan()) all.leave_out_gpus(std::move(asked->left_out_gpus));
  return all;
}

Result<Root> Context::root() const {
  if (!opened_) opened_ = std::make_shared<NamedRoot>(TRY(NamedRoot::open(options.root)));
  return Root::open(opened_->directory());
}

Result<void> Context::require_directory() const {
  if (!NamedRoot::is_file(options.root)) return {};
  return fail(ErrorCode::state, options.root + " is a file: a record in one file is only read",
              fmt::format("\"p2pctl record --unpack {} DIR\", then --root DIR", options.root));
}

Result<Plan> Context::plan(const Host& host) const { return resolve(TRY(plan()), registry, host); }

Result<Plan> Context::plan() const { return load_plan(TRY(load_config()), options.plan, registry); }

std::filesystem::path Context::state() const {
  if (options.state.empty()) return state_directory(options.root);
  return options.state;
}

int main(int argc, char** argv, const Registry& registry) {
  if (argc > 1 && !names_verb(argv[1])) return kError;
  Context context;
  context.registry = registry;
  CLI::App app{"p2pctl: GPU peer-to-peer over PCIe, made to work and proven"};
  app.set_version_flag("--version", "p2pctl " P2PD_VERSION);
  app.add_option("-H,--host", context.options.host,
                 "[USER@]HOST: of that machine, over ssh; with the verbs that take it");
  app.require_subcommand(1);
  const Verb* chosen = nullptr;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    if (verb.hidden) sub->group("");
    declare(*sub, verb, context.options);
    sub->callback([&, sub] {
      chosen = &verb;
      context.options.words = sub->remaining();
      if (!context.options.host.empty() && sub->get_option_no_throw("--host") == nullptr)
        throw CLI::ValidationError("-H", fmt::format("\"{}\" reads this machine only", verb.name));
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kError;
  }
  signal(SIGPIPE, SIG_IGN);  // a closed pipe becomes an error instead of a signal
  log::start("p2pctl", log::Level::warning);
  try {
    const Result<int> code = chosen->run(context);
    if (!code) return print_error(context, code.error());
    if (std::fflush(stdout) != 0) return print_error(context, {ErrorCode::io, "cannot write to standard output", ""});
    return *code;
  } catch (const std::exception& error) {
    return print_error(context, {ErrorCode::invalid, std::string("unexpected: ") + error.what(), ""});
  }
}

}  // namespace p2pd::ctl
