// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {

inline constexpr std::uint64_t kInitramfsGrowth = std::uint64_t{64}
                                                  << 20;  ///< bytes by which a new image may be larger

/// The initramfs that one bootable kernel starts with.
struct Initramfs {
  std::string release;  ///< "6.1.0-47-amd64"
  std::string image;    ///< "/boot/initrd.img-6.1.0-47-amd64"
};

/// Images of every bootable kernel, oldest kernel first; skips a kernel without one.
Result<std::vector<Initramfs>> initramfs_images(const Host& host);

/// Checks for a word of a driver: a file of modprobe.d without one is of no matter to an image.
bool mentions_driver(std::string_view text);

/// Parses `ls -l` lines of lsinitramfs and lsinitrd: path ("lib/modprobe.d/x.conf", without the "usr/" of a merged
/// /usr) to size in bytes; a link has no size.
std::map<std::string, std::optional<std::uint64_t>> parse_initramfs_list(std::string_view text);

/// Reason why `initramfs` does not match modprobe.d and /lib/modules, as far as it concerns the driver; empty: it does.
/// Files are compared by name and size. An Error: no tool of this system lists it, or modprobe.d is not readable.
Result<std::string> stale_initramfs(const Host& host, const Initramfs& initramfs);

/// Those of kLinuxDrivers that can take the GPUs at boot: nouveau, and what is loaded or belongs to a kernel that can
/// boot. `source`: file and line of modprobe.d that keeps it off; empty: none does.
Result<std::vector<BannedModule>> linux_drivers(const Host& host);

/// Checks that there is room to make it again: the old image stays until the new one exists.
Result<void> need_initramfs_room(const Host& host, const Initramfs& initramfs);

/// Command that makes it again: update-initramfs, or dracut, which writes to `beside` because it does not
/// replace in one step. ErrorCode::not_found: this system has neither.
Result<Command> initramfs_command(const Host& host, const Initramfs& initramfs, const std::string& beside);

}  // namespace p2pd
