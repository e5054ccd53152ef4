// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/boot/grub.hpp"

namespace p2pd {

/// What the files under /boot/grub say.
struct GrubBoot {
  GrubMenu menu;
  GrubEntry entry;  ///< the default one
  GrubCustom custom;
};

/// `path`, or nothing where it does not exist.
Result<std::string> read_if_any(const Host& host, std::string_view path);

/// `config` takes the place of grub.cfg.
Result<GrubBoot> read_grub_boot(const Host& host, std::string_view config);

/// Error unless GRUB can read `content`, which is called `name`.
Result<void> check_grub_script(const Host& host, std::string_view name, const std::string& content);

/// Generates grub.cfg as update-grub would, and puts it in place where `wanted` says so: checked by GRUB, its kernel and
/// initrd there, renamed in one step.
///
/// One that somebody else, such as the installation of a kernel, wrote meanwhile is never replaced by an older view of
/// the machine: it is generated again. ErrorCode::busy where that does not end.
Result<void> renew_grub_config(Host& host, const std::function<Result<bool>(const GrubBoot&)>& wanted);

}  // namespace p2pd
