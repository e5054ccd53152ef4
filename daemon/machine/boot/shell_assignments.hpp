// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// Variables of a shell; nothing: a value that only running the shell tells.
using ShellVariables = std::map<std::string, std::optional<std::string>>;

/// Follows a shell file of plain assignments, such as /etc/default/grub, without running anything of it.
///
/// NAME=WORD, `export` and `readonly` with all quotes, $NAME, ${NAME}, ${NAME:+WORD} and ${NAME:-WORD}; what `...` and
/// $(...) give is not known. ErrorCode::state: line N holds anything else. ErrorCode::denied: it assigns what is read-only.
Result<void> read_shell_assignments(std::string_view text, ShellVariables& variables, std::map<std::string, int>& read_only);

}  // namespace p2pd
