// SPDX-License-Identifier: MIT
#include "machine/driver/persistenced.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "machine/modules/modprobe_d.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kUnitPlaces[] = {"/etc/systemd/system", "/run/systemd/system",
                                            "/usr/local/lib/systemd/system", "/lib/systemd/system",
                                            "/usr/lib/systemd/system"};

/// Reads the last ExecStart=, which counts.
Result<void> read_command(const Host& host, const std::string& path, Persistenced& found) {
  std::istringstream lines(TRY(host.files().read(path)));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("ExecStart=")) continue;
    found.command = line.substr(line.find('=') + 1);
    found.said_by = path;
  }
  return {};
}

}  // namespace

Result<Persistenced> persistenced(const Host& host) {
  Persistenced found;
  for (const std::string_view place : kUnitPlaces) {
    const std::string path = fmt::format("{}/{}", place, kPersistencedService);
    const FileState state = TRY(host.files().capture(path));
    if (state.kind == FileState::Kind::absent) continue;
    found.unit = path;
    found.masked = state.kind == FileState::Kind::symlink && state.content == "/dev/null";
    if (!found.masked) TRY(read_command(host, path, found));
    break;
  }
  const std::string drop_ins = std::string(kPersistencedUnit) + ".d";
  for (const std::string& name : host.names(drop_ins))
    if (name.ends_with(".conf")) TRY(read_command(host, fmt::format("{}/{}", drop_ins, name), found));
  for (const std::string& link : links_to_units(host, {std::string(kPersistencedService)}))
    if (link.starts_with(kUnitPlaces[0]) && (link.find(".wants/") != link.npos || link.find(".requires/") != link.npos))
      found.enabled_by = link;
  return found;
}

std::string persistenced_unit() {
  return fmt::format(
      R"(# Written by p2pd: NVIDIA's runfile brings the daemon without a unit.
[Unit]
Description=NVIDIA Persistence Daemon
Documentation=man:nvidia-persistenced(1)
IgnoreOnIsolate=true
# It loads the driver where nobody has; not while p2pd has new modules on trial, which p2pd loads itself.
ConditionPathExists=|/proc/driver/nvidia/version
ConditionPathExists=|!{}

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
# The daemon needs no root, its directory and the device files only; nvidia-modprobe, which makes those, does.
DynamicUser=true
RuntimeDirectory=nvidia-persistenced
TimeoutStartSec=120
ExecStartPre=-+/usr/bin/nvidia-smi --list-gpus
ExecStart={}

[Install]
WantedBy=multi-user.target
)",
      kTrialBan, kPersistencedProgram);
}

bool systemd_runs(const Host& host) { return host.live() && host.files().exists("/run/systemd/system"); }

Result<bool> persistenced_runs(const Host& host) {
  return TRY(host.run_readonly({{"systemctl", "is-active", std::string(kPersistencedService)}})).status == 0;
}

}  // namespace p2pd
