// SPDX-License-Identifier: MIT
// Hooks: programs of the administrator that p2pd runs before it changes the machine and after a run has ended, such as
// those that drain a node of a cluster. Reference: run-parts(8).
#include "engine/hooks.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

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

}  // namespace p2pd
