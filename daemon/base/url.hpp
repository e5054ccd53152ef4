// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace p2pd {

/// "https://me:secret@host/x" without "me:secret@", wherever it stands in `text`.
std::string without_user_info(std::string text);

}  // namespace p2pd
