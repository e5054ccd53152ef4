// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kDpkgStatus = "/var/lib/dpkg/status";

/// One package as dpkg has it on record; the words of Status are dpkg's own.
struct DpkgPackage {
  std::string name;
  std::string architecture;
  std::string version;  ///< empty when never unpacked
  std::string want;     ///< "install", "hold", "deinstall", "purge", "unknown"
  std::string flag;     ///< "ok", "reinstreq"
  std::string state;    ///< "installed", "unpacked", "half-configured", "config-files", ...

  bool installed() const { return state == "installed"; }
  bool held() const { return want == "hold"; }
  /// Left in between: dpkg stopped in the middle, or waits for triggers.
  bool interrupted() const {
    return flag != "ok" || !(state == "installed" || state == "config-files" || state == "not-installed");
  }
};

/// Reads the text of a status file. ErrorCode::invalid names the line where it breaks the format or ends too early.
Result<std::vector<DpkgPackage>> parse_dpkg_status(std::string_view text);

/// Every package of `host`; ErrorCode::not_found where dpkg is not used.
Result<std::vector<DpkgPackage>> dpkg_packages(const Host& host);

}  // namespace p2pd
