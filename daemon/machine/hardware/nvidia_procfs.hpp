// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// The loaded NVIDIA module, as it names itself.
struct NvidiaVersion {
  std::string version;  ///< "570.86.16", "510.54"
  bool open = false;    ///< the open kernel module; else the proprietary one
};

/// Of "NVRM version: NVIDIA UNIX ...", or of the line in the kernel log that has the same words; blanks and line breaks
/// may be as they like, and who built it does not matter. Nothing where it is no such text.
std::optional<NvidiaVersion> parse_nvidia_version(std::string_view text);

/// Of the module that is loaded on `host`. ErrorCode::invalid: the file says something else.
Result<NvidiaVersion> nvidia_version(const Host& host);

/// What the loaded module runs with, by the names of its options ("NVreg_RegistryDwords"), values without the quotes.
/// From /proc/driver/nvidia/params, which drivers of before 2010 called registry. A few options are in none of them
/// (NVreg_RmNvlinkBandwidth; from 550 on NVreg_EnableNonblockingOpen, ...).
Result<std::map<std::string, std::string>> nvidia_params(const Host& host);

}  // namespace p2pd
