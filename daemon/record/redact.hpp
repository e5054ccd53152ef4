// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd {

/// Removes serial numbers, UUIDs, process names, and the builder ("(root@box)") from a text of the driver.
std::string without_identity(std::string_view text);

/// Removes the values of arguments that may name host or network from a kernel command line, or a file of
/// /etc/default/grub.
std::string without_private_arguments(std::string text);

/// Zeroes UUIDs, MAC addresses, and the value after "UUID="; keeps lengths.
std::string without_ids(std::string text);

/// Replaces `host_name`, with a domain after it, by "host" as a whole word; "my-box" in
/// "/dev/mapper/my--box-root" too. Keeps a name that many machines have ("debian"), or of less than three letters.
std::string without_host_name(std::string text, const std::string& host_name);

/// Replaces "(jo@box)", the builder and host of a kernel or a module, by "(user@host)".
std::string without_builder(std::string text);

/// Removes ids, serial numbers, network addresses, and names of host and processes from a line of the kernel's log.
std::string log_line_without_identity(std::string line, const std::string& host_name);

/// Replaces letters and digits by zeros; keeps "N/A" and a leading "GPU-".
std::string zeroed(std::string_view value);

}  // namespace p2pd
