// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A line break in the text of a record, as /dev/kmsg writes it.
inline constexpr std::string_view kKernelLogBreak = "\\x0a";

/// One message of the kernel. Its text begins where the kernel began to print: a name that a user chose (of a process, a
/// file) may stand in it, line breaks included, and not before it.
struct KernelRecord {
  std::string head;  ///< "6,339,5140900,-;", as of /dev/kmsg; in a text log date, host and time, or nothing
  std::string text;

  std::vector<std::string> lines() const;  ///< the text, cut at line breaks; one at least
  std::string line() const;                ///< the same with " | " between
};

/// What the kernel said since it booted.
struct KernelLog {
  std::string source;     ///< the file that was read
  bool complete = false;  ///< starts at the boot; else its beginning was overwritten or is in an older file
  /// Each record is whole, and the kernel's. Not so where lines of text were read: what follows a line break in a name
  /// that a user chose may look like a record, and what a program wrote to /dev/kmsg like the kernel's.
  bool whole = false;
  std::vector<KernelRecord> records;
};

/// The kernel log of `host`: /dev/kmsg of a live one, which root may read, and others where kernel.dmesg_restrict is 0.
/// Of a directory: its dev/kmsg as a regular file (what the device gave, or `dmesg`), else var/log/kern.log. Older
/// files (kern.log.1) are not read. ErrorCode::denied: root would tell.
Result<KernelLog> kernel_log(const Host& host);

/// The records of a log file: those of the kernel in what /dev/kmsg gave, else the lines of text from the last boot in
/// it. A line that is indented, or that has no date and time where others have, continues the one before it.
KernelLog parse_kernel_log(std::string_view text, std::string source);

/// /dev/kmsg of `host`, or the file that a directory has there, before its first record.
Result<Descriptor> open_kernel_log(const Host& host);

/// What `device` has not given yet, for parse_kernel_log().
struct KernelLogPart {
  std::string text;
  bool lost = false;  ///< records were overwritten before they were read
};
Result<KernelLogPart> read_kernel_log(const Descriptor& device);

}  // namespace p2pd
