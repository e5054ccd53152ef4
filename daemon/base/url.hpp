// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace p2pd {

/// Removes "me:secret@" of "https://me:secret@host/x" anywhere in `text`.
std::string without_user_info(std::string text);

}  // namespace p2pd
