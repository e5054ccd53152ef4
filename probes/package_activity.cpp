// SPDX-License-Identifier: MIT
// package-activity: no process installs packages now, and none is running that may.
// Such a process holds dpkg's locks, a driver swap or a restart would interrupt it, and an upgrade in the
// background can change the driver under a benchmark: the first minutes of a cloud machine do all that.
// Reads /proc/locks against the inodes of the lock files, cgroups of units that install, /run/cloud-init, snapd's
// state. Runs nothing, so it neither takes nor waits for a lock. Reference: proc_locks(5); apt's daily units;
// cloud-init's boot stages.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/boot/package_locks.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kSlices[] = {"/sys/fs/cgroup/system.slice/", "/sys/fs/cgroup/systemd/system.slice/"};
constexpr std::string_view kUnits[] = {"apt-daily.service", "apt-daily-upgrade.service", "snapd.seeded.service"};

/// True if snapd's state has "seeded", but not as true.
bool is_unseeded(const Host& host) {
  const auto text = host.files().read("/var/lib/snapd/state.json", 32U << 20);
  if (!text) return false;
  std::size_t at = text->find("\"seeded\"");
  if (at == std::string::npos) return true;
  at = text->find_first_not_of(" \t\n:", at + 8);
  return at == std::string::npos || text->compare(at, 4, "true") != 0;
}

/// Background installations, as far as files show.
std::vector<std::string> busy_with(const Host& host, Finding& finding) {
  std::vector<std::string> busy;
  const auto add = [&](std::string_view what, std::string_view source, std::string_view value) {
    busy.emplace_back(what);
    finding.saw(source, value);
  };
  for (const std::string_view unit : kUnits)  // systemd removes the cgroup of a unit that has ended
    for (const std::string_view slice : kSlices)
      if (const std::string path = fmt::format("{}{}", slice, unit); host.files().exists(path))
        add(unit, path, "there");
  const bool started = host.files().exists("/run/cloud-init") && !host.files().exists("/run/cloud-init/disabled");
  if (started && !host.files().exists("/run/cloud-init/result.json"))
    add("cloud-init", "/run/cloud-init/result.json", "not there");
  if (is_unseeded(host) && host.files().exists("/var/lib/snapd/seed/seed.yaml"))
    add("snapd", "/var/lib/snapd/state.json", "not seeded");
  return busy;
}

Result<Finding> check(const Host& host, const Parameters&) {
  const auto locks = TRY(package_locks(host)).value_or(std::vector<PackageLock>());
  Finding finding;
  for (const PackageLock& lock : locks)
    finding.saw("/proc/locks", fmt::format("{}: process {} {}", lock.file, lock.pid, lock.process));
  const std::vector<std::string> busy = busy_with(host, finding);
  finding.facts = {{"busy", busy}};
  if (!locks.empty())
    finding.set(Verdict::fail,
                fmt::format("packages are being installed now: process {} {} holds {}", locks.front().pid,
                            locks.front().process, locks.front().file),
                "Wait until it has ended; do not remove the lock file.");
  else if (!busy.empty())
    finding.set(Verdict::fail, busy.front() + " is still running and may install packages",
                "Wait until it has ended (\"cloud-init status --wait\", \"snap wait system seed.loaded\").");
  else
    finding.set(Verdict::pass, "no packages are being installed");
  return finding;
}

}  // namespace

extern const Probe kPackageActivity = {
    .id = "package-activity",
    .asserts = "no process installs packages now, or may do so soon",
    .check = check,
    .transient = true,
    .skip_on_image = true,
};

}  // namespace p2pd
