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

using Json = nlohmann::json;

constexpr std::string_view kSlices[] = {"/sys/fs/cgroup/system.slice/", "/sys/fs/cgroup/systemd/system.slice/"};
constexpr std::string_view kUnits[] = {"apt-daily.service", "apt-daily-upgrade.service", "snapd.seeded.service"};

/// Holders of the lock files; null if there is no table of locks to read.
Result<Json> held_locks(const Host& host, Finding& finding) {
  const auto locks = TRY(package_locks(host));
  if (!locks) return Json();
  Json held = Json::array();
  for (const PackageLock& lock : *locks) {
    held.push_back({{"file", lock.file}, {"pid", lock.pid}, {"process", lock.process}});
    finding.evidence.push_back({"/proc/locks", fmt::format("{}: process {} {}", lock.file, lock.pid, lock.process)});
  }
  return held;
}

/// "seeded": true in snapd's state; null if it is unreadable or snapd is missing.
Json snapd_seeded(const Host& host) {
  const auto text = host.files().read("/var/lib/snapd/state.json", 32U << 20);
  if (!text) return nullptr;
  std::size_t at = text->find("\"seeded\"");
  if (at == std::string::npos) return false;
  at = text->find_first_not_of(" \t\n:", at + 8);
  return at != std::string::npos && text->compare(at, 4, "true") == 0;
}

/// Background installations, as far as files show.
Json busy_with(const Host& host, const Json& seeded, Finding& finding) {
  Json busy = Json::array();
  const auto add = [&](std::string_view what, std::string source, std::string value) {
    busy.push_back(what);
    finding.evidence.push_back({std::move(source), std::move(value)});
  };
  for (const std::string_view unit : kUnits)  // systemd removes the cgroup of a unit that has ended
    for (const std::string_view slice : kSlices)
      if (std::string path = fmt::format("{}{}", slice, unit); host.files().exists(path))
        add(unit, std::move(path), "there");
  const bool started = host.files().exists("/run/cloud-init") && !host.files().exists("/run/cloud-init/disabled");
  if (started && !host.files().exists("/run/cloud-init/result.json"))
    add("cloud-init", "/run/cloud-init/result.json", "not there");
  const bool seeds = seeded == false && host.files().exists("/var/lib/snapd/seed/seed.yaml");
  if (seeds) add("snapd", "/var/lib/snapd/state.json", "not seeded");
  return busy;
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  Json& facts = finding.facts;
  facts["locks"] = TRY(held_locks(host, finding));
  facts["snapd_seeded"] = snapd_seeded(host);
  facts["busy"] = busy_with(host, facts["snapd_seeded"], finding);
  finding.verdict = Verdict::fail;
  if (facts["locks"].is_array() && !facts["locks"].empty()) {
    const Json& lock = facts["locks"].front();
    finding.summary =
        fmt::format("packages are being installed now: process {} {} holds {}", lock["pid"].get<int64_t>(),
                    lock["process"].get<std::string>(), lock["file"].get<std::string>());
    finding.next = "Wait until it has ended; do not remove the lock file.";
  } else if (!facts["busy"].empty()) {
    finding.summary = facts["busy"].front().get<std::string>() + " is still running and may install packages";
    finding.next = "Wait until it has ended (\"cloud-init status --wait\", \"snap wait system seed.loaded\").";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = "no packages are being installed";
  }
  return finding;
}

}  // namespace

extern const Probe kPackageActivity;
const Probe kPackageActivity = {
    .id = "package-activity",
    .asserts = "no process installs packages now, or may do so soon",
    .check = check,
    .transient = true,
    .skip_on_image = true,
};

}  // namespace p2pd
