// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A partition from which systemd-boot starts kernels: mounted, or one of those that proxmox-boot-tool keeps in step,
/// which nothing mounts: commands of p2pd do, each in a mount namespace of its own.
///
/// Paths are relative to the partition ("loader/entries/debian.conf"). Nothing is kept for undo: see
/// Restore::by_action.
class BootPartition {
 public:
  /// `place`: mount point, or "/dev/disk/by-uuid/0A1B-2C3D" if `unmounted`.
  BootPartition(std::string place, bool unmounted) : place_(std::move(place)), unmounted_(unmounted) {}

  bool unmounted() const { return unmounted_; }
  /// "/efi/loader/loader.conf"; "/dev/disk/by-uuid/0A1B-2C3D:/loader/loader.conf"
  std::string path(std::string_view file) const;
  /// Names in a directory, sorted; none if there is no such directory.
  Result<std::vector<std::string>> list(const Host& host, std::string_view directory) const;
  Result<std::string> read(const Host& host, std::string_view file) const;
  Result<bool> has(const Host& host, std::string_view file) const;
  /// Replaces a file in one step.
  Result<void> write(Host& host, std::string_view file, std::string content) const;
  /// Copies a file of the partition, if the copy is not equal already; ErrorCode::io if there is no room.
  Result<void> copy(Host& host, std::string_view from, std::string_view to) const;
  /// Removes a file, or a directory with all its content; succeeds if it is absent.
  Result<void> remove(Host& host, std::string_view file) const;

 private:
  Result<std::string> run(const Host& host, std::string_view options, std::string_view script, std::string_view file,
                          std::string input = {}) const;

  std::string place_;
  bool unmounted_;
};

inline constexpr std::string_view kProxmoxPartitions = "/etc/kernel/proxmox-boot-uuids";

/// Checks that proxmox-boot-tool copies kernels to partitions of this host.
bool uses_proxmox_boot_tool(const Host& host);

/// Those that have boot entries: of those that proxmox-boot-tool lists, the ones that are there, as for the tool itself;
/// else what is mounted at /efi, /boot and /boot/efi.
/// ErrorCode::not_found: none; ErrorCode::denied: only root can read them.
Result<std::vector<BootPartition>> boot_partitions(const Host& host);

}  // namespace p2pd
