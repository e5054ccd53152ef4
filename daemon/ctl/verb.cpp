// SPDX-License-Identifier: MIT
// Helpers shared by the verbs: root tree, plan, errors, confirmation, written files.
#include "ctl/verb.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/directories.hpp"
#include "base/image_runner.hpp"
#include "base/recorded.hpp"
#include "base/root.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "plan/config.hpp"
#include "plan/resolve.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {

Result<std::unique_ptr<CommandRunner>> Context::runner(int stop_fd) const {
  const Root tree = TRY(root());
  if (RecordedRunner::is_record(tree)) return std::make_unique<RecordedRunner>(tree, stop_fd);
  if (!tree.live()) return std::make_unique<ImageRunner>(tree, stop_fd);
  return std::make_unique<ProcessRunner>("/", stop_fd);
}

Result<CommandRunner*> Context::kept_runner(int stop_fd) const {
  return runners_.emplace_back(TRY(runner(stop_fd))).get();
}

Result<Host> Context::host(int stop_fd) const { return Host(TRY(root()), *TRY(kept_runner(stop_fd))); }

Result<std::unique_ptr<const Host>> Context::host_of_plan() const { return host_of_plan(*TRY(kept_runner(-1))); }

Result<std::unique_ptr<const Host>> Context::host_of_plan(CommandRunner& runner, bool ask_ahead) const {
  Host all(TRY(root()), runner);
  if (Result<Plan> asked = plan()) {
    const auto asks = [&](const Step& step) { return registry.probe(step.check)->asks_driver; };
    if (ask_ahead && std::ranges::any_of(asked->steps, asks)) ask_driver(all, runner);
    choose_gpus(all, *asked, registry);
  }
  return all.snapshot();
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

Result<Plan> Context::plan() const {
  if (const auto loaded = plans_.find(options.plan); loaded != plans_.end()) return loaded->second;
  return plans_.emplace(options.plan, TRY(load_plan(TRY(load_config()), options.plan, registry))).first->second;
}

std::filesystem::path Context::state() const {
  if (options.state.empty()) return state_directory(options.root);
  return options.state;
}

int print_error(const Context& context, const Error& error, int code) {
  if (context.options.json || context.options.format == "json")
    print_json("p2pd.error/1", {{"error", error.message}, {"code", to_string(error.code)}, {"next", error.next}});
  const std::string next = error.next.empty() ? "" : fmt::format("  next: {}\n", error.next);
  std::fputs(fmt::format("p2pctl: {}\n{}", error.message, next).c_str(), stderr);  // fmt::print() throws
  return code;
}

Result<void> require_consent(const Options& options) {
  if (options.yes || (!options.json && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1)) return {};
  return fail(ErrorCode::unconfirmed, "this changes the machine, and nobody can be asked: no terminal, or --json",
              "run it on a terminal, or with --yes");
}

Result<bool> said_yes(const Options& options, const std::string& question) {
  if (options.yes) return true;
  TRY(require_consent(options));
  fmt::print("{} [y/N] ", question);
  std::fflush(stdout);
  sigset_t none, before;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, &before);  // Ctrl-C ends the question, also after stop_signals()
  std::string answer;
  if (!std::getline(std::cin, answer)) fmt::print("\n");
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return answer == "y" || answer == "yes";
}

int not_wanted() {
  fmt::print("Nothing was changed.\n");
  return kError;
}

Result<void> replace_file(const std::string& name, std::string text, mode_t mode) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(name, error).lexically_normal();
  if (error || !std::filesystem::is_directory(path.parent_path(), error))
    return fail(ErrorCode::not_found, fmt::format("{}: its directory does not exist", name));
  FileState file;
  file.kind = FileState::Kind::regular;
  file.content = std::move(text);
  file.mode = mode;
  file.uid = ::geteuid();
  file.gid = ::getegid();
  Root root = TRY(Root::open("/"));
  return root.put(path.string(), file);
}

}  // namespace p2pd::ctl
