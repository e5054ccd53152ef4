// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// A driver library, as programs find it.
struct DriverLibrary {
  std::string link;     ///< "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::string version;  ///< "570.86.16", the end of the name that it links to; empty if that has no version
};

/// Version "570.86.16" in "libcuda.so.570.86.16"; empty if `file` has none.
std::string driver_version_of(const std::string& file);

/// Finds each `name` ("libcuda.so.1") in the standard library directories, Debian's and NixOS's too.
std::vector<DriverLibrary> driver_libraries(const Host& host, std::string_view name);

}  // namespace p2pd
