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
inline constexpr std::string_view kKernelLogJoint = " | ";  ///< the same in KernelRecord::line()

/// First messages of a load of the NVIDIA driver: of NVLink's core, then, once it has the GPUs, of its own name.
inline constexpr std::string_view kDriverLoadBegins = "nvidia-nvlink: Nvlink Core is being initialized";
inline constexpr std::string_view kDriverLoaded = "NVRM: loading NVIDIA UNIX ";

/// One message of the kernel. Its text begins where the kernel began to print: a name that a user chose (of a process,
/// a file) may be in it, line breaks included, but not before it.
struct KernelRecord {
  std::string head;  ///< header of /dev/kmsg, "6,339,5140900,-;"; in a text log date, host and time, or nothing
  std::string text;

  std::vector<std::string> lines() const;  ///< text, cut at line breaks; at least one line
  std::string line() const;                ///< the same lines with kKernelLogJoint between
};

/// Messages of the kernel since it booted.
struct KernelLog {
  std::string source;     ///< file that was read
  bool complete = false;  ///< starts at the boot; else its beginning was overwritten or is in an older file
  /// Each record is whole, and from the kernel. False for lines of text: the text after a line break in a name
  /// that a user chose may look like a record, and text that a program wrote to /dev/kmsg like the kernel's.
  bool whole = false;
  std::vector<KernelRecord> records;
};

/// The kernel log of `host`: /dev/kmsg of a live one, which root may read, and others if kernel.dmesg_restrict is 0.
/// Of a directory: its dev/kmsg as a regular file (text of the device, or of `dmesg`), else var/log/kern.log. Older
/// files (kern.log.1) are not read. ErrorCode::denied: only root may read it.
Result<KernelLog> kernel_log(const Host& host);

/// Parses a log file: the kernel's records in text of /dev/kmsg, else the lines of text from the last boot in
/// it. A line that is indented, or that has no date and time unlike others, continues the one before it.
KernelLog parse_kernel_log(std::string_view text, std::string source);

/// Opens /dev/kmsg of `host`, or the file that a directory has there, before its first record.
Result<Descriptor> open_kernel_log(const Host& host);

/// Text that `device` has not returned yet, for parse_kernel_log().
struct KernelLogPart {
  std::string text;
  bool lost = false;  ///< records were overwritten before they were read
};
Result<KernelLogPart> read_kernel_log(const Descriptor& device);

}  // namespace p2pd
