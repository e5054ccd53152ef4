// SPDX-License-Identifier: MIT
// Before and after: maps of a measurement in one scale of colours, or sentences for two GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/fields.hpp"
#include "report/figures.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kSteps = 7;
constexpr double kFastest = 0.5;  // µs; latencies use a logarithmic scale
constexpr double kSlowest = 32;
constexpr std::size_t kSentences = 2;  // GPUs; maps for more
constexpr std::size_t kMany = 5;       // GPUs; cells of larger maps are small

std::string number_text(double value) {
  return fmt::format("{:.{}f}", value, value < 9.95 ? 2 : value < 999.5 ? 1 : 0);
}

/// Content of one map of a measurement: a grid [from][to] of numbers.
struct HeatMap {
  std::string title;
  std::string unit;
  const json& cells;
  const json& limits;  ///< limits of the paths, in `unit`; null: none, then the colour is the share of `most`
  const json& grades;  ///< "warn" and "fail" are marked; null: not judged
  double most = 0;
};

/// Colour of a cell: the stronger the faster, in the same scale in every report.
std::string colour_of(const HeatMap& map, double value, std::optional<double> limit) {
  const double most = limit.value_or(map.most);
  const double share = map.unit == "µs" ? std::log(kSlowest / std::max(value, kFastest)) / std::log(kSlowest / kFastest)
                                        : (most > 0 ? value / most : 0);
  return fmt::format("h{}", static_cast<int>(std::clamp(share * kSteps, 0.0, kSteps - 1.0)));
}

std::string grade_mark(const json& grade) {
  if (grade == "fail") return mark("", "✗", "failed");
  if (grade == "warn") return mark("", "!", "slower than it should be");
  return "";
}

std::string number_cell(const HeatMap& map, std::size_t from, std::size_t to) {
  const auto value = number_of(cell_of(map.cells, from, to));
  if (!value) return R"(<td class="none">–</td>)";
  auto limit = number_of(cell_of(map.limits, from, to));
  std::string inner = fmt::format("<b>{}{}</b>", number_text(*value), grade_mark(cell_of(map.grades, from, to)));
  if (limit && *limit > 0)
    inner += fmt::format("<small>{:.0f} %</small><small class=\"of\">of {}</small>", 100 * *value / *limit,
                         number_text(*limit));
  return element("td", colour_of(map, *value, limit), inner);
}

std::string word_cell(const json& cells, std::size_t from, std::size_t to) {
  const std::string word = text_of(cell_of(cells, from, to));
  if (word.empty() || word == kNotExpected) return R"(<td class="none">–</td>)";
  return word == "ok" ? "<td class=\"ok\">✓</td>" : element("td", "wrong", "✗ " + element("small", "", escaped(word)));
}

using Cell = std::function<std::string(std::size_t, std::size_t)>;

std::string table_of(std::size_t size, const Cell& cell) {
  std::string head = R"(<td class="corner"><span>from ↓ to →</span></td>)", body;
  for (std::size_t to = 0; to < size; ++to) head += fmt::format("<th scope=\"col\">{}</th>", to);
  for (std::size_t from = 0; from < size; ++from) {
    std::string row = fmt::format("<th scope=\"row\">{}</th>", from);
    for (std::size_t to = 0; to < size; ++to) row += from == to ? "<td class=\"self\"></td>" : cell(from, to);
    body += element("tr", "", row) + "\n";
  }
  return element("table", size >= kMany ? "heat many" : "heat",
                 element("thead", "", element("tr", "", head)) + element("tbody", "", body));
}

std::string figure_of(const std::string& title, const std::string& unit, const std::string& table) {
  const std::string caption = escaped(title) + (unit.empty() ? "" : " " + text_element("small", "", unit));
  return element("figure", "map", element("figcaption", "", caption) + table) + "\n";
}

std::string heat_map(const HeatMap& map) {
  const bool by_fastest = map.unit != "µs" && !map.limits.is_array();
  return figure_of(
      map.title, map.unit + (by_fastest ? ", colours up to the fastest" : ""),
      table_of(map.cells.size(), [&](std::size_t from, std::size_t to) { return number_cell(map, from, to); }));
}

std::string word_map(const std::string& title, const json& cells) {
  return figure_of(
      title, "", table_of(cells.size(), [&](std::size_t from, std::size_t to) { return word_cell(cells, from, to); }));
}

std::string legend() {
  std::string steps;
  for (int i = 0; i < kSteps; ++i) steps += fmt::format("<i class=\"h{}\"></i>", i);
  return fmt::format(
      "<p class=\"legend\"><span>slow <span class=\"scale\" role=\"img\" aria-label=\"pale to strong\">{}</span> "
      "fast: 0 to 100 % of what the path leaves for data; latency {} to {} µs</span> "
      "<span>! slower than it should be, ✗ failed</span></p>\n",
      steps, kSlowest, kFastest);
}

double most_of(const json& grid, double most = 0) {
  for (const json& row : grid)
    for (const json& cell : row) most = std::max(most, number_of(cell).value_or(0));
  return most;
}

/// Maps before and after, side by side, in the same colours.
std::string pair_of_maps(const json& matrix, const json& grades) {
  static const json kNone;
  const json &after = field_of(matrix, "after"), &before = field_of(matrix, "before"),
             &limits = field_of(matrix, "limits");
  const std::string title = text_of(matrix, "title"), unit = text_of(matrix, "unit"), by = text_of(matrix, "before_by");
  const double most = most_of(after, most_of(before));
  std::string maps;
  if (before.is_array())
    maps += heat_map({title + ": before" + (by.empty() ? "" : ", " + by), unit, before, limits, kNone, most});
  if (after.is_array())
    maps += heat_map(
        {title + (before.is_array() ? ": after" : ""), unit, after, limits, unit == "µs" ? kNone : grades, most});
  return maps;
}

/// "26.1 GB/s each way", "26.1 GB/s from GPU 0 to GPU 1, 21.4 back"; empty: nothing was measured. `of_both`: each value
/// is of both ways already.
std::string both_ways(const json& grid, const std::string& unit, bool of_both) {
  const auto there = number_of(cell_of(grid, 0, 1)), back = number_of(cell_of(grid, 1, 0));
  const auto text = [](std::optional<double> value) { return value ? number_text(*value) : std::string("unknown"); };
  if (!there && !back) return {};
  if (text(there) == text(back)) return fmt::format("{} {}{}", text(there), unit, of_both ? "" : " each way");
  return fmt::format("{} {} from GPU 0 to GPU 1, {} back", text(there), unit, text(back));
}

/// Measurement of two GPUs as a sentence.
std::string sentence_of(const json& matrix, const json& grades) {
  const std::string unit = text_of(matrix, "unit"), by = text_of(matrix, "before_by");
  const json& after = field_of(matrix, "after");
  const bool of_both = text_of(matrix, "id") == "both" || text_of(matrix, "id") == "ping_pong";
  std::string before = both_ways(field_of(matrix, "before"), unit, of_both);
  if (!before.empty()) before += by.empty() ? " before" : " before, " + by;
  std::string text = text_element("b", "", both_ways(after, unit, of_both));
  const auto value = number_of(cell_of(after, 0, 1)), limit = number_of(cell_of(field_of(matrix, "limits"), 0, 1));
  if (value && limit && *limit > 0)
    text +=
        fmt::format(", {:.0f} % of the {} that the path leaves for data", 100 * *value / *limit, number_text(*limit));
  for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>(0, 1), std::pair<std::size_t, std::size_t>(1, 0)})
    if (const std::string sign = grade_mark(cell_of(grades, from, to)); !sign.empty() && after.is_array())
      text += fmt::format(", {} GPU {} to {}", sign, from, to);
  if (after.is_null()) text.clear();
  return escaped(text_of(matrix, "title")) + ": " + text + (text.empty() || before.empty() ? "" : "; ") +
         escaped(before) + ".";
}

std::string bytes_sentence(const json& bytes) {
  const std::string there = text_of(cell_of(bytes, 0, 1)), back = text_of(cell_of(bytes, 1, 0));
  const auto told = [](const std::string& word) {
    return word == "ok" ? std::string("right") : word.empty() ? std::string("not tested") : word;
  };
  return there == back ? fmt::format("Bytes both ways: {}.", told(there))
                       : fmt::format("Bytes from GPU 0 to GPU 1: {}; back: {}.", told(there), told(back));
}

std::string sentences_of(const json& proof) {
  std::string items;
  for (const json& matrix : list_of(proof, "matrices"))
    items += element("li", "",
                     sentence_of(matrix, text_of(matrix, "id") == "copy" ? list_of(proof, "grades")
                                                                         : field_of(matrix, "none"))) +
             "\n";
  return element("ul", "figures", items + text_element("li", "", bytes_sentence(list_of(proof, "bytes")))) + "\n";
}

std::string maps_of(const json& proof) {
  std::string main, others;
  for (const json& matrix : list_of(proof, "matrices")) {
    const std::string id = text_of(matrix, "id");
    (id == "copy" || id == "latency" ? main : others) +=
        pair_of_maps(matrix, id == "copy" ? list_of(proof, "grades") : field_of(matrix, "none"));
  }
  return paragraph("Rows send, columns receive.", "faint") + legend() + element("div", "maps two", main) + "\n" +
         element("div", "maps", word_map("Bytes that arrived", list_of(proof, "bytes")) + others);
}

}  // namespace

std::string measured_section(const json& document) {
  const json& proof = field_of(document, "proof");
  if (!proof.is_object()) return {};
  std::string inner = paragraph(text_of(proof, "summary"));
  inner += paragraph(fmt::format("Measured {} UTC.", time_text(text_of(proof, "time"))), "faint");
  if (const json& again = field_of(proof, "again"); again.is_object())
    inner += paragraph(
        fmt::format("Measured again {} UTC: {}", time_text(text_of(again, "time")), text_of(again, "summary")),
        "faint");
  const json& before = field_of(document, "before");
  if (!flag_of(before, "measured")) inner += paragraph("Before: " + text_of(before, "why"), "faint");
  inner += list_of(proof, "addresses").size() > kSentences ? maps_of(proof) : sentences_of(proof);
  return section("before-after", "Before and after", inner);
}

}  // namespace p2pd::ctl
