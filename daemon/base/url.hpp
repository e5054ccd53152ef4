// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace p2pd {

/// Removes "me:secret@" of "https://me:secret@host/x" anywhere in `text`.
std::string without_user_info(std::string text);

/// Path on the host of a file:// URL; nullopt for others. The path is literal, without %-escapes.
std::optional<std::string> local_path(std::string_view url);

}  // namespace p2pd
