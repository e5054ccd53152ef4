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
  std::string version;              ///< release, as in /boot/vmlinuz-RELEASE, "6.1.0-37-amd64"
  std::string image;                ///< what follows "vmlinuz-" and "initrd.img-": the release, or "linux-cachyos"
  bool modules = false;             ///< /lib/modules/VERSION is a directory
  bool headers = false;             ///< /lib/modules/VERSION/build leads to a directory
  std::vector<std::string> nvidia;  ///< files of module nvidia; depmod prefers the first
};

/// Finds modules and headers of `version`, bootable or not.
Kernel kernel_of(const Host& host, const std::string& version);

/// Kernels in /boot, the newest last by Debian's order of versions; not_found if there are none. Arch's packages name
/// an image after themselves, "vmlinuz-linux-cachyos", and have that name in /lib/modules/RELEASE/pkgbase.
Result<std::vector<Kernel>> bootable_kernels(const Host& host);

/// Kernel that "proxmox-boot-tool kernel pin" made the default.
struct KernelPin {
  std::string version;  ///< "6.17.2-1-pve"; empty: none
  std::string file;     ///< file that says so
};
/// Pin of the next boot, or else of every boot.
KernelPin next_boot_pin(const Host& host);
/// Pin of every boot.
KernelPin kernel_pin(const Host& host);

/// Number of CPUs in a list of sysfs such as "0-3,8"; nothing for other text.
std::optional<std::int64_t> count_cpus(const std::string& list);

/// Number of CPUs that only start while the IOMMU remaps interrupts: on AMD those with an APIC ID of 255 or more,
/// however few there are; on Intel none, since VT-d remaps interrupts without translation, too. Nothing if it is not
/// known.
std::optional<std::int64_t> cpus_that_need_iommu(const Host& host);

}  // namespace p2pd
