// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kMountInfo = "/proc/self/mountinfo";

/// One mounted file system.
struct Mount {
  std::string point;   ///< "/boot", without octal escapes
  std::string device;  ///< "259:2", decimal major and minor; "0:..." without a block device
  std::string type;    ///< "ext4"
  std::string source;  ///< "/dev/nvme0n1p2", "rpool/ROOT/debian"
  bool read_only = false;
  std::string upper;  ///< directory of an overlay that receives what is written
};

/// Parses the text of /proc/self/mountinfo; ErrorCode::invalid names the line that is no mount.
Result<std::vector<Mount>> parse_mounts(std::string_view text);

/// Finds the mount of `path` (absolute, without links): the longest one above it, the later one of equals.
const Mount* mount_above(const std::vector<Mount>& mounts, std::string_view path);

/// Reason why data written at `path` (absolute, without links) is lost with this boot: "it lies on tmpfs"; empty if it
/// lasts, or if that is not known. `arguments`: the kernel's command line, which reveals a live system whose upper
/// layer is not seen.
std::string why_volatile(const std::vector<Mount>& mounts, std::string_view path, std::string_view arguments);

/// Layer that GRUB's drivers cannot write through, at or below block device `device` ("253:0"): "LVM", "RAID"; empty if
/// there is none, as on a partition or LUKS.
std::string layer_below(const Host& host, const std::string& device);

}  // namespace p2pd
