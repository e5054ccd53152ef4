// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/archive.hpp"

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

/// Driver of an earlier runfile, which NVIDIA's installer removes before it installs its own: the files of its list,
/// the list, and if it gave its modules to DKMS, their source, DKMS' records and the modules of each kernel.
struct OlderRunfile : ArchivePaths {
  std::vector<std::string> kernels;  ///< releases that have its modules
};

/// Finds it. ErrorCode::state if it could not be restored completely, so that it must not be removed.
Result<OlderRunfile> older_runfile(const Host& host, const RunfileManifest& manifest);

/// Packs it into the archive `tar`, and records the changes of modules.* that its removal makes.
Result<void> pack_older_runfile(Host& host, const RunfileManifest& manifest, const std::string& tar);

/// Unpacks it, and runs depmod for its modules.
Result<void> unpack_older_runfile(Host& host, const std::string& tar);

/// Removes files that a killed installer had installed and not noted yet: it notes each file after that, so that
/// neither its uninstaller nor a second run would recognise them. `unpacked`: directory of the runfile's content.
/// A file of that name that has other content, or that belongs to a package, stays.
Result<void> clear_unnoted_files(Host& host, const std::string& unpacked);

}  // namespace p2pd
