// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "engine/transitions.hpp"
#include "plan/plan.hpp"
#include "record/record_file.hpp"

namespace CLI {
class App;
}

namespace p2pd::ctl {

/// Exit codes of p2pctl, the same for every verb.
enum Exit : int {
  kDone = 0,      ///< done, or nothing to do
  kError = 1,     ///< an error, named on standard error
  kChanges = 2,   ///< `doctor`, `plan --detailed-exitcode`: apply would change something, or prove P2P; a verb that
                  ///< changes something, without --yes and a terminal
  kNotReady = 3,  ///< `is-ready`, `env`: P2P is not proven on this boot
  kBlocked = 4,   ///< the operator must act first
  kLimited = 5,   ///< P2P is proven on this boot, for less than the plan wants
};

struct Context;
struct PlanPreview;

/// Formats in which `env` prints settings.
inline constexpr std::string_view kEnvFormats[] = {"sh", "systemd", "docker", "json", "vllm-cache"};

/// Options and arguments after the verb.
struct Options {
  std::string root = "/";
  std::string state;
  bool json = false;
  std::string name;  ///< step or file, depending on the verb
  std::string plan;
  bool no_reboot = false;
  std::string host;      ///< [USER@]HOST, reached by ssh; empty: this machine
  bool no_dbus = false;  ///< walk in this process
  bool no_block = false;
  bool wait = false;
  bool watch = false;
  bool follow = false;
  bool accept_state_loss = false;
  bool detailed_exitcode = false;
  bool diff = false;  ///< `plan`: every check, file and command
  bool all = false;   ///< `doctor`: every check; `history`: every event
  bool no_redact = false;
  std::string soak;     ///< `report`: file of "p2pctl bench --soak --save"
  bool unpack = false;  ///< `record`: the file `name` into `directory`
  std::string directory;
  int lines = 20;
  Result<int> (*catalogue_verb)(const Context&) = nullptr;  ///< `catalogue add`, diff or allow, with their arguments
  bool yes = false;
  bool no_build = false;
  bool pin_only = false;  ///< `catalogue add`: asks nothing, and allows nothing
  std::vector<std::string> mirrors;
  std::string repository;
  std::string branch;
  std::string id;
  std::vector<std::string> runfile_hosts;
  std::string key;                 ///< `mirror make`: file with the private key
  int valid_days = 90;             ///< `mirror make`
  std::vector<std::string> uses;   ///< `is-ready --for`
  std::string application;         ///< `env --for`; empty: all
  std::string format = "sh";       ///< `env --format`
  std::vector<std::string> words;  ///< arguments that `bench` passes on
};

/// Input of a verb.
struct Context {
  Options options;
  Registry registry;

  /// Runner for read-only commands on the tree: of this machine, of an image without starting programs in it, or from a
  /// record. Kills the running command once `stop_fd` is readable; -1: never.
  Result<std::unique_ptr<CommandRunner>> runner(int stop_fd = -1) const;
  /// The tree with such a runner.
  Result<Host> host(int stop_fd = -1) const;
  /// The tree for one look at it, without the GPUs that the plan leaves out.
  Result<std::unique_ptr<const Host>> host_of_plan() const;
  /// `ask_ahead`: the driver is asked in a thread from now on, if a check of the plan needs its answer.
  Result<std::unique_ptr<const Host>> host_of_plan(CommandRunner& runner, bool ask_ahead = false) const;
  /// The tree. A record in one file is unpacked for the lifetime of the context.
  Result<Root> root() const;
  /// Error if the tree is a record in one file, which cannot be written to.
  Result<void> require_directory() const;
  /// Plan named on the command line, else the configured one.
  Result<Plan> plan() const;
  /// The same with every choice made that is possible for `host`.
  Result<Plan> plan(const Host& host) const;
  /// State directory of the tree.
  std::filesystem::path state() const;
  /// Path of the tree as a path on this machine.
  std::string outside(const std::string& path) const { return options.root == "/" ? path : options.root + path; }

 private:
  Result<CommandRunner*> kept_runner(int stop_fd) const;

  mutable std::shared_ptr<NamedRoot> opened_;                    ///< opened on first use
  mutable std::vector<std::shared_ptr<CommandRunner>> runners_;  ///< of the hosts
  mutable std::map<std::string, Plan> plans_;                    ///< those that were loaded, by name
};

/// Prints an error with its next step on standard error, with --json as JSON too; returns `code`.
int print_error(const Context& context, const Error& error, int code = kError);

/// Error `unconfirmed` if a change was not agreed to with --yes, and nobody at a terminal can be asked.
Result<void> require_consent(const Options& options);

/// Asks a person at the terminal; returns true for yes, and with --yes. Error `unconfirmed` if there is no terminal.
Result<bool> said_yes(const Options& options, const std::string& question);

/// End of a verb whose change is not wanted: says so; exit code kError.
int not_wanted();

/// Writes `text` into the file `name`; a reader sees the complete old or the complete new one. A link is
/// replaced, not followed. The directory must exist.
Result<void> replace_file(const std::string& name, std::string text, mode_t mode);

/// Command that runs `words` on `host` over ssh.
std::vector<std::string> on_host(const std::string& host, const std::vector<std::string>& words);

/// Executes p2pctl with `arguments` on the host of the options, without the option that names it. Returns only if that
/// fails.
Result<int> run_on_host(const Context& context, const std::vector<std::string>& arguments);

/// Verb of p2pctl, as a row of a table.
struct Verb {
  std::string_view group;  ///< heading in the list of verbs; empty: not listed
  std::string_view name;
  std::string_view summary;
  std::string_view examples;  ///< lines for its help; may be empty
  void (*options)(CLI::App&, Options&);
  Result<int> (*run)(const Context&);
  bool takes_plan = false;
  bool by_ssh = false;  ///< with --host: runs there, over ssh
};

std::span<const Verb> verbs();

/// Adds the options and arguments of `verb` to `app`.
void declare(CLI::App& app, const Verb& verb, Options& options);

/// The whole program except the tables of probes and actions.
int main(int argc, char** argv, const Registry& registry);

// One file per verb.
Result<int> doctor(const Context& context);
/// Diagnosis from every check of a plan: schema p2pd.doctor/1, without the cost of the checks.
nlohmann::json diagnosis_of(const PlanPreview& all);
Result<int> show_plan(const Context& context);
/// Shows what apply changes, and asks; returns true for yes, or if nothing changes on a terminal.
Result<bool> wants_changes(const Context& context);
Result<int> apply(const Context& context);
/// Reverts everything, or pauses, resumes, retries or cancels the open run.
Result<int> request(const Context& context, Event event);
Result<int> status(const Context& context);
Result<int> is_ready(const Context& context);
Result<int> verify(const Context& context);
Result<int> metrics(const Context& context);
Result<int> features(const Context& context);
Result<int> env(const Context& context);
Result<int> gain(const Context& context);
Result<int> logs(const Context& context);
Result<int> completion(const Context& context);
Result<int> history(const Context& context);
Result<int> bench(const Context& context);
Result<int> explain(const Context& context);
Result<int> record(const Context& context);
Result<int> write_report(const Context& context);
Result<int> catalogue(const Context& context);
Result<int> make_mirror(const Context& context);
Result<int> catalogue_add(const Context& context);
Result<int> catalogue_allow(const Context& context);
Result<int> catalogue_diff(const Context& context);

}  // namespace p2pd::ctl
