// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "record/record_target.hpp"

namespace p2pd {

/// Stand-ins of the NVIDIA modules: ELF files with nothing but the build id and what .modinfo says of version, licence
/// and kernel, whether the module is compressed or not.
void record_module_files(const Host& host, RecordTarget& target);

/// Stand-ins of the headers of every kernel that modules would be built for, with the lines that compat rules look for.
void record_headers(const Host& host, RecordTarget& target);

/// The kernel's log of this boot, at the path it was read from.
void record_kernel_log(const Host& host, RecordTarget& target, const std::string& host_name);

}  // namespace p2pd
