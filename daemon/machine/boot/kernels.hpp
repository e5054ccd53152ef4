// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One kernel that can be booted, with its modules and headers.
struct Kernel {
  std::string version;              ///< version of /boot/vmlinuz-VERSION, "6.1.0-37-amd64"
  bool modules = false;             ///< /lib/modules/VERSION is a directory
  bool headers = false;             ///< /lib/modules/VERSION/build leads to a directory
  std::vector<std::string> nvidia;  ///< files of module nvidia; depmod prefers the first
};

/// Finds modules and headers of `version`, bootable or not.
Kernel kernel_of(const Host& host, const std::string& version);

/// Kernels in /boot, the newest last by Debian's order of versions; not_found if there are none.
Result<std::vector<Kernel>> bootable_kernels(const Host& host);

/// Number of CPUs in a list of sysfs such as "0-3,8"; nothing for other text.
std::optional<std::int64_t> count_cpus(const std::string& list);

/// Number of CPUs that only start while the IOMMU remaps interrupts: on AMD those with an APIC ID of 255 or more,
/// however few there are; on Intel none, since VT-d remaps interrupts without translation, too. Nothing if it is not
/// known.
std::optional<std::int64_t> cpus_that_need_iommu(const Host& host);

}  // namespace p2pd
