// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace p2pd {

/// Number of bytes of the UTF-8 sequence at the start of `text`; 0 if there is none (Unicode 15, table 3-7).
std::size_t utf8_sequence(std::string_view text);

bool is_utf8(std::string_view text);

/// `text` with U+FFFD in place of each byte that is not part of a character in UTF-8: what D-Bus takes.
std::string as_utf8(std::string_view text);

}  // namespace p2pd
