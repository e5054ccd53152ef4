// SPDX-License-Identifier: MIT
// Page of a report: its JSON, a script that draws it (page.js), and the verdict and tables for readers without scripts.
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/json_members.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::string_view kSkeleton =
#include "report_page.html.inc"  // page.html as a raw string, made by CMake
    ;
constexpr std::string_view kStyle =
#include "report_page.css.inc"
    ;
constexpr std::string_view kScript =
#include "report_page.js.inc"
    ;

/// `text` as content of an element: no markup, no control characters.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : harmless(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\x1b': out += '?'; break;
      default: out += c;
    }
  }
  return out;
}

/// JSON that no HTML parser takes for markup; bytes that are not UTF-8 are replaced.
std::string script_json(const json& document) {
  std::string out;
  for (const char c : document.dump(-1, ' ', true, json::error_handler_t::replace))
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

std::string row(std::initializer_list<std::string> cells) {
  std::string out;
  for (const std::string& cell : cells) out += "<td>" + escaped(cell) + "</td>";
  return "<tr>" + out + "</tr>\n";
}

std::string table(const char* heading, const std::string& rows) {
  return rows.empty() ? "" : fmt::format("<h2>{}</h2>\n<table>\n{}</table>\n", heading, rows);
}

/// A row for each ordered pair of a figure.
std::string rows_of(const json& matrix) {
  std::string rows;
  const auto value = [&](const char* when, std::size_t from, std::size_t to) {
    const auto found = number_of(item_of(item_of(field_of(matrix, when), from), to));
    return found ? fmt::format("{:.2f} {}", *found, text_of(matrix, "unit")) : std::string();
  };
  const std::size_t size = std::max(list_of(matrix, "after").size(), list_of(matrix, "before").size());
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      const std::string before = value("before", from, to), after = value("after", from, to);
      if (before.empty() && after.empty()) continue;
      rows += row({text_of(matrix, "title"), fmt::format("GPU {} to {}", from, to), after,
                   before.empty() ? "" : before + " before"});
    }
  }
  return rows;
}

std::string static_part(const json& document) {
  const json& verdict = field_of(document, "verdict");
  std::string out = fmt::format("<h1>{}</h1>\n", escaped(text_of(verdict, "headline")));
  for (const std::string& text : {text_of(field_of(document, "machine"), "text"), text_of(verdict, "text")})
    if (!text.empty()) out += fmt::format("<p>{}</p>\n", escaped(text));
  for (const json& action : list_of(document, "actions"))
    out += fmt::format("<p>{}</p>\n", escaped(text_of(action, "next")));
  if (const std::string next = text_of(verdict, "next"); !next.empty())
    out += fmt::format("<p>Next: {}</p>\n", escaped(next));
  std::string checks, changes, figures;
  for (const json& step : list_of(document, "steps"))
    checks += row({text_of(step, "id"), text_of(step, "verdict"), text_of(step, "summary")});
  for (const json& change : list_of(document, "changes"))
    changes += row({text_of(change, "step"), text_of(change, "status"), text_of(change, "summary")});
  for (const json& matrix : list_of(field_of(document, "proof"), "matrices")) figures += rows_of(matrix);
  return out + table("Measurements", figures) + table("Changes", changes) + table("Checks", checks);
}

}  // namespace

std::string report_page(const json& document) {
  const std::string title = "P2P report: " + text_of(field_of(document, "verdict"), "headline");
  return fmt::format(kSkeleton, fmt::arg("title", escaped(title)), fmt::arg("style", kStyle),
                     fmt::arg("static", static_part(document)), fmt::arg("document", script_json(document)),
                     fmt::arg("script", kScript));
}

}  // namespace p2pd::ctl
