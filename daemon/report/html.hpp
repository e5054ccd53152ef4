// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace p2pd::ctl {

/// `text` as the text of an element or the value of an attribute: nothing in it is markup. Bytes that are not UTF-8,
/// control characters, and characters that turn the direction of text come out as U+FFFD.
std::string escaped(std::string_view text);

/// <NAME class="STYLE">INNER</NAME>, without the attribute where `style` is empty; `inner` is markup already.
std::string element(std::string_view name, std::string_view style, std::string_view inner);
/// The same around text that is escaped here.
std::string text_element(std::string_view name, std::string_view style, std::string_view text);

// Parts of which the sections of a page are made. Empty where there is nothing in them.

std::string section(std::string_view heading, const std::string& inner);
std::string paragraph(std::string_view text, std::string_view style = "");
/// "2026-11-22 11:15:28" of an ISO time in UTC.
std::string time_text(std::string time);
/// The sign of a verdict of a check.
std::string verdict_mark(std::string_view verdict);

}  // namespace p2pd::ctl
