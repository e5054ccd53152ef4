// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.hpp"
#include "base/json.hpp"

namespace p2pd::ctl {

constexpr std::size_t kScreen = 78;  ///< characters in a line of 80 columns

using Rows = std::vector<std::vector<std::string>>;  ///< of a table

enum class Colour { plain, bold, dim, red, green, yellow, blue };

/// Wraps `text` in a colour if standard output is a terminal and NO_COLOR is not set.
std::string paint(Colour colour, std::string_view text);

/// `text` without characters that act on a terminal, except the colours of paint(): it may come from an untrusted
/// record or patch.
std::string harmless(std::string_view text);

/// Length of a readable line: 78 characters, or the width of the terminal.
std::size_t text_width();

/// `text` if it has at most `limit` characters, or if the terminal is wide, or there is none; otherwise without the
/// parts in parentheses, then cut, where a clause ends if possible. Cuts long words.
std::string shortened(const std::string& text, std::size_t limit);

/// Prints a line, wrapped to the terminal's width.
void print_line(const std::string& text);

/// Prints rows with their columns aligned; the last column wraps to the terminal's width under itself.
void print_table(const Rows& rows);

/// Shortens texts in the last columns of tables, the longest first, so that print_table() prints all of them on `lines`
/// lines of the terminal.
void fit(const std::vector<Rows*>& tables, std::size_t lines);

/// Prints JSON with a schema name in front; bytes that are not UTF-8 are replaced.
void print_json(std::string_view schema, nlohmann::json body);

/// "✓", "✗", "–" or "?", coloured.
std::string mark(Verdict verdict);

/// "->", coloured: p2pd fixes what fails.
std::string mark_of_planned();

/// Prints lines, each cut to the terminal's width; returns their number.
std::size_t print_lines(const std::vector<std::string>& lines);

/// Removes the last `count` lines from the terminal.
void clear_lines(std::size_t count);

/// Unified diff of a file's content against a new one, coloured, from `diff -u` with standard input.
std::string unified_diff(std::string_view path, const std::string& before, const std::string& after);

}  // namespace p2pd::ctl
