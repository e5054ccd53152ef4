// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd {

/// Text of the driver without serial numbers, UUIDs, process names, and who built it ("(root@box)").
std::string without_identity(std::string_view text);

/// A kernel command line, or a file of /etc/default/grub, without the values of arguments that may name host or
/// network.
std::string without_private_arguments(std::string text);

/// UUIDs, MAC addresses, and what stands behind "UUID=" in zeros; lengths stay.
std::string without_ids(std::string text);

/// `host_name`, with a domain behind it, becomes "host" where it stands as a word; "my-box" in
/// "/dev/mapper/my--box-root" too. A name that many machines have ("debian"), or of less than three letters, stays.
std::string without_host_name(std::string text, const std::string& host_name);

/// "(jo@box)", who built a kernel or a module and where, becomes "(user@host)".
std::string without_builder(std::string text);

/// A line of the kernel's log without ids, serial numbers, addresses of its network, and names of host and processes.
std::string log_line_without_identity(std::string line, const std::string& host_name);

/// Letters and digits become zeros; "N/A" and a leading "GPU-" stay.
std::string zeroed(std::string_view value);

}  // namespace p2pd
