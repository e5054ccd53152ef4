// SPDX-License-Identifier: MIT
#include "report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "report/fields.hpp"

namespace p2pd::ctl {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

/// UTF-8 character at the start of `text`; length 0 if there is none.
struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

Character character_of(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, length};
}

bool is_harmless(std::uint32_t code) {
  const bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
  const bool turns = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return !control && !turns;
}

std::string_view entity_of(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return {};
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = character_of(text);
    const std::string_view entity = entity_of(text.front());
    if (!entity.empty())
      out += entity;
    else
      out += next.length > 0 && is_harmless(next.code) ? text.substr(0, next.length) : kReplacement;
    text.remove_prefix(next.length > 0 ? next.length : 1);
  }
  return out;
}

std::string element(std::string_view name, std::string_view style, std::string_view inner) {
  const std::string attribute = style.empty() ? "" : fmt::format(" class=\"{}\"", style);
  return fmt::format("<{0}{1}>{2}</{0}>", name, attribute, inner);
}

std::string text_element(std::string_view name, std::string_view style, std::string_view text) {
  return element(name, style, escaped(text));
}

std::string with_commands(std::string_view text) {
  std::string out;
  if (text.starts_with("p2pctl ")) {  // "p2pctl apply geforce-p2p  (1 reboot)"
    const std::size_t end = std::min(text.find("  "), text.size());
    out = text_element("code", "", text.substr(0, end));
    text.remove_prefix(end);
  }
  while (!text.empty()) {
    const std::size_t open = text.find('"');
    const std::size_t close = open == text.npos ? open : text.find('"', open + 1);
    if (close == text.npos) return out + escaped(text);
    const std::string_view word = text.substr(open + 1, close - open - 1);
    out += escaped(text.substr(0, open));
    out += word.starts_with("p2p") || word.starts_with("sudo p2p") ? text_element("code", "", word)
                                                                   : escaped(text.substr(open, close + 1 - open));
    text.remove_prefix(close + 1);
  }
  return out;
}

std::string section(std::string_view id, std::string_view heading, const std::string& inner) {
  if (inner.empty()) return {};
  return fmt::format("<section id=\"{}\">{}\n{}</section>\n", id, text_element("h2", "", heading), inner);
}

std::string folded(std::string_view heading, const std::string& inner) {
  return inner.empty() ? "" : element("details", "", text_element("summary", "", heading) + "\n" + inner) + "\n";
}

std::string list_of_texts(const nlohmann::json& texts, std::string_view style) {
  std::string items;
  for (const nlohmann::json& text : texts) items += element("li", "", with_commands(text_of(text))) + "\n";
  return items.empty() ? "" : element("ul", style, items) + "\n";
}

std::string paragraph(std::string_view text, std::string_view style) {
  return text.empty() ? "" : text_element("p", style, text) + "\n";
}

std::string time_text(std::string time) {
  if (const std::size_t at = time.find('T'); at != std::string::npos) time[at] = ' ';
  if (time.ends_with('Z')) time.pop_back();
  return time;
}

std::string mark(std::string_view style, std::string_view sign, std::string_view meaning) {
  return fmt::format("<span class=\"{0}\" role=\"img\" aria-label=\"{2}\" title=\"{2}\">{1}</span>", style, sign,
                     meaning);
}

std::string verdict_mark(std::string_view verdict) {
  if (verdict == "pass") return mark("good", "✓", "passed");
  if (verdict == "fail") return mark("bad", "✗", "failed");
  if (verdict == "not_applicable") return mark("faint", "–", "does not apply");
  if (verdict.empty()) return mark("faint", "·", "not checked");
  return mark("warn", "?", "not known");
}

}  // namespace p2pd::ctl
