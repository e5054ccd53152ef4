// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"
#include "base/result.hpp"
#include "record/record_file.hpp"

namespace p2pd {

/// A machine record of `host` (tests/machines/README.md), called `name`.
///
/// It holds what checks read (record/record_files.hpp), so that each of them says the same of the record. Serial
/// numbers, UUIDs, MAC addresses, process names, passwords and the host name are left out. Member "unreadable" of its description
/// names what is there, but not readable (root would) or larger than a record wants.
Result<MachineRecord> record_machine(const Host& host, const std::string& name);

}  // namespace p2pd
