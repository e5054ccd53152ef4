// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "base/json.hpp"

namespace p2pd {

/// Needs of a driver build beside room and source: present, missing and unknown ones.
struct BuildTools {
  std::vector<std::string> lacking;   ///< missing ones in words: "headers of 6.1.0-47-amd64"
  std::vector<std::string> packages;  ///< packages of Debian and Ubuntu that contain them
  std::vector<std::string> unclear;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<Evidence> evidence;
};

/// Checks headers and compiler of the running and of the newest kernel; make, git, g++ and xz; and `dkms` if it
/// installs the modules.
Result<BuildTools> build_tools(const Host& host, bool dkms);

}  // namespace p2pd
