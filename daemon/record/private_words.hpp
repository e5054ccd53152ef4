// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// Words of a text that identify its machine.
struct Identity {
  std::string host_name;  ///< includes its domain, if it has one
  std::string machine_id = {};
  std::vector<std::string> users = {};  ///< account names and full names of people, names of guests
};
Identity identity_of(const Host& host);

/// Removes names of people, networks and other hosts: user info and host of a URL (those of NVIDIA, GitHub and the
/// distributions stay), IP addresses (127.0.0.1 and 0.0.0.0 stay), USER@HOST, the names in `identity`, the name after
/// /home/ in a path, and names of disks in /dev/disk/by-id, which contain their serial numbers.
std::string without_private_words(std::string text, const Identity& identity);

/// Replaces `host_name`, with a domain after it, by "host" as a whole word; "my-box" in
/// "/dev/mapper/my--box-root" too. Keeps a name that many machines have ("debian"), or of less than three letters.
std::string without_host_name(std::string text, const std::string& host_name);

/// Replaces names of units with "unit.service" and the like, except those of p2pd, NVIDIA, the display and the system.
std::string without_unit_names(std::string text);

}  // namespace p2pd
