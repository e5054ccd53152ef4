// SPDX-License-Identifier: MIT
// persistenced: runs nvidia-persistenced as a unit of systemd, and starts it at each boot.
// A suitable packaged unit is only enabled. If there is none, or it turns persistence mode off, p2pd's unit is written:
// with Type=forking like NVIDIA's sample, under a user of its own, which the daemon permits if its directory and the
// device files exist before. A unit of another owner at that path is an error, and never overwritten.
// Writes /etc/systemd/system/nvidia-persistenced.service and its link in multi-user.target.wants; starts it if
// systemd runs. Undo stops it.
// Reference: nvidia-persistenced(1), PRIVILEGES; systemd.exec(5), DynamicUser=.
#include "machine/driver/persistenced.hpp"

#include <fmt/format.h>

#include "base/action.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLink = "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service";
constexpr std::string_view kMark = "# Written by p2pd";
constexpr std::chrono::minutes kDeadline{5};  // twice the unit's own limit, and a stop

Command systemctl(const char* verb) {
  Command command{{"systemctl", verb}, {}, {}, kDeadline};
  if (std::string_view(verb) != "daemon-reload") command.argv.emplace_back(kPersistencedService);
  return command;
}

/// True if p2pd's unit must be written; Error if that would overwrite a unit of another owner.
Result<bool> wants_ours(const Host& host, const Persistenced& found) {
  if (found.holds()) return false;
  if (!found.persists() && found.said_by.ends_with(".conf"))
    return fail(ErrorCode::state, found.said_by + " turns persistence mode off, regardless of the unit",
                "Remove that file, or its --no-persistence-mode.");
  if (found.unit != kPersistencedUnit) return !found.persists();
  const std::string text = found.masked ? std::string() : TRY(host.files().read(kPersistencedUnit));
  if (text.starts_with(kMark)) return text != persistenced_unit();
  if (found.masked)
    return fail(ErrorCode::state, fmt::format("{} masks nvidia-persistenced: an administrator disabled it", found.unit),
                fmt::format("Run \"systemctl unmask {}\".", kPersistencedService));
  return fail(ErrorCode::state, fmt::format("{} is a local unit: p2pd does not change it", found.unit),
              fmt::format("Enable it (\"systemctl enable --now {}\"), without --no-persistence-mode, or remove it.",
                          kPersistencedService));
}

Result<Description> describe(const Host& host, const Parameters&) {
  const Persistenced found = TRY(persistenced(host));
  Description description;
  description.summary = "start nvidia-persistenced at each boot";
  if (TRY(wants_ours(host, found)))
    description.files.push_back({std::string(kPersistencedUnit), FileState::Kind::regular, persistenced_unit()});
  if (found.enabled_by.empty()) description.commands.push_back(systemctl("enable").text());
  if (systemd_runs(host)) description.commands.push_back(systemctl("restart").text());
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  const Persistenced found = TRY(persistenced(host));
  const bool ours = TRY(wants_ours(host, found));
  if (ours) TRY(host.write(kPersistencedUnit, persistenced_unit()));
  if (found.enabled_by.empty()) {
    TRY(host.will_change(kLink));
    TRY(host.run(systemctl("enable")));
  }
  if (!systemd_runs(host) || (!ours && TRY(persistenced_runs(host)))) return {};
  TRY(host.will_change("/run/nvidia-persistenced", Restore::by_action));  // undo has a service to stop
  TRY(host.run(systemctl("daemon-reload")));
  TRY(host.run(systemctl("restart")));
  return {};
}

Result<void> undo(Host& host, const Parameters&) {
  if (!systemd_runs(host)) return {};
  if (TRY(persistenced_runs(host))) TRY(host.run(systemctl("stop")));
  TRY(host.run(systemctl("daemon-reload")));
  return {};
}

}  // namespace

extern const Action kPersistencedAction = {
    .id = "persistenced",
    .topic = "services",
    .does = "runs nvidia-persistenced as a unit of systemd, and starts it at each boot",
    .describe = describe,
    .apply = apply,
    .undo = undo,
};

}  // namespace p2pd
