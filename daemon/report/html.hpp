// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace p2pd::ctl {

/// `text` as the text of an element or the value of an attribute: nothing in it is markup. Bytes that are not UTF-8,
/// control characters, and characters that change the direction of text become U+FFFD.
std::string escaped(std::string_view text);

/// <NAME class="STYLE">INNER</NAME>, without the attribute if `style` is empty; `inner` is markup already.
std::string element(std::string_view name, std::string_view style, std::string_view inner);
/// The same, with `text` escaped here.
std::string text_element(std::string_view name, std::string_view style, std::string_view text);

/// Escapes `text`, and marks each command of p2pd in it as code: one in quotes, and one that it begins with.
std::string with_commands(std::string_view text);

// Parts of a page. Empty if they have no content.

/// Section with an anchor: `id` is not escaped.
std::string section(std::string_view id, std::string_view heading, const std::string& inner);
/// Content that is shown on demand.
std::string folded(std::string_view heading, const std::string& inner);
/// List of texts with their commands.
std::string list_of_texts(const nlohmann::json& texts, std::string_view style = "");
std::string paragraph(std::string_view text, std::string_view style = "");
/// "2026-11-22 11:15:28" for an ISO time in UTC.
std::string time_text(std::string time);
/// Symbol with its meaning as text; none of the arguments is escaped.
std::string mark(std::string_view style, std::string_view sign, std::string_view meaning);
/// Symbol of a check's verdict.
std::string verdict_mark(std::string_view verdict);

}  // namespace p2pd::ctl
