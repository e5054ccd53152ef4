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

namespace p2pd {

inline constexpr std::uint64_t kInitramfsGrowth = std::uint64_t{64} << 20;  ///< bytes by which a new image may be larger

/// The initramfs that one bootable kernel starts with.
struct Initramfs {
  std::string release;  ///< "6.1.0-47-amd64"
  std::string image;    ///< "/boot/initrd.img-6.1.0-47-amd64"
};

/// Those of every bootable kernel, oldest kernel first; a kernel without one is left out.
Result<std::vector<Initramfs>> initramfs_images(const Host& host);

/// Path ("lib/modprobe.d/x.conf", without the "usr/" of a merged /usr) to size in bytes, of `ls -l` lines as
/// lsinitramfs and lsinitrd print them; a link has no size.
std::map<std::string, std::optional<std::uint64_t>> parse_initramfs_list(std::string_view text);

/// Why `initramfs` is not as modprobe.d and /lib/modules say, as far as the driver goes; empty: it is. Files are
/// compared by name and size. An Error: no tool of this system lists it, or modprobe.d is not readable.
Result<std::string> stale_initramfs(const Host& host, const Initramfs& initramfs);

/// The command that makes it anew: update-initramfs, or dracut, which gets `beside` to write to because it does not
/// replace in one go. ErrorCode::not_found: this system has neither.
Result<Command> initramfs_command(const Host& host, const Initramfs& initramfs, const std::string& beside);

}  // namespace p2pd
