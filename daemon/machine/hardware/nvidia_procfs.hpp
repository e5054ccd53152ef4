// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File with the version of the loaded module.
inline constexpr std::string_view kLoadedDriver = "/sys/module/nvidia/version";

/// The loaded NVIDIA module, by its own text.
struct NvidiaVersion {
  std::string version;  ///< "570.86.16", "510.54"
  bool open = false;    ///< open kernel module; else the proprietary one
};

/// Parses "NVRM version: NVIDIA UNIX ...", or the line in the kernel log that has the same words; ignores blanks, line
/// breaks and the builder. nullopt if it is no such text.
std::optional<NvidiaVersion> parse_nvidia_version(std::string_view text);

/// Version of the module that is loaded on `host`. ErrorCode::invalid: the file has another text.
Result<NvidiaVersion> nvidia_version(const Host& host);

/// Options that the loaded module runs with, by name ("NVreg_RegistryDwords"), values without the quotes.
/// Reads /proc/driver/nvidia/params, which drivers of before 2010 called registry. A few options are in no version of
/// it (NVreg_RmNvlinkBandwidth; from 550 on NVreg_EnableNonblockingOpen, ...).
Result<std::map<std::string, std::string>> nvidia_params(const Host& host);

/// Value of `key`, "Model", that NVIDIA's driver has for a GPU in /proc/driver/nvidia/gpus; empty if it is not loaded,
/// or has none.
std::string told_of_gpu(const Host& host, const std::string& address, const std::string& key);

}  // namespace p2pd
