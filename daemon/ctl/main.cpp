// SPDX-License-Identifier: MIT
// Verb table of p2pctl, its options, and the code around a verb: signals, errors, exit codes.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <sstream>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "base/wrap.hpp"
#include "ctl/verb.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

void takes_plan(CLI::App& app, Options& o) { app.add_option("PLAN", o.plan, "plan name or file")->type_name(""); }
void takes_host(CLI::App& app, Options& o) {
  app.add_option("-H,--host", o.host, "of that machine, over ssh")->option_text("[USER@]HOST");
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
void takes_consent(CLI::App& app, Options& o) {
  app.add_flag("--yes", o.yes, "do not ask; needed where there is no terminal");
}
void takes_walk(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--no-reboot", o.no_reboot, "do not reboot; somebody else does");
  app.add_flag("--no-block", o.no_block, "return as soon as the run has started");
}
void takes_undo(CLI::App& app, Options& o) {
  takes_walk(app, o);
  takes_consent(app, o);
}
void takes_status(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_flag("--watch", o.watch, "show its steps as they change, until a planned restart or Ctrl-C");
  app.add_flag("--wait", o.wait, "return when the run has ended or waits");
}
void takes_apply(CLI::App& app, Options& o) {
  takes_plan(app, o);
  takes_walk(app, o);
  takes_consent(app, o);
  app.add_flag("--accept-state-loss", o.accept_state_loss, "continue although the state database was unusable");
}
void takes_runs(CLI::App& app, Options& o) {
  takes_service(app, o);
  app.add_option("-n,--lines", o.lines, "how many runs")->option_text("N")->check(CLI::Range(1, 1000));
  app.add_flag("--all", o.all, "every event of them, not a line a run");
}
void takes_lines(CLI::App& app, Options& o) {
  takes_host(app, o);
  app.add_option("-n,--lines", o.lines, "how many lines")->option_text("N")->check(CLI::Range(1, 1'000'000));
  app.add_flag("-f,--follow", o.follow, "follow new messages");
}
void takes_shell(CLI::App& app, Options& o) {
  app.add_option("SHELL", o.name, "of this shell")
      ->option_text("{bash,zsh,fish}")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}
void takes_step(CLI::App& app, Options& o) {
  app.add_option("STEP", o.name, "a step of the plan (default: lists them)")->type_name("");
  app.add_option("--plan", o.plan, "plan name or file")->option_text("PLAN");
}
void takes_words(CLI::App& app, Options&) {
  app.prefix_command()->set_help_flag();  // --help is p2p-bench's
}
void takes_uses(CLI::App& app, Options& o) {
  takes_host(app, o);
  app.add_option("--for", o.uses, fmt::format("uses that must work: {} (default: what the plan wants)", known_uses()))
      ->option_text("USE,...")
      ->delimiter(',')
      ->allow_extra_args(false);
}
void takes_application(CLI::App& app, Options& o) {
  const auto one_of = [](auto& names) {
    return CLI::IsMember(std::vector<std::string>(std::begin(names), std::end(names)));
  };
  app.add_option("--for", o.application, "one application (default: all)")
      ->option_text("APPLICATION")
      ->check(one_of(kApplications));
  app.add_option("--format", o.format, "of what is printed (default: sh)")
      ->option_text("FORMAT")
      ->check(one_of(kEnvFormats));
  takes_bus(app, o);
}
void takes_record(CLI::App& app, Options& o) {
  app.add_option("FILE", o.name, "a new file; with --unpack, the record")->type_name("")->required();
  CLI::Option* directory = app.add_option("DIR", o.directory, "a new directory, with --unpack")->type_name("");
  CLI::Option* unpack =
      app.add_flag("--unpack", o.unpack, "write the files of the record FILE into DIR, to be changed");
  unpack->needs(directory);
  directory->needs(unpack);
}
void takes_page(CLI::App& app, Options& o) {
  app.add_option("FILE", o.name, "file to write (default: p2pd-report.html); \"-\": standard output")->type_name("");
  app.add_option("--soak", o.soak, "draw the soak that \"p2pctl bench\" saved in FILE, too")->option_text("FILE");
  app.add_flag("--no-redact", o.no_redact, "keep what is otherwise removed; the manual page p2pctl(1) lists it");
  takes_bus(app, o);
}
void takes_file(CLI::App& app, Options& o) {
  app.add_option("--output", o.name, "write them into this file, atomically (default: standard output)")
      ->option_text("FILE");
  takes_bus(app, o);
}
void takes_catalogue(CLI::App& app, Options& o) {
  app.require_subcommand(0, 1);
  CLI::App* diff =
      app.add_subcommand("diff", "print the patch of an entry, as git-apply(1) takes it, and what is known of it");
  CLI::App* allow = app.add_subcommand("allow", "let this machine use an entry whose hashes have only one source");
  CLI::App* add = app.add_subcommand(
      "add", "pin a branch of a fork, build it for this machine's kernels, and let this machine use it");
  for (CLI::App* entry : {diff, allow})
    entry->add_option("ID", o.id, "of an entry: \"p2pctl catalogue\" lists them")->type_name("")->required();
  diff->callback([&o] { o.catalogue_verb = catalogue_diff; });
  allow->callback([&o] { o.catalogue_verb = catalogue_allow; });
  add->callback([&o] { o.catalogue_verb = catalogue_add; });
  for (CLI::App* asks : {allow, add}) takes_consent(*asks, o);
  add->add_option("REPOSITORY", o.repository, "https or file address of a git repository, or a directory")
      ->type_name("")
      ->required();
  add->add_option("BRANCH", o.branch, "its branch")->type_name("")->required();
  add->add_option("--id", o.id, "FORK/BRANCH (default: FORK is the owner that the address names)")
      ->option_text("FORK/BRANCH");
  add->add_flag("--no-build", o.no_build, "leave the build to the next apply");
  add->add_flag("--pin-only", o.pin_only, "do not ask, and leave the permission to \"p2pctl catalogue allow\"");
  for (CLI::App* each : {diff, allow, add}) {
    each->fallthrough();
    each->add_option("--mirror", o.mirrors,
                     "URL of a repository, or of the parent of OWNER/NAME, asked first; may be given again")
        ->option_text("URL")
        ->allow_extra_args(false);
    each->add_option("--runfile-host", o.runfile_hosts, "a mirror, asked before the catalogue's; may be given again")
        ->option_text("URL")
        ->allow_extra_args(false);
  }
}

void takes_mirror(CLI::App& app, Options& o) {
  app.require_subcommand(1);
  CLI::App* make =
      app.add_subcommand("make", "copy this machine's builds, sources and runfiles into DIR, and sign them");
  make->add_option("DIR", o.directory, "directory that a web server serves, or that others mount")
      ->type_name("")
      ->required();
  make->add_option("--key", o.key, "file with the private Ed25519 key, in PEM")->option_text("FILE");
  make->add_option("--valid-days", o.valid_days, "days until others refuse it (default: 90)")
      ->option_text("DAYS")
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
    {kLook, "doctor", "show whether P2P works, and what to do if not",
     "  p2pctl doctor --all                 every check, and the evidence\n  p2pctl doctor -H admin@gpu1         "
     "another machine\n  p2pctl doctor --root record.json    a machine record",
     takes_diagnosis, doctor, true, true},
    {kLook, "plan", "show on one screen what apply would change; --diff: files and commands",
     "  p2pctl plan --diff                  every file and command\n  p2pctl plan driver-update           another plan",
     takes_preview, show_plan, true, true},
    {kLook, "status", "show the state of the last run; --watch: a live picture",
     "  p2pctl status --watch               follow the run\n  p2pctl status --json                for scripts",
     takes_status, status},
    {kLook, "verify", "name what is no longer as p2pd left it; exit 2 where something changed", "  sudo p2pctl verify",
     takes_host, verify, false, true},
    {kLook, "gain", "show what P2P gives: before and now, NCCL, all-reduces of tensor parallelism", "  p2pctl gain",
     takes_bus, gain},
    {kLook, "history", "list the runs; --all: what was done, when, on which boot",
     "  p2pctl history -n 1 --all           every event of the last run", takes_runs, history},
    {kLook, "explain", "describe a step and its fix",
     "  p2pctl explain                      the steps of the plan\n  p2pctl explain iommu                one of them",
     takes_step, explain},
    {kLook, "catalogue", "list the driver builds and whether each fits this machine; diff, allow, add",
     "  p2pctl catalogue                    driver builds for this machine\n  p2pctl catalogue diff ID            the "
     "patch of one\n  sudo p2pctl catalogue allow ID      lets this machine use one\n  sudo p2pctl catalogue add "
     "https://HOST/OWNER/NAME BRANCH",
     takes_catalogue, catalogue},
    {kChange, "apply", "run the plan: check every step and fix those that fail",
     "  sudo p2pctl apply                   shows the changes, and asks\n  sudo p2pctl apply --yes --no-block  for "
     "scripts: begins, and returns\n  sudo p2pctl apply driver-update     another plan",
     takes_apply, apply, true},
    {kChange, "revert", "undo all its changes", "  sudo p2pctl revert                  shows what it undoes, and asks",
     takes_undo, request_of<Event::revert>},
    {kChange, "bench", "prove bytes and speed on every pair of GPUs (p2p-bench)", "", takes_words, bench},
    {kRun, "pause", "pause it", "  sudo p2pctl pause                   p2pctl resume continues it", takes_walk,
     request_of<Event::pause>},
    {kRun, "resume", "resume it", "  sudo p2pctl resume", takes_walk, request_of<Event::resume>},
    {kRun, "retry", "retry one that is blocked or failed",
     "  sudo p2pctl retry                   once what blocks it is resolved", takes_walk, request_of<Event::retry>},
    {kRun, "cancel", "stop it and undo it", "  sudo p2pctl cancel                  shows what it undoes, and asks",
     takes_undo, request_of<Event::cancel>},
    {kUse, "is-ready", "exit 0 where P2P is proven on this boot, else 3; 5 for less than the plan wants",
     "  p2pctl is-ready && exec torchrun train.py\n  p2pctl is-ready --for nccl", takes_uses, is_ready},
    {kUse, "env", "print P2P settings for applications, with reasons",
     "  eval \"$(p2pctl env)\"\n  p2pctl env --for vllm --format docker", takes_application, env},
    {kUse, "metrics", "print the state for the textfile collector of Prometheus' node_exporter",
     "  p2pctl metrics --output /var/lib/prometheus/node-exporter/p2pd.prom", takes_file, metrics},
    {kUse, "features", "print the state for Kubernetes' node feature discovery",
     "  p2pctl features                     labels and their values", takes_file, features},
    {kUse, "mirror", "make a signed mirror of what was built here, so that others compile nothing",
     "  sudo p2pctl mirror make /srv/p2pd --key key.pem", takes_mirror, make_mirror},
    {kHelp, "report", "write a report of this machine and of the last run as one HTML file",
     "  sudo p2pctl report                  writes p2pd-report.html", takes_page, write_report},
    {kHelp, "record", "capture this machine into one file that --root reads", "  sudo p2pctl record machine.json",
     takes_record, record},
    {kHelp, "logs", "show p2pd's messages in the system's journal", "  p2pctl logs -f", takes_lines, logs},
    {"", "completion", "print a shell's completion script",
     "  p2pctl completion bash >~/.local/share/bash-completion/completions/p2pctl", takes_shell, completion},
};

constexpr const char* kFooter = R"(Examples:
  p2pctl doctor                is P2P proven here? if not, what is in the way
  p2pctl plan                  what apply would change
  sudo p2pctl apply            make it so; asks first
  p2pctl status --watch        follow the run, also after a reboot
  sudo p2pctl revert           take everything back
  p2pctl VERB --help           the options of a verb; man p2pctl has all of it

Exit codes:
  0  done, or nothing to do; doctor, status: P2P is proven on this boot,
     or every step of a plan without a proof holds
  1  error
  2  something would change, or has changed (doctor, verify,
     plan --detailed-exitcode); nobody could be asked (--yes)
  3  not proven on this boot (is-ready, status, env)
  4  the operator must act first
  5  proven for less than the plan wants)";

/// Error if the first word is no verb.
Result<void> check_verb(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end()) return {};
  return fail(ErrorCode::invalid, fmt::format("unknown verb \"{}\"{}", harmless(word), did_you_mean(word, names)),
              "\"p2pctl --help\" lists them");
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

void declare(CLI::App& app, const Verb& verb, Options& options) {
  app.add_option("--root", options.root, "work on this tree: an image or a machine record")->option_text("TREE");
  app.add_option("--state", options.state, "state directory (default: /var/lib/p2pd, or beside the tree)")
      ->option_text("DIR");
  app.add_flag("--json", options.json, "print JSON");
  verb.options(app, options);
}

/// Exit code where nobody reads the output any more, as `p2pctl catalogue | head` ends: that of a signal, and no
/// message.
constexpr int kNobodyReads = 128 + SIGPIPE;

/// Occupies the numbers of closed standard streams, which an opened file would get otherwise; reads and output fail.
void occupy_standard_streams() {
  for (const auto& [fd, mode] : {std::pair(STDIN_FILENO, O_WRONLY), {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_RDWR}})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", mode);
}

/// `code`, if standard output could be written.
int written(int code) {
  const bool failed = std::fflush(stdout) != 0;
  if (failed && errno == EPIPE) return kNobodyReads;
  if (!failed && std::ferror(stdout) == 0) return code;
  return print_error(Context(), {ErrorCode::io, "cannot write to standard output", ""});
}

int main(int argc, char** argv, const Registry& registry) {
  occupy_standard_streams();
  signal(SIGPIPE, SIG_IGN);  // a closed pipe becomes an error instead of a signal
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // "help VERB" is "VERB --help"
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  Context context;
  context.registry = registry;
  context.options.json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  if (const Result<void> verb = words.size() > 1 ? check_verb(words[1]) : Result<void>(); !verb)
    return print_error(context, verb.error());
  CLI::App app("p2pctl: GPU peer-to-peer over PCIe, made to work and proven", "p2pctl");
  app.set_version_flag("-V,--version", "p2pctl " P2PD_VERSION);
  app.add_option("-H,--host", context.options.host, "of that machine, over ssh; with the verbs that take it")
      ->option_text("[USER@]HOST");
  app.footer(kFooter);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.require_subcommand(0, 1);  // "plan verify" is a plan, not the verb
  const Verb* chosen = nullptr;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    if (!verb.examples.empty()) sub->footer("Examples:\n" + std::string(verb.examples));
    declare(*sub, verb, context.options);
    sub->group(std::string(verb.group));  // last: verbs of a verb would be in it
    sub->callback([&, sub] {
      chosen = &verb;
      context.options.words = sub->remaining();
      if (!context.options.host.empty() && sub->get_option_no_throw("--host") == nullptr)
        throw CLI::ValidationError("-H", fmt::format("\"{}\" reads this machine only", verb.name));
    });
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
    if (chosen == nullptr && argc > 1) throw CLI::RequiredError("A verb");
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(asked, text);
    std::fputs(narrow_help(text.str()).c_str(), stdout);
    return written(code);
  } catch (const CLI::ParseError& error) {
    const std::vector<CLI::App*> verb = app.get_subcommands();
    return print_error(context, {ErrorCode::invalid, harmless(error.what()),
                                 fmt::format("\"p2pctl {}--help\" shows what it takes",
                                             verb.empty() ? "" : verb.front()->get_name() + " ")});
  }
  if (chosen == nullptr) {
    std::fputs(narrow_help(app.help()).c_str(), stdout);
    return written(kDone);
  }
#ifdef P2PD_PORTABLE
  const bool allows = context.options.catalogue_verb != nullptr && context.options.catalogue_verb != catalogue_diff;
  const bool changes = allows || chosen->group == kChange || chosen->group == kRun || chosen->run == make_mirror;
  if (changes && chosen->run != bench && context.options.host.empty())
    return print_error(context,
                       {ErrorCode::invalid, fmt::format("{} needs p2pd installed; this is p2pctl alone", chosen->name),
                        "install the package of the same release: sudo apt install ./p2pd_" P2PD_VERSION "_amd64.deb"},
                       kBlocked);
#endif
  log::start("p2pctl", log::Level::warning);
  try {
    const bool there = chosen->by_ssh && !context.options.host.empty();
    const Result<int> code =
        there ? run_on_host(context, std::vector<std::string>(argv + 1, argv + argc)) : chosen->run(context);
    if (!code)
      return print_error(context, code.error(), code.error().code == ErrorCode::unconfirmed ? kChanges : kError);
    return written(*code);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) return kNobodyReads;
    if (std::ferror(stdout) != 0) return written(kError);
    return print_error(context, {ErrorCode::io, std::string("unexpected: ") + error.what(), ""});
  } catch (const std::exception& error) {
    return print_error(context, {ErrorCode::invalid, std::string("unexpected: ") + error.what(), ""});
  }
}

}  // namespace p2pd::ctl
