// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kInstalledByRunfile = "/var/lib/nvidia";  ///< notes of NVIDIA's installer, root only

/// File that exists while NVIDIA's installer runs, and stays if that fails or is killed.
inline constexpr std::string_view kInstallerAtWork = "/var/lib/p2pd/before-runfile/installing";

/// Files that NVIDIA's installer installed, by its own list: /var/lib/nvidia/log, which nvidia-uninstall reads.
struct RunfileManifest {
  struct Installed {
    std::string path;
    std::string target;  ///< target of a symbolic link; empty: a file
  };
  std::string version;  ///< "570.86.16"
  std::vector<Installed> installed;
};

/// Parses the text of the list (backup.c of nvidia-installer): version, description, then entries of two or three
/// lines. ErrorCode::invalid names the line that is no entry.
Result<RunfileManifest> parse_runfile_manifest(std::string_view text);

/// Driver that a runfile installed on `host`; nullopt if none did.
Result<std::optional<RunfileManifest>> runfile_manifest(const Host& host);

/// Reason why `host` does not have all of the user space of `version`; empty: it has.
std::string lacking_userspace(const Host& host, const std::optional<RunfileManifest>& manifest,
                              const std::string& version);

/// Arguments with which the installer of `version` installs the user space alone, asks nothing and logs to `log`.
std::vector<std::string> installer_arguments(const std::string& version, const std::string& log);

/// Reason why the installer stopped, from its log: one cause, with what to do next. The installer itself only exits
/// with 1.
Error installer_failure(std::string_view log);

}  // namespace p2pd
