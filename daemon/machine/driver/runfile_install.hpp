// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kInstalledByRunfile =
    "/var/lib/nvidia";  ///< what NVIDIA's installer notes, root only

/// There from before NVIDIA's installer starts until it has ended well: else it was killed in between.
inline constexpr std::string_view kInstallerAtWork = "/var/lib/p2pd/before-runfile/installing";

/// What NVIDIA's installer laid down, as its own list has it: /var/lib/nvidia/log, read by nvidia-uninstall.
struct RunfileManifest {
  struct Installed {
    std::string path;
    std::string target;  ///< of a symbolic link; empty: a file
  };
  std::string version;  ///< "570.86.16"
  std::vector<Installed> installed;
};

/// Reads the text of the list (backup.c of nvidia-installer): version, description, then entries of two or three lines.
/// ErrorCode::invalid names the line that is none.
Result<RunfileManifest> parse_runfile_manifest(std::string_view text);

/// The driver that a runfile installed on `host`; nothing where none did.
Result<std::optional<RunfileManifest>> runfile_manifest(const Host& host);

/// Why `host` does not have all of the user space of `version`; empty: it has.
std::string lacking_userspace(const Host& host, const std::optional<RunfileManifest>& manifest,
                              const std::string& version);

/// Arguments with which the installer of `version` lays down the user space alone, asks nothing and logs to `log`.
std::vector<std::string> installer_arguments(const std::string& version, const std::string& log);

/// Why the installer stopped, out of its log: one cause, with what to do next. The installer itself only exits with 1.
Error installer_failure(std::string_view log);

}  // namespace p2pd
