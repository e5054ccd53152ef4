// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"
#include "base/result.hpp"
#include "record/record_file.hpp"

namespace p2pd {

/// Makes a machine record of `host` (tests/machines/README.md), called `name`.
///
/// Holds what checks read (record/record_files.hpp), so that each returns the same for the record. Serial
/// numbers, UUIDs, MAC addresses, process names, passwords and the host name are left out. Member "unreadable" of its
/// description lists files that only root can read, or that are too large.
Result<MachineRecord> record_machine(const Host& host, const std::string& name);

}  // namespace p2pd
