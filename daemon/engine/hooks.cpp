// SPDX-License-Identifier: MIT
// Hooks: programs of the administrator that p2pd runs before it changes the machine and after a run has ended, such as
// those that drain a node of a cluster. Reference: run-parts(8).
#include "engine/hooks.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "engine/walk.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kHooks = "/etc/p2pd/hooks";
constexpr std::chrono::milliseconds kDeadline = 5min;

/// Checks that only root can change a program, the target of its link, or a directory.
Result<void> check_owner(const Host& host, const std::string& path) {
  struct stat found {};
  if (::stat(TRY(host.files().real_path(path)).c_str(), &found) != 0) return fail_errno(path);
  if ((found.st_uid == 0 || found.st_uid == ::geteuid()) && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fail(ErrorCode::denied, path + " is not run: others than root can change it",
              fmt::format("sudo chown root {0} && sudo chmod go-w {0}", path));
}

}  // namespace

Result<bool> run_hooks(Host& host, std::string_view directory, const Run& run) {
  const std::string path = fmt::format("{}/{}", kHooks, directory);
  const std::vector<std::string> programs = host.names(path);
  if (programs.empty() || is_image(host)) return false;
  TRY(check_owner(host, path));
  for (const std::string& program : programs) TRY(check_owner(host, path + "/" + program));
  const Command parts{.argv = {"run-parts", "--exit-on-error", path},
                      .environment = {{"P2PD_RUN", std::to_string(run.id)},
                                      {"P2PD_PLAN", run.plan},
                                      {"P2PD_RESULT", run.result},
                                      {"P2PD_REASON", run.reason}},
                      .deadline = kDeadline};
  TRY_IN("hooks", host.run(parts));
  return true;
}

/// Runs the hooks before the first change of a run. A hook that fails is a transient blocker, like a machine in use.
Result<void> Walk::before_change(Pass& pass) {
  if (!is_untouched() || only_checks() || run_.plan == kEachBoot) return {};
  const Result<bool> ran = run_hooks(s_.host, kBeforeChange, run_);
  if (ran) return note_hooks(kBeforeChange, ran);
  pass.blockers.push_back(ran.error().text());
  return {};
}

/// Runs the same hooks before the first undo of a revert. The wait for them is as long as for users of the machine.
Result<std::optional<Walk::Outcome>> Walk::before_revert() {
  const bool begun =
      std::ranges::any_of(records_, [](const auto& known) { return known.second.status == StepStatus::reverted; });
  if (run_.rollback != Rollback::all || begun) return std::nullopt;
  for (int waited = 0;; waited += kSecondsBetweenLooks) {
    const Result<bool> ran = run_hooks(s_.host, kBeforeChange, run_);
    if (ran || waited >= kRollbackPatience) {
      TRY(note_hooks(kBeforeChange, ran));
      return std::nullopt;
    }
    const std::optional<Outcome> asked = TRY(wait_a_while(ran.error().text()));
    if (asked && asked->event == Event::stopped) return asked;
  }
}

/// Runs the hooks after a run that has ended.
Result<void> Walk::after_end() {
  if (is_open(run_.state) || run_.plan == kEachBoot || run_.result == "superseded") return {};
  const bool well = is_proven(run_.state) || run_.result == "done";
  const std::string_view hooks = well ? kAfterReady : kOnFailure;
  return note_hooks(hooks, run_hooks(s_.host, hooks, run_));
}

/// Records that hooks ran, if there are any. One that failed is a warning.
Result<void> Walk::note_hooks(std::string_view directory, const Result<bool>& ran) {
  if (ran && !*ran) return {};
  if (!ran) log::warning("{}", ran.error().text());
  return s_.journal.save(run_, event(ran ? "hooks" : "warning", "", ran ? std::string(directory) : ran.error().text()));
}

}  // namespace p2pd
