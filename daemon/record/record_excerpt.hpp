// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace p2pd {

// Excerpts of files for a machine record: the parts that checks read, and nothing that identifies the machine.
// Each function takes the whole text and the name of the recorded `host` (empty if not known), and returns a text of
// the same format.

std::string plain_excerpt(const std::string& text, const std::string& host);  ///< UUIDs and MACs zeroed
std::string arguments_excerpt(const std::string& text,
                              const std::string& host);  ///< kernel arguments, private ones removed
std::string nvidia_excerpt(const std::string& text, const std::string& host);  ///< driver's text without serial numbers
std::string version_excerpt(const std::string& text, const std::string& host);  ///< /proc/version without its builder
std::string zeros_excerpt(const std::string& text, const std::string& host);    ///< letters and digits replaced by 0
std::string first_line_excerpt(const std::string& text, const std::string& host);
std::string grub_menu_excerpt(const std::string& text,
                              const std::string& host);  ///< grub.cfg without passwords and users
std::string cpuinfo_excerpt(const std::string& text, const std::string& host);      ///< the first processor
std::string iomem_excerpt(const std::string& text, const std::string& host);        ///< the ranges of PCI buses
std::string modules_dep_excerpt(const std::string& text, const std::string& host);  ///< lines of nvidia's modules
std::string mounts_excerpt(const std::string& text,
                           const std::string& host);                       ///< mounts of the system, not of its users
std::string dm_excerpt(const std::string& text, const std::string& host);  ///< prefix of a device-mapper UUID, "LVM-"
std::string apt_excerpt(const std::string& text,
                        const std::string& host);  ///< times and origins of apt's automatic runs
std::string dpkg_excerpt(const std::string& text,
                         const std::string& host);  ///< fields that machine/packages/dpkg_status.hpp reads
std::string snapd_excerpt(const std::string& text, const std::string& host);      ///< state of seeding
std::string build_log_excerpt(const std::string& text, const std::string& host);  ///< line that ended the build
std::string config_excerpt(const std::string& text,
                           const std::string& host);  ///< compiler and module options of a kernel

}  // namespace p2pd
