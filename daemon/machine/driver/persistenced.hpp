// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

inline constexpr std::string_view kPersistencedProgram = "/usr/bin/nvidia-persistenced";
inline constexpr std::string_view kPersistencedService = "nvidia-persistenced.service";
inline constexpr std::string_view kPersistencedUnit = "/etc/systemd/system/nvidia-persistenced.service";

/// State of nvidia-persistenced in systemd's files.
struct Persistenced {
  std::string unit;     ///< unit file that counts, by systemd's order of directories; empty: none
  std::string command;  ///< command of its last ExecStart=, drop-ins in /etc included
  std::string said_by;  ///< file with that line
  bool masked = false;
  std::string enabled_by;  ///< link that starts it at boot; empty: none

  /// True if it starts at boot, and keeps the GPUs initialised.
  bool holds() const { return !masked && !enabled_by.empty() && persists(); }
  bool persists() const { return !command.empty() && command.find("--no-persistence-mode") == std::string::npos; }
};

Result<Persistenced> persistenced(const Host& host);

/// Unit that p2pd writes to kPersistencedUnit.
std::string persistenced_unit();

/// Checks that systemd is the init that runs now: neither in an image nor in a machine record.
bool systemd_runs(const Host& host);

/// Checks that the service runs now; only if systemd_runs().
Result<bool> persistenced_runs(const Host& host);

}  // namespace p2pd
