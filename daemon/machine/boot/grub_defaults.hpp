// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Checks that grub-mkconfig, which sources /etc/default/grub and grub.d/*.cfg, gives the default entry every one of
/// `arguments` once p2pd's drop-in appends them.
///
/// Runs nothing: follows plain assignments. False: a line can be evaluated only by running it. ErrorCode::invalid
/// names the file and line of a conflict: a read-only variable, a later assignment, a "--", a value of two lines.
Result<bool> grub_defaults_keep(const Host& host, const std::vector<std::string>& arguments);

/// Does the same, but sources other files with the host's sh, as grub-mkconfig does: for a fix alone.
Result<void> require_grub_defaults(Host& host, const std::vector<std::string>& arguments);

/// Variables of a shell; nullopt: a value that is known only by running the shell.
using ShellVariables = std::map<std::string, std::optional<std::string>>;

/// Follows a shell file of plain assignments, such as /etc/default/grub, without running any of it.
///
/// Supports NAME=WORD, `export`, `readonly`, all quotes, $NAME, ${NAME}, ${NAME:+WORD} and ${NAME:-WORD}; values of
/// `...` and $(...) are not known. ErrorCode::state: it has anything else. ErrorCode::denied: it assigns a read-only
/// variable.
Result<void> read_shell_assignments(std::string_view text, ShellVariables& variables, std::set<std::string>& read_only);

}  // namespace p2pd
