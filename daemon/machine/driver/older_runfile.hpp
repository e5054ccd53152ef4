// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/driver/runfile_install.hpp"
#include "machine/modules/archive.hpp"

namespace p2pd {

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

}  // namespace p2pd
