// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "base/json.hpp"

namespace p2pd {

/// What a driver build needs beside room and source: what is there, what lacks, what could not be found out.
struct BuildTools {
  std::vector<std::string> lacking;   ///< in words: "headers of 6.1.0-47-amd64"
  std::vector<std::string> packages;  ///< of Debian and Ubuntu that would bring it
  std::vector<std::string> unclear;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<Evidence> evidence;
};

/// For the running and for the newest kernel: its headers, its compiler; make, git, g++ and xz for all, and `dkms` where modules are installed through it.
Result<BuildTools> build_tools(const Host& host, bool dkms);

}  // namespace p2pd
