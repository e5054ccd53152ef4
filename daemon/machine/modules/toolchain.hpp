// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

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

  std::string build() const { return "/lib/modules/" + release + "/build"; }
};

/// "6.19.8-generic makes warnings errors (CONFIG_WERROR): p2pd builds without that; others' DKMS builds may fail"
std::string strictness_of(const BuildTarget& target);

/// Lists every bootable kernel and the running one, oldest first. An Error: not even one is known.
Result<std::vector<BuildTarget>> build_targets(const Host& host);

/// Text of `header` ("include/linux/pci.h") in the headers of `target`, which Debian splits over two directories.
Result<std::string> kernel_header(const Host& host, const BuildTarget& target, std::string_view header);

/// Major versions of the installed gcc, from the names of /usr/bin, ascending.
Result<std::vector<int>> installed_gcc(const Host& host);

/// Distribution of the system: keys of os-release.
struct Distribution {
  std::string id;         ///< "debian"; empty: not known
  std::string version;    ///< "12"; empty if it has none
  bool uses_apt = false;  ///< Debian, Ubuntu, and systems that declare to be like one of them

  /// "Ubuntu 24.04"; "Linuxmint 22.3, not tested with p2pd" if it is only like one of these; empty: not known.
  std::string text() const;
};
Distribution distribution(const Host& host);

}  // namespace p2pd
