// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// True when grub-mkconfig, which sources /etc/default/grub and grub.d/*.cfg, gives the default entry every one of
/// `arguments` once p2pd's drop-in appends them.
///
/// Nothing is run: plain assignments are followed. False: a line can be evaluated only by running it. ErrorCode::invalid
/// names the file and line that is in the way: a read-only variable, a later assignment, a "--", a value of two lines.
Result<bool> grub_defaults_keep(const Host& host, const std::vector<std::string>& arguments);

/// The same, and what cannot be followed is sourced by the host's sh, as grub-mkconfig does: for a fix alone.
Result<void> require_grub_defaults(Host& host, const std::vector<std::string>& arguments);

}  // namespace p2pd
