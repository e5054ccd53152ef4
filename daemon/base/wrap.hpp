// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace p2pd {

/// Columns of a word; of plain ASCII as many as it has bytes.
using ColumnsOf = std::size_t (*)(std::string_view word);
inline std::size_t bytes_of(std::string_view word) { return word.size(); }

/// `text` wrapped at words to `width` columns; it begins at column `indent`, and so do its further lines. A
/// command in double quotes is not broken if one line has room for it.
std::string wrap(const std::string& text, std::size_t indent, std::size_t width, ColumnsOf columns = bytes_of);

constexpr std::size_t kColumns = 80;  ///< of a terminal whose width is not asked for

/// A line wrapped to kColumns: the words after its first gap of two spaces under themselves, or all under its first
/// one.
std::string narrow(const std::string& line);
/// The help of a command line, each line narrow().
std::string narrow_help(const std::string& help);

}  // namespace p2pd
