// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// The words by which a text tells whose machine it is about.
struct Identity {
  std::string host_name;           ///< with its domain, where it has one
  std::string machine_id = {};
  std::vector<std::string> users = {};  ///< names of people who have an account, and what they are called
};
Identity identity_of(const Host& host);

/// Without what names people, networks and other hosts: user info and host of a URL (those of NVIDIA, GitHub and the distributions
/// stay), IP addresses (127.0.0.1 and 0.0.0.0 stay), USER@HOST, the names in `identity`, the part of a path behind /home/, and the
/// names of disks in /dev/disk/by-id, which hold their serial numbers.
std::string without_private_words(std::string text, const Identity& identity);

/// Names of units become "unit.service" and the like, but for those of p2pd, NVIDIA, the display and the system.
std::string without_unit_names(std::string text);

}  // namespace p2pd
