// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// A library of the driver, as programs find it.
struct DriverLibrary {
  std::string link;     ///< "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::string version;  ///< "570.86.16", the end of the name that it leads to; empty where that does not tell
};

/// "570.86.16" of "libcuda.so.570.86.16"; empty where `file` does not tell.
std::string driver_version_of(const std::string& file);

/// Each `name` ("libcuda.so.1") in the standard library directories, Debian's and NixOS's too.
std::vector<DriverLibrary> driver_libraries(const Host& host, std::string_view name);

}  // namespace p2pd
