// SPDX-License-Identifier: MIT
// Hooks: programs of the administrator that p2pd runs before it changes the machine and after a run has ended, such as
// those that drain a node of a cluster. Reference: run-parts(8).
#include "engine/hooks.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "base/log.hpp"
#include "engine/walk.hpp"
#include "machine/fetch/signature.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kHooks = "/etc/p2pd/hooks";
constexpr std::chrono::milliseconds kDeadline = 5min;

/// Programs in a directory of hooks. Directories, hidden files and leftovers of editors (drain~) and of
/// dpkg (drain.dpkg-old) are none.
std::vector<std::string> hooks_in(const Host& host, const std::string& directory) {
  std::vector<std::string> programs;
  for (const std::string& name : host.names(directory)) {
    const auto info = host.files().stat(directory + "/" + name);
    const bool ignored = name.starts_with('.') || name.ends_with('~') || name.find(".dpkg-") != name.npos;
    if (!ignored && !(info && S_ISDIR(info->st_mode))) programs.push_back(directory + "/" + name);
  }
  return programs;
}

/// Checks that run-parts does not skip a program, which nobody would notice.
Result<void> require_runnable(const Host& host, const std::string& program) {
  const std::string_view name = std::string_view(program).substr(program.rfind('/') + 1);
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  if (!std::ranges::all_of(name, plain))
    return fail(ErrorCode::denied, program + " is not run: run-parts skips its name",
                "rename it to letters, digits, _ and - only, or remove it");
  if ((TRY(host.files().stat(program)).st_mode & 0111U) == 0)
    return fail(ErrorCode::denied, program + " is not run: it is not executable",
                fmt::format("\"sudo chmod +x {}\", or remove it", program));
  return {};
}

}  // namespace

Result<void> check_hooks(const Host& host, std::string_view directory) {
  if (is_image(host)) return {};
  for (const std::string& program : hooks_in(host, fmt::format("{}/{}", kHooks, directory))) {
    TRY_IN(program + " is not run", only_root_changes(host.files(), program));
    TRY(require_runnable(host, program));
  }
  return {};
}

Result<bool> run_hooks(Host& host, std::string_view directory, const Run& run) {
  const std::string path = fmt::format("{}/{}", kHooks, directory);
  const std::vector<std::string> programs = hooks_in(host, path);
  if (programs.empty() || is_image(host)) return false;
  for (const std::string& program : programs) TRY_IN(program + " is not run", only_root_changes(host.files(), program));
  const Command parts{.argv = {"run-parts", "--exit-on-error", path},
                      .environment = {{"P2PD_RUN", std::to_string(run.id)},
                                      {"P2PD_PLAN", run.plan},
                                      {"P2PD_RESULT", run.result},
                                      {"P2PD_REASON", run.reason}},
                      .deadline = kDeadline};
  TRY_IN("hooks", host.run(parts));
  return true;
}

/// Runs the hooks before the first change of a run. A hook that fails is a transient blocker, like a machine in use;
/// one that cannot run in any of the directories needs a person.
Result<void> Walk::before_change(Pass& pass) {
  if (!is_untouched() || only_checks() || run_.plan == kEachBoot) return {};
  for (const std::string_view directory : {kBeforeChange, kAfterReady, kOnFailure}) {
    const Result<void> sound = check_hooks(s_.host, directory);
    if (sound) continue;
    pass.blockers.push_back(sound.error().text());
    pass.lasting = true;
  }
  if (pass.lasting) return {};
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

/// Records that hooks ran, if there are any. One that failed or was skipped is a warning.
Result<void> Walk::note_hooks(std::string_view directory, const Result<bool>& ran) {
  if (ran && !*ran) return {};
  if (!ran) log::warning("{}", ran.error().text());
  TRY(s_.journal.save(run_, event(ran ? "hooks" : "warning", "", ran ? std::string(directory) : ran.error().text())));
  const Result<void> sound = check_hooks(s_.host, directory);
  if (!ran || sound) return {};
  log::warning("{}", sound.error().text());
  return s_.journal.save(run_, event("warning", "", sound.error().text()));
}

}  // namespace p2pd
