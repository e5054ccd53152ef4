// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// What the kernel said since it booted.
struct KernelLog {
  std::string source;              ///< the file that was read
  bool complete = false;           ///< starts at the boot; else its beginning was overwritten or is in an older file
  std::vector<std::string> lines;  ///< the text of each, as in the file but without the fields of /dev/kmsg
};

/// The kernel log of `host`: /dev/kmsg of a live one, which root may read, and others where kernel.dmesg_restrict is 0.
/// Of a directory: its dev/kmsg as a regular file (what the device gave, or `dmesg`), else var/log/kern.log. Older
/// files (kern.log.1) are not read. ErrorCode::denied: root would tell.
Result<KernelLog> kernel_log(const Host& host);

/// The lines of a log file, from the last boot in it.
KernelLog parse_kernel_log(std::string_view text, std::string source);

}  // namespace p2pd
