// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Value in the last line NAME=VALUE of `text`, without quotes around it; empty: there is none. For files of plain
/// assignments: a kernel's .config, os-release, framework.conf of DKMS.
std::string assigned_value(const std::string& text, std::string_view name);

/// Compiler of a kernel; its modules need the same.
struct Compiler {
  std::string family;  ///< "gcc" or "clang"
  int major = 0;

  std::string text() const { return family + "-" + std::to_string(major); }  ///< also the package of Debian and Ubuntu
  bool operator==(const Compiler&) const = default;
};

/// Parses CONFIG_CC_VERSION_TEXT or /proc/version: "gcc-12 (Debian 12.2.0-14) 12.2.0" is gcc 12.
std::optional<Compiler> parse_compiler(std::string_view text);

/// A kernel that modules are built for: bootable or running on this host.
struct BuildTarget {
  std::string release;  ///< "6.1.0-47-amd64"
  bool running = false;
  std::optional<Compiler> compiler;
  std::string compiler_source;           ///< file that names it, or that would
  bool has_headers = false;              ///< build() holds a Makefile
  std::vector<std::string> strict = {};  ///< its options that make a warning end a build, "CONFIG_WERROR"
  bool compiler_installed = false;
  std::string headers = {};  ///< package of its headers, see headers_package()

  std::string build() const { return "/lib/modules/" + release + "/build"; }
};

/// "6.19.8-generic makes warnings errors (CONFIG_WERROR): p2pd builds without that; others' DKMS builds may fail"
std::string strictness_of(const BuildTarget& target);

/// Lists every bootable kernel and the running one, oldest first. An Error: not even one is known.
Result<std::vector<BuildTarget>> build_targets(const Host& host);

/// Text of `header` ("include/linux/pci.h") in the headers of `target`, which Debian splits over two directories.
Result<std::string> kernel_header(const Host& host, const BuildTarget& target, std::string_view header);

/// Needs of a driver build beside room and source: present, missing and unknown ones.
struct BuildTools {
  std::vector<std::string> lacking;   ///< missing ones in words: "headers of 6.1.0-47-amd64"
  std::vector<std::string> packages;  ///< packages of Debian, Ubuntu and Proxmox VE that contain them
  std::vector<std::string> unclear;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<Evidence> evidence;
};

/// Checks headers and compiler of the running and of the newest kernel; make, git, g++ and xz; and `dkms` if it
/// installs the modules.
Result<BuildTools> build_tools(const Host& host, bool dkms);

/// Package manager of a family of distributions: of Debian and Ubuntu, of Arch Linux and CachyOS, of Fedora and Nobara.
enum class PackageManager { apt, pacman, dnf, other };

/// Distribution of the system: keys of os-release.
struct Distribution {
  std::string id;                                  ///< "debian"; empty: not known
  std::string name;                                ///< "Debian"
  std::string version;                             ///< "12"; empty if it has none
  PackageManager manager = PackageManager::other;  ///< also of systems that declare to be like one of its family
  std::string product = {};  ///< "Proxmox VE 9", whose os-release is Debian's; empty: the distribution itself

  bool uses_apt() const { return manager == PackageManager::apt; }
  bool lacks_apt() const { return !id.empty() && !uses_apt(); }
  /// "Ubuntu 24.04"; "Linux Mint 22.3, not tested with p2pd" if it is none of those in README.md; empty: not known.
  std::string text() const;
};
Distribution distribution(const Host& host);

/// Package with the headers of kernel `release` on this system: "linux-headers-6.1.0-37-amd64",
/// "proxmox-headers-6.17.2-1-pve", "kernel-devel-6.17.7-300.fc43.x86_64", "linux-cachyos-headers".
std::string headers_package(const Host& host, const std::string& release);
/// Package with its image and modules, of systems with apt: "linux-image-6.1.0-37-amd64",
/// "proxmox-kernel-6.17.2-1-pve".
std::string kernel_package(const Host& host, const std::string& release);

}  // namespace p2pd
