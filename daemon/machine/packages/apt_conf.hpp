// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One setting of apt, in the order read: "apt::periodic::unattended-upgrade" and "1".
struct AptOption {
  std::string name;  ///< lower case; an item of a list has the list's name with "::" after it
  std::string value;
  std::string source;  ///< file that sets it

  bool operator==(const AptOption&) const = default;
};

/// Parses the text of one apt.conf file; stops at a syntax error, as apt does.
std::vector<AptOption> parse_apt_conf(std::string_view text, const std::string& source);

/// Settings of /etc/apt/apt.conf.d and /etc/apt/apt.conf in apt's order, with `#clear` applied.
Result<std::vector<AptOption>> apt_options(const Host& host);

/// The last value of `name` (lower case), or empty.
std::string apt_value(const std::vector<AptOption>& options, std::string_view name);

/// The items of list `name` (lower case).
std::vector<std::string> apt_list(const std::vector<AptOption>& options, const std::string& name);

}  // namespace p2pd
