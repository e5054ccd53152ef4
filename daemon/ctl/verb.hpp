// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "plan/plan.hpp"
#include "record/record_file.hpp"

namespace CLI {
class App;
}

namespace p2pd::ctl {

/// Exit codes of p2pctl, the same for every verb.
enum Exit : int {
  kDone = 0,     ///< done, or nothing to do
  kError = 1,    ///< an error, named on standard error
  kChanges = 2,  ///< `plan --detailed-exitcode`: something would change
  kNotReady = 3, ///< `is-ready`: P2P is not proven on this boot
  kBlocked = 4,  ///< a person is needed first
  kLimited = 5,  ///< P2P is proven on this boot, for less than the plan wants
};

struct Context;

/// What was typed after the verb.
struct Options {
  std::string root = "/";
  std::string state;
  bool json = false;
  std::string name;  ///< step or file, as the verb says
  std::string plan;
  bool no_reboot = false;
  std::string host;      ///< [USER@]HOST, reached by ssh; empty: here
  bool no_dbus = false;  ///< walk in this process
  bool no_block = false;
  bool wait = false;
  bool watch = false;
  bool follow = false;
  bool accept_state_loss = false;
  bool detailed_exitcode = false;
  bool diff = false;  ///< `plan`: every check, file and command
  bool no_redact = false;
  bool unpack = false;    ///< `record`: the file `name` into `directory`
  std::string directory;
  int lines = 20;
  Result<int> (*catalogue_verb)(const Context&) = nullptr;  ///< `catalogue add`, diff or allow, with what follows
  bool yes = false;
  bool no_build = false;
  std::vector<std::string> mirrors;
  std::string repository;
  std::string branch;
  std::string id;
  std::vector<std::string> runfile_hosts;
  std::vector<std::string> uses;   ///< `is-ready --for`
  std::vector<std::string> words;  ///< what `bench` passes on
};

/// What a verb works with.
struct Context {
  Options options;
  Registry registry;

  /// Commands for a look at the tree: of this machine, of an image what starts nothing of it, or as a record has them.
  /// `stop_fd` readable: kill what runs; -1 for never.
  Result<std::unique_ptr<CommandRunner>> runner(int stop_fd = -1) const;
  Result<Host> host(CommandRunner& runner) const;
  /// The same without the GPUs that the plan leaves out.
  Result<Host> host_of_plan(CommandRunner& runner) const;
  /// The tree: of a record in one file, what is in it, unpacked as long as a context lives.
  Result<Root> root() const;
  /// For what writes to the tree: fails where it is a record in one file.
  Result<void> require_directory() const;
  /// The plan named on the command line, else the configured one.
  Result<Plan> plan() const;
  /// The same with every choice made that can be made for `host`.
  Result<Plan> plan(const Host& host) const;
  /// Where the state of the tree lies.
  std::filesystem::path state() const;
  /// A path of the tree as a person finds it here.
  std::string outside(const std::string& path) const { return options.root == "/" ? path : options.root + path; }

 private:
  mutable std::shared_ptr<NamedRoot> opened_;  ///< by the first who asks
};

/// A verb of p2pctl, as a row of a table.
struct Verb {
  std::string_view name;
  std::string_view summary;
  void (*options)(CLI::App&, Options&);
  Result<int> (*run)(const Context&);
  bool takes_plan = false;
  bool hidden = false;
};

std::span<const Verb> verbs();

/// Adds what `verb` takes to `app`.
void declare(CLI::App& app, const Verb& verb, Options& options);

/// The whole program but the tables of probes and actions.
int main(int argc, char** argv, const Registry& registry);

// One file a verb.
Result<int> doctor(const Context& context);
Result<int> show_plan(const Context& context);
Result<int> apply(const Context& context);
Result<int> revert(const Context& context);
Result<int> request(const Context& context, std::string_view event);
Result<int> status(const Context& context);
Result<int> is_ready(const Context& context);
Result<int> metrics(const Context& context);
Result<int> features(const Context& context);
Result<int> logs(const Context& context);
Result<int> completion(const Context& context);
Result<int> history(const Context& context);
Result<int> bench(const Context& context);
Result<int> explain(const Context& context);
Result<int> record(const Context& context);
Result<int> write_report(const Context& context);
Result<int> catalogue(const Context& context);
Result<int> catalogue_add(const Context& context);
Result<int> catalogue_allow(const Context& context);
Result<int> catalogue_diff(const Context& context);

}  // namespace p2pd::ctl
