// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd {

/// `text` of nvidia-smi or /proc/driver/nvidia without what identifies a device or its users: serial numbers and
/// UUIDs become zeros, names of processes and of the host that built a module go.
std::string without_identity(std::string_view text);

/// Kernel arguments (/proc/cmdline, /etc/default/grub) without values that name the host, its network or a secret.
std::string without_private_arguments(std::string text);

}  // namespace p2pd
