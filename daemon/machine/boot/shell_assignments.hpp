// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// Variables of a shell; nullopt: a value that is known only by running the shell.
using ShellVariables = std::map<std::string, std::optional<std::string>>;

/// Follows a shell file of plain assignments, such as /etc/default/grub, without running any of it.
///
/// Supports NAME=WORD, `export`, `readonly`, all quotes, $NAME, ${NAME}, ${NAME:+WORD} and ${NAME:-WORD}; values of
/// `...` and $(...) are not known. ErrorCode::state: line N has anything else. ErrorCode::denied: it assigns a
/// read-only variable.
Result<void> read_shell_assignments(std::string_view text, ShellVariables& variables,
                                    std::map<std::string, int>& read_only);

}  // namespace p2pd
