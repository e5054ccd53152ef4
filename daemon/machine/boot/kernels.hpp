// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One kernel that can be booted, and what is there for it.
struct Kernel {
  std::string version;              ///< "6.1.0-37-amd64", of /boot/vmlinuz-VERSION
  bool modules = false;             ///< /lib/modules/VERSION is a directory
  bool headers = false;             ///< /lib/modules/VERSION/build leads to a directory
  std::vector<std::string> nvidia;  ///< files of module nvidia; the first is the one that depmod prefers
};

/// What is there for `version`, booted or not.
Kernel kernel_of(const Host& host, const std::string& version);

/// Every kernel in /boot, the newest last by Debian's order of versions; none is ErrorCode::not_found.
Result<std::vector<Kernel>> bootable_kernels(const Host& host);

}  // namespace p2pd
