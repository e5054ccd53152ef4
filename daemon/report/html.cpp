// SPDX-License-Identifier: MIT
#include "report/html.hpp"

#include <fmt/format.h>

#include <cstdint>

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

std::string section(std::string_view heading, const std::string& inner) {
  return inner.empty() ? "" : element("section", "", text_element("h2", "", heading) + "\n" + inner) + "\n";
}

std::string paragraph(std::string_view text, std::string_view style) {
  return text.empty() ? "" : text_element("p", style, text) + "\n";
}

std::string time_text(std::string time) {
  if (const std::size_t at = time.find('T'); at != std::string::npos) time[at] = ' ';
  if (time.ends_with('Z')) time.pop_back();
  return time;
}

std::string verdict_mark(std::string_view verdict) {
  if (verdict == "pass") return R"(<span class="good" title="holds">✓</span>)";
  if (verdict == "fail") return R"(<span class="bad" title="does not hold">✗</span>)";
  if (verdict == "not_applicable") return R"(<span class="faint" title="does not apply">–</span>)";
  if (verdict.empty()) return R"(<span class="faint" title="not looked at">·</span>)";
  return R"(<span class="warn" title="not known">?</span>)";
}

}  // namespace p2pd::ctl
