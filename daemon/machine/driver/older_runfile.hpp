// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/archive.hpp"
#include "base/host.hpp"
#include "machine/driver/runfile_install.hpp"

namespace p2pd {

/// All of the driver of an earlier runfile, which NVIDIA's installer removes before it lays down its own: what its list
/// names, the list, and where it gave its modules to DKMS, their source, DKMS' records and the modules of each kernel.
struct OlderRunfile : ArchivePaths {
  std::vector<std::string> kernels;  ///< releases that have its modules
};

/// ErrorCode::state where it could not come back whole, so that it must not be removed.
Result<OlderRunfile> older_runfile(const Host& host, const RunfileManifest& manifest);

/// Packs it into the archive `tar`, and records what its removal changes of modules.*.
Result<void> pack_older_runfile(Host& host, const RunfileManifest& manifest, const std::string& tar);

/// Unpacks it, and has depmod find the modules.
Result<void> unpack_older_runfile(Host& host, const std::string& tar);

}  // namespace p2pd
