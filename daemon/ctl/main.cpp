// SPDX-License-Identifier: MIT
// Verb table of p2pctl, its options, and the code around a verb: signals, errors, exit codes.
#include <fmt/format.h>
#include <signal.h>
#include <CLI/CLI.hpp>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "ctl/verb.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

void takes_plan(CLI::App& app, Options& o) { app.add_option("PLAN", o.plan, "plan name or file"); }
void takes_host(CLI::App& app, Options& o) {
  app.add_option("-H,--host", o.host, "[USER@]HOST: of that machine, over ssh");
}
void takes_diagnosis(CLI::App& app, Options& o) {
  takes_plan(app, o);
  takes_host(app, o);
  app.add_flag("--all", o.all, "list every check, and the evidence of the first that fails");
}
void takes_preview(CLI::App& app, Options& o) {
  takes_plan(app, o);
  takes_host(app, o);
  app.add_flag("--detailed-exitcode", o.detailed_exitcode, "exit 2 when something would change");
  app.add_flag("--diff", o.diff, "show every check, the diff of every file, and every command");
}
void takes_bus(CLI::App& app, Options& o) {
  app.add_flag("--no-dbus", o.no_dbus, "without the service: in this process");
}
void takes_service(CLI::App& app, Options& o) {
  takes_host(app, o);
  takes_bus(app, o);
}
void takes_walk(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--no-reboot", o.no_reboot, "do not reboot; somebody else does");
  app.add_flag("--no-block", o.no_block, "return as soon as the run has started");
}
void takes_status(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--watch", o.watch, "show its steps as they change, until a planned restart or Ctrl-C");
  app.add_flag("--wait", o.wait, "return when the run has ended or waits");
}
void takes_apply(CLI::App& app, Options& o) {
  takes_plan(app, o);
  takes_walk(app, o);
  app.add_flag("--yes", o.yes, "do not ask; a terminal is asked otherwise");
  app.add_flag("--accept-state-loss", o.accept_state_loss, "continue although the state database was unusable");
}
void takes_runs(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_option("-n,--lines", o.lines, "how many runs")->check(CLI::Range(1, 1000));
}
void takes_lines(CLI::App& app, Options& o) {
  takes_host(app, o);
  app.add_option("-n,--lines", o.lines, "how many lines")->check(CLI::Range(1, 1'000'000));
  app.add_flag("-f,--follow", o.follow, "follow new messages");
}
void takes_shell(CLI::App& app, Options& o) {
  app.add_option("SHELL", o.name, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
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
  app.add_option("--for", o.uses, fmt::format("uses that must work: {} (default: what the plan wants)", known_uses()))
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
  app.add_option("--soak", o.soak, "draw this file of \"p2pctl bench --soak MINUTES --save\", too");
  app.add_flag("--no-redact", o.no_redact, "keep what is otherwise removed; the manual page p2pctl(1) lists it");
  takes_bus(app, o);
}
void takes_file(CLI::App& app, Options& o) {
  app.add_option("--output", o.name, "write them into this file, atomically (default: standard output)");
  takes_bus(app, o);
}
void takes_catalogue(CLI::App& app, Options& o) {
  app.require_subcommand(0, 1);
  CLI::App* diff =
      app.add_subcommand("diff", "print the patch of an entry, as git-apply(1) takes it, and what is known of it");
  CLI::App* allow = app.add_subcommand("allow", "let this machine use an entry whose hashes have only one source");
  CLI::App* add = app.add_subcommand(
      "add", "pin a branch of a fork, build it for this machine's kernels, and ask whether to use it");
  for (CLI::App* entry : {diff, allow})
    entry->add_option("ID", o.id, "of an entry: \"p2pctl catalogue\" lists them")->required();
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
                     "URL of a repository, or of the parent of OWNER/NAME, asked first; may be given again")
        ->allow_extra_args(false);
    each->add_option("--runfile-host", o.runfile_hosts, "a mirror, asked before the catalogue's; may be given again")
        ->allow_extra_args(false);
  }
}

void takes_mirror(CLI::App& app, Options& o) {
  app.require_subcommand(1);
  CLI::App* make =
      app.add_subcommand("make", "copy this machine's builds, sources and runfiles into DIR, and sign them");
  make->add_option("DIR", o.directory, "directory that a web server serves, or that others mount")->required();
  make->add_option("--key", o.key, "file with the private Ed25519 key, in PEM");
  make->add_option("--valid-days", o.valid_days, "days until others refuse it (default: 90)")
      ->check(CLI::Range(1, 3650));
  make->fallthrough();
}

template <Event event>
Result<int> request_of(const Context& context) {
  return request(context, event);
}

constexpr std::string_view kLook = "To look (changes nothing)", kChange = "To change", kRun = "While a run is open",
                           kUse = "For applications and fleets", kHelp = "For help from others";
constexpr Verb kVerbs[] = {
    {kLook, "doctor", "show whether P2P works, and what to do if not", takes_diagnosis, doctor, true, true},
    {kLook, "plan", "show on one screen what apply would change; --diff: files and commands", takes_preview, show_plan,
     true, true},
    {kLook, "status", "show the state of the last run; --watch: a live picture", takes_status, status},
    {kLook, "verify", "name what is no longer as p2pd left it; exit 2 where something changed", takes_host, verify,
     false, true},
    {kLook, "gain", "show what P2P gives: before and now, NCCL, all-reduces of tensor parallelism", takes_bus, gain},
    {kLook, "history", "list what was done, when, on which boot", takes_runs, history},
    {kLook, "explain", "describe a step and its fix", takes_step, explain},
    {kLook, "catalogue", "list the driver builds and whether each fits this machine; diff, allow, add", takes_catalogue,
     catalogue},
    {kChange, "apply", "run the plan: check every step and fix those that fail", takes_apply, apply, true},
    {kChange, "revert", "undo everything, to the byte", takes_walk, request_of<Event::revert>},
    {kChange, "bench", "prove bytes and speed on every pair of GPUs (p2p-bench)", takes_words, bench},
    {kRun, "pause", "pause it", takes_walk, request_of<Event::pause>},
    {kRun, "resume", "resume it", takes_walk, request_of<Event::resume>},
    {kRun, "retry", "retry one that is blocked or failed", takes_walk, request_of<Event::retry>},
    {kRun, "cancel", "stop it and undo it", takes_walk, request_of<Event::cancel>},
    {kUse, "is-ready", "exit 0 where P2P is proven on this boot, else 3; 5 for less than the plan wants", takes_uses,
     is_ready},
    {kUse, "env", "print P2P settings for applications, with reasons", takes_application, env},
    {kUse, "metrics", "print the state for the textfile collector of Prometheus' node_exporter", takes_file, metrics},
    {kUse, "features", "print the state for Kubernetes' node feature discovery", takes_file, features},
    {kUse, "mirror", "make a signed mirror of what was built here, so that others compile nothing", takes_mirror,
     make_mirror},
    {kHelp, "report", "write a report of this machine and of the last run as one HTML file", takes_page, write_report},
    {kHelp, "record", "capture this machine into one file that --root reads", takes_record, record},
    {kHelp, "logs", "show p2pd's messages in the system's journal", takes_lines, logs},
    {"", "completion", "print a shell's completion script", takes_shell, completion},
};

constexpr const char* kFooter = R"(Examples:
  p2pctl doctor                is P2P proven here? if not, what is in the way
  p2pctl plan                  what apply would change
  sudo p2pctl apply            make it so; asks first on a terminal
  p2pctl status --watch        follow the run, also after a reboot
  sudo p2pctl revert           take everything back
  p2pctl VERB --help           the options of a verb; man p2pctl has all of it

Exit codes: 0 done, or nothing to do; 1 error; 2 something would change, or has changed (doctor, verify,
plan --detailed-exitcode); 3 not proven on this boot (is-ready, env); 4 the operator must act first;
5 proven for less than the plan wants)";

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

std::span<const Verb> verbs() { return kVerbs; }

void declare(CLI::App& app, const Verb& verb, Options& options) {
  app.add_option("--root", options.root, "work on this tree: an image or a machine record");
  app.add_option("--state", options.state, "state directory (default: /var/lib/p2pd, or beside the tree)");
  app.add_flag("--json", options.json, "print JSON");
  verb.options(app, options);
}

int main(int argc, char** argv, const Registry& registry) {
  if (argc > 1 && !names_verb(argv[1])) return kError;
  Context context;
  context.registry = registry;
  CLI::App app{"p2pctl: GPU peer-to-peer over PCIe, made to work and proven"};
  app.set_version_flag("--version", "p2pctl " P2PD_VERSION);
  app.add_option("-H,--host", context.options.host,
                 "[USER@]HOST: of that machine, over ssh; with the verbs that take it");
  app.footer(kFooter);
  app.require_subcommand(0, 1);  // "plan verify" is a plan, not the verb
  const Verb* chosen = nullptr;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    sub->group(std::string(verb.group));
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
    if (chosen == nullptr && argc > 1) throw CLI::RequiredError("A verb");
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const std::vector<CLI::App*> verb = app.get_subcommands();
    context.options.json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
    return print_error(context, {ErrorCode::invalid, harmless(error.what()),
                                 fmt::format("\"p2pctl {}--help\" shows what it takes",
                                             verb.empty() ? "" : verb.front()->get_name() + " ")});
  }
  if (chosen == nullptr) {
    fmt::print("{}", app.help());
    return kDone;
  }
  signal(SIGPIPE, SIG_IGN);  // a closed pipe becomes an error instead of a signal
  log::start("p2pctl", log::Level::warning);
  try {
    const bool there = chosen->by_ssh && !context.options.host.empty();
    const Result<int> code =
        there ? run_on_host(context, std::vector<std::string>(argv + 1, argv + argc)) : chosen->run(context);
    if (!code) return print_error(context, code.error());
    if (std::fflush(stdout) != 0) return print_error(context, {ErrorCode::io, "cannot write to standard output", ""});
    return *code;
  } catch (const std::exception& error) {
    return print_error(context, {ErrorCode::invalid, std::string("unexpected: ") + error.what(), ""});
  }
}

}  // namespace p2pd::ctl
