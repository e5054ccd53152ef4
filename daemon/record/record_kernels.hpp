// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "record/record_target.hpp"

namespace p2pd {

/// Adds stand-ins of the NVIDIA modules: ELF files with only the build id, and the version, licence and kernel of
/// .modinfo, whether the module is compressed or not.
void record_module_files(const Host& host, RecordTarget& target);

/// Adds stand-ins of the headers of every kernel that modules would be built for, with the lines that compat rules look
/// for.
void record_headers(const Host& host, RecordTarget& target);

/// Adds the kernel's log of this boot, at the path it was read from: every record, with the text of those that checks
/// read.
void record_kernel_log(const Host& host, RecordTarget& target);

}  // namespace p2pd
