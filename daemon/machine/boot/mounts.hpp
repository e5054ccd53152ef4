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
  std::string point;   ///< "/boot", octal escapes taken off
  std::string device;  ///< "259:2", decimal major and minor; "0:..." where no block device is behind it
  std::string type;    ///< "ext4"
  std::string source;  ///< "/dev/nvme0n1p2", "rpool/ROOT/debian"
  bool read_only = false;
  std::string upper;  ///< of an overlay: the directory that takes what is written
};

/// Reads the text of /proc/self/mountinfo; ErrorCode::invalid names the line that is none.
Result<std::vector<Mount>> parse_mounts(std::string_view text);

/// The mount that `path` (absolute, without links) lies on: of those above it the longest, the later one of equals.
const Mount* mount_above(const std::vector<Mount>& mounts, std::string_view path);

/// Why what is written at `path` (absolute, without links) is lost with this boot: "it lies on tmpfs"; empty where it lasts,
/// or where nothing tells. `arguments`: the kernel's command line, which tells of a live system whose upper layer is not seen.
std::string why_volatile(const std::vector<Mount>& mounts, std::string_view path, std::string_view arguments);

/// What GRUB's drivers cannot write through, at or below block device `device` ("253:0"): "LVM", "RAID"; empty when
/// there is nothing of the kind, as on a partition or LUKS.
std::string layer_below(const Host& host, const std::string& device);

}  // namespace p2pd
