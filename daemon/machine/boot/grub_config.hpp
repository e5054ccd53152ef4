// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/boot/grub.hpp"

namespace p2pd {

/// Content of the files under /boot/grub.
struct GrubBoot {
  GrubMenu menu;
  GrubEntry entry;  ///< the default entry
  GrubCustom custom;
};

/// Content of `path`; empty if it does not exist.
Result<std::string> read_if_any(const Host& host, std::string_view path);

/// Reads them, with `config` in place of grub.cfg.
Result<GrubBoot> read_grub_boot(const Host& host, std::string_view config);

/// Checks that GRUB can read `content`, which errors call `name`.
Result<void> check_grub_script(const Host& host, std::string_view name, const std::string& content);

/// Checks, without waiting, that renew_grub_config() can succeed: no package is being installed (ErrorCode::busy), and
/// grub-mkconfig makes a file that GRUB can read and that fits into /boot.
Result<void> check_grub_generation(const Host& host);

/// Generates grub.cfg as update-grub does, and replaces it if `wanted` returns true: checked by GRUB, with its kernel
/// and initrd present, renamed in one step.
///
/// Never replaces a file that another program, such as the installation of a kernel, wrote meanwhile by an older view
/// of the machine, but generates it again. ErrorCode::busy if that does not end.
Result<void> renew_grub_config(Host& host, const std::function<Result<bool>(const GrubBoot&)>& wanted);

}  // namespace p2pd
