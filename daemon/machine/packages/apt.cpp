// SPDX-License-Identifier: MIT
#include "machine/packages/apt.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/torn_dkms.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::minutes kAptDeadline{60};  // includes builds of modules by DKMS, for each kernel
constexpr std::string_view kScratch =
    "/var/lib/p2pd/.scripts.new";  // directory of maintainer scripts: /run and /tmp may be noexec

constexpr std::uint64_t kStatusRoom = std::uint64_t{32} << 20;  // dpkg's status in both versions, and scripts

Command quietly(std::vector<std::string> argv) {
  Command command;
  command.argv = std::move(argv);
  command.environment = {{"DEBIAN_FRONTEND", "noninteractive"},
                         {"DEBIAN_PRIORITY", "critical"},
                         {"APT_LISTCHANGES_FRONTEND", "none"},
                         {"NEEDRESTART_SUSPEND", "1"},
                         {"UCF_FORCE_CONFFOLD", "1"}};
  command.deadline = kAptDeadline;
  return command;
}

Result<std::vector<DpkgPackage>> interrupted(const Host& host) {
  std::vector<DpkgPackage> packages = TRY(dpkg_packages(host));
  std::erase_if(packages, [](const DpkgPackage& package) { return !package.interrupted(); });
  return packages;
}

/// Checks that `does` names each of `ids`, and nothing else.
Result<void> require_exactly(const std::set<std::string>& does, const std::vector<std::string>& ids,
                             std::string_view verb) {
  std::set<std::string> beyond = does;
  for (const std::string& id : ids) {
    const std::string name = id.substr(0, id.find(':'));
    if (!does.contains(name) && !does.contains(id))
      return fail(ErrorCode::invalid, fmt::format("apt refuses to {} {}", verb, id));
    beyond.erase(name);
    beyond.erase(id);
  }
  if (beyond.empty()) return {};
  return fail(ErrorCode::invalid, fmt::format("apt would also {} {}", verb, fmt::join(beyond, ", ")),
              "Resolve that with apt, then try again.");
}

/// Runs `work` with a directory for what maintainer scripts leave; until `work` ends, it marks that p2pd changes
/// packages.
Result<void> with_scratch(Host& host, const std::function<Result<void>()>& work) {
  TRY(host.will_change(kScratch, Restore::discarded));
  TRY(host.make_directory(kScratch));
  auto done = work();
  if (!done && done.error().code == ErrorCode::interrupted) return done;  // the command may continue without p2pd
  auto cleared = host.remove_tree(kScratch);
  return done ? cleared : done;
}

Result<void> run_installer(Host& host, Command command) {
  command.environment["TMPDIR"] = kScratch;
  command.own_unit = true;
  TRY(host.run(command));
  return {};
}

Result<void> finish_interrupted(Host& host, const std::map<std::string, std::string>& archives, bool unwritten) {
  const auto configure = [&]() -> Result<void> {
    const auto done = run_installer(host, dpkg({"--configure", "-a"}));
    return !done && done.error().code != ErrorCode::command ? done : Result<void>();
  };
  if (unwritten) TRY(configure());  // completes the status, which then shows half-installed packages
  const std::vector<DpkgPackage> before = TRY(interrupted(host));
  log::info("dpkg was interrupted: {} packages half installed", before.size());
  std::vector<std::string> anew = {"--unpack"};
  for (const DpkgPackage& package : before)
    if (const auto archive = archives.find(package.id()); package.flag != "ok" && archive != archives.end())
      anew.push_back(archive->second);
  if (anew.size() > 1) TRY(run_installer(host, dpkg(anew)));
  TRY(configure());
  auto fixed = run_installer(host, apt_get({"--fix-broken", "install"}));
  if (fixed) return {};
  if (fixed.error().code != ErrorCode::command) return fixed;
  return fail(ErrorCode::command, "dpkg was interrupted and cannot go on: " + fixed.error().message,
              "Run \"dpkg --configure -a\" and \"apt-get --fix-broken install\", and resolve what they report.");
}

}  // namespace

Command apt_get(std::vector<std::string> words) {
  std::vector<std::string> argv = {"apt-get",
                                   "--yes",
                                   "--quiet",
                                   "-oAPT::Get::AutomaticRemove=false",
                                   "-oDPkg::Lock::Timeout=60",
                                   "-oDPkg::Options::=--force-confdef",
                                   "-oDPkg::Options::=--force-confold",
                                   "-oDPkg::Use-Pty=0"};
  argv.insert(argv.end(), words.begin(), words.end());
  return quietly(std::move(argv));
}

Command dpkg(std::vector<std::string> words) {
  words.insert(words.begin(), {"dpkg", "--force-confdef", "--force-confold"});
  return quietly(std::move(words));
}

AptPlan parse_apt_plan(std::string_view output) {
  AptPlan plan;
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string verb, package, word;
    words >> verb >> package;
    if (verb == "Remv" || verb == "Purg") plan.removes.insert(package);
    if (verb != "Inst") continue;
    while (words >> word && !word.starts_with('(')) continue;  // skips the old version, in brackets
    plan.installs[package] = word.starts_with('(') ? word.substr(1) : "";
    std::string origin;
    std::getline(words >> std::ws, origin);
    plan.origins[package] = origin.substr(0, origin.find(" ["));
  }
  return plan;
}

Result<AptPlan> simulated(const Host& host, Command command) {
  command.argv.insert(command.argv.begin() + 1, "--simulate");
  return parse_apt_plan(TRY(host.output_of(command)));
}

Result<std::uint64_t> unpacked_bytes(const Host& host, const AptPlan& plan) {
  Command command;
  command.argv = {"apt-cache", "show"};
  for (const auto& [package, version] : plan.installs) command.argv.push_back(package + "=" + version);
  std::uint64_t bytes = 0;
  std::istringstream lines(TRY(host.output_of(command)));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "Installed-Size:") bytes += kib << 10;
  }
  return bytes;
}

Result<void> require_plan(const AptPlan& plan, const std::vector<std::string>& installs,
                          const std::vector<std::string>& removes) {
  std::set<std::string> installed;
  for (const auto& [name, version] : plan.installs) installed.insert(name);
  TRY(require_exactly(installed, installs, "install"));
  return require_removals(plan, removes);
}

Result<void> require_removals(const AptPlan& plan, const std::vector<std::string>& removes) {
  return require_exactly(plan.removes, removes, "remove");
}

Result<void> fetch_archives(Host& host, Command command) {
  command.argv.insert(command.argv.begin() + 1, "--download-only");
  TRY(host.run(command));
  return {};
}

Result<void> check_packages_can_change(const Host& host) {
  TRY(wait_for_package_locks(host, std::chrono::seconds(0)));
  return need_room(host, kDpkgStatus, kStatusRoom);
}

bool changes_packages(const Host& host) { return host.files().exists(kScratch); }

Result<void> change_packages(Host& host, Command command) {
  return with_scratch(host, [&] { return run_installer(host, std::move(command)); });
}

Result<void> repair_packages(Host& host, const std::map<std::string, std::string>& archives) {
  const bool unwritten = unwritten_updates(host).value_or(0) != 0;
  if (!unwritten && TRY(interrupted(host)).empty()) return {};
  TRY(forget_torn_dkms(host));  // prevents a package of modules from failing for ever
  return with_scratch(host, [&] { return finish_interrupted(host, archives, unwritten); });
}

}  // namespace p2pd
