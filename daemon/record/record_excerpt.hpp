// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace p2pd {

// Excerpts of files for a machine record: the parts that checks read, by the table of redact.cpp. Each function takes
// the whole text, and returns a text of the same format, in which a line has the same number if a check tells it.

std::string plain_excerpt(const std::string& text);             ///< UUIDs and MACs zeroed
std::string script_excerpt(const std::string& text);            ///< nothing: only p2pd's own scripts are read
std::string arguments_excerpt(const std::string& text);         ///< kernel arguments
std::string grub_defaults_excerpt(const std::string& text);     ///< assignments with kernel arguments
std::string grub_menu_excerpt(const std::string& text);         ///< entries with files and arguments, the default
std::string grub_custom_excerpt(const std::string& text);       ///< the same, and p2pd's trial block
std::string grub_environment_excerpt(const std::string& text);  ///< the saved entry
std::string modprobe_excerpt(const std::string& text);          ///< options of GPU drivers, banned modules
std::string depmod_excerpt(const std::string& text);            ///< modules that are overridden
std::string names_excerpt(const std::string& text);             ///< names of modules
std::string nccl_excerpt(const std::string& text);
std::string environment_excerpt(const std::string& text);  ///< assignments of NCCL's variables, in their lines
std::string os_release_excerpt(const std::string& text);
std::string pins_excerpt(const std::string& text);        ///< pinned packages
std::string unit_excerpt(const std::string& text);        ///< its command
std::string catalogue_excerpt(const std::string& text);   ///< without comments
std::string nvidia_excerpt(const std::string& text);      ///< driver's text without serial numbers
std::string nvidia_smi_excerpt(const std::string& text);  ///< output of nvidia-smi -q
std::string version_excerpt(const std::string& text);     ///< /proc/version without its builder
std::string zeros_excerpt(const std::string& text);       ///< letters and digits replaced by 0
std::string first_line_excerpt(const std::string& text);
std::string cpuinfo_excerpt(const std::string& text);      ///< the first processor, and every APIC ID
std::string iomem_excerpt(const std::string& text);        ///< the ranges of PCI buses
std::string modules_dep_excerpt(const std::string& text);  ///< lines of nvidia's and Nova's modules
std::string framebuffer_excerpt(const std::string& text);  ///< of boot_params: kind and place of the framebuffer
std::string mounts_excerpt(const std::string& text);       ///< mounts of the system, not of its users
std::string dm_excerpt(const std::string& text);           ///< prefix of a device-mapper UUID, "LVM-"
std::string apt_excerpt(const std::string& text);          ///< times and exceptions of apt's automatic runs
std::string dpkg_excerpt(const std::string& text);         ///< fields that machine/packages/dpkg_status.hpp reads
std::string snapd_excerpt(const std::string& text);        ///< state of seeding
std::string build_log_excerpt(const std::string& text);    ///< line that ended the build, if signatures.yaml knows it
std::string config_excerpt(const std::string& text);       ///< compiler and module options of a kernel

}  // namespace p2pd
