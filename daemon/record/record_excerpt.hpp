// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace p2pd {

// What a machine record keeps of a file: what checks read of it, and nothing that tells whose machine it is.
// Each takes the whole text and the name of the recorded `host` (empty when not known), and gives a text of the same
// format.

std::string plain_excerpt(std::string text, const std::string& host);      ///< UUIDs and MACs zeroed
std::string arguments_excerpt(std::string text, const std::string& host);  ///< kernel arguments, private ones removed
std::string nvidia_excerpt(std::string text, const std::string& host);     ///< of the driver, without serial numbers
std::string version_excerpt(std::string text, const std::string& host);    ///< /proc/version, without who built it
std::string zeros_excerpt(std::string text, const std::string& host);      ///< letters and digits become 0
std::string first_line_excerpt(std::string text, const std::string& host);
std::string grub_menu_excerpt(std::string text, const std::string& host);    ///< without passwords and users
std::string cpuinfo_excerpt(std::string text, const std::string& host);      ///< the first processor
std::string iomem_excerpt(std::string text, const std::string& host);        ///< the ranges of PCI buses
std::string modules_dep_excerpt(std::string text, const std::string& host);  ///< the lines of nvidia's modules
std::string mounts_excerpt(std::string text, const std::string& host);       ///< mounts of the system, not of its users
std::string dm_excerpt(std::string text, const std::string& host);           ///< "LVM-" of a device-mapper UUID
std::string apt_excerpt(std::string text, const std::string& host);          ///< when apt works by itself, and on what
std::string dpkg_excerpt(std::string text, const std::string& host);    ///< the fields that machine/packages/dpkg_status.hpp reads
std::string snapd_excerpt(std::string text, const std::string& host);   ///< whether it is seeded
std::string build_log_excerpt(std::string text, const std::string& host);  ///< the line that ended the build
std::string config_excerpt(std::string text, const std::string& host);  ///< compiler and module options of a kernel

}  // namespace p2pd
