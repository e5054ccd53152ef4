// SPDX-License-Identifier: MIT
#include "report/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/fields.hpp"
#include "report/html.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kSteps = 7;
constexpr double kFastest = 0.5;  // µs; the colours of latencies use a logarithmic scale
constexpr double kSlowest = 32;
constexpr std::size_t kMany = 5;  // GPUs; cells of larger maps are small

std::string number_text(double value) {
  return fmt::format("{:.{}f}", value, value < 9.95 ? 2 : value < 999.5 ? 1 : 0);
}

int step_of(double share) { return static_cast<int>(std::clamp(share * kSteps, 0.0, kSteps - 1.0)); }

/// Colour of a cell, from a share of the limit or from a latency; the scale is the same in every report.
std::string colour_of(const HeatMap& map, double value, std::optional<double> limit) {
  if (map.unit == "µs")
    return fmt::format("l{}", step_of(std::log(std::max(value, kFastest) / kFastest) / std::log(kSlowest / kFastest)));
  const double most = limit.value_or(map.most);
  return fmt::format("h{}", step_of(most > 0 ? value / most : 0));
}

std::string grade_mark(const json& grade) {
  if (grade == "fail") return R"(<abbr title="failed">✗</abbr>)";
  if (grade == "warn") return R"(<abbr title="slower than it should be">!</abbr>)";
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
  if (word.empty()) return R"(<td class="none">–</td>)";
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

}  // namespace

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

std::string heat_legend() {
  const auto scale = [](char hue) {
    std::string steps;
    for (int i = 0; i < kSteps; ++i) steps += fmt::format("<i class=\"{}{}\"></i>", hue, i);
    return element("span", "scale", steps);
  };
  return fmt::format(
      "<p class=\"legend\"><span>Rates: 0 {} 100 % of what the path leaves for data</span> <span>Latencies: "
      "{} µs {} {} µs and more</span> <span>! slower than it should be, ✗ failed</span></p>\n",
      scale('h'), kFastest, scale('l'), kSlowest);
}

}  // namespace p2pd::ctl
