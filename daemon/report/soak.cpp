// SPDX-License-Identifier: MIT
// Soak: how fast the slowest copy was, and how hot the hottest GPU, over the hours of "p2pctl bench --soak".
#include <fmt/format.h>

#include <algorithm>

#include "report/fields.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr double kWidth = 640, kHeight = 120;
constexpr std::size_t kMostPoints = 2000;  // limit also for a forged file

/// Line over time, from 0 up to `most`.
std::string line_of(const json& points, std::size_t column, double most, const char* style) {
  const double end = number_of(cell_of(points, points.size() - 1, 0)).value_or(0);
  std::string dots;
  for (const json& point : points)
    if (const auto time = number_of(item_of(point, 0)), value = number_of(item_of(point, column)); time && value)
      dots += fmt::format("{:.1f},{:.1f} ", end > 0 ? *time / end * kWidth : 0,
                          kHeight * (1 - std::clamp(*value / most, 0.0, 1.0)));
  return dots.empty() ? "" : fmt::format("<polyline class=\"{}\" points=\"{}\"/>", style, dots);
}

/// Lowest and highest value of a column; nothing if it has none.
std::optional<std::pair<double, double>> range_of(const json& points, std::size_t column) {
  std::optional<std::pair<double, double>> range;
  for (const json& point : points)
    if (const auto value = number_of(item_of(point, column)))
      range = range ? std::pair(std::min(range->first, *value), std::max(range->second, *value))
                    : std::pair(*value, *value);
  return range;
}

/// Graph of one column with its range in words.
std::string graph_of(const json& points, std::size_t column, const char* what, const char* unit, const char* style) {
  const auto range = range_of(points, column);
  if (!range || range->second <= 0) return {};
  const std::string words = fmt::format("{}: {:.1f} to {:.1f} {}", what, range->first, range->second, unit);
  return element("figure", "graph",
                 element("figcaption", "", escaped(words)) +
                     fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>", kWidth, kHeight,
                                 escaped(words), line_of(points, column, range->second, style)));
}

json point_of(const json& sample) {
  json hottest;
  for (const json& gpu : list_of(sample, "gpus"))
    if (const auto celsius = number_of(gpu, "temperature_c"); celsius && (hottest.is_null() || *celsius > hottest))
      hottest = *celsius;
  return {number_of(sample, "seconds").value_or(0), number_of(sample, "slowest_gb_s").value_or(0), hottest};
}

}  // namespace

json soak_of(const json& bench) {
  const json& soak = field_of(bench, "soak");
  const json& samples = list_of(soak, "samples");
  if (samples.empty()) return nullptr;
  const std::size_t step = (samples.size() + kMostPoints - 1) / kMostPoints;
  json points = json::array();
  for (std::size_t i = 0; i < samples.size(); i += step) points.push_back(point_of(samples[i]));
  return {{"minutes", number_of(samples.back(), "seconds").value_or(0) / 60},
          {"ended", text_of(soak, "ended")},
          {"checked_bytes", number_of(samples.back(), "checked_bytes").value_or(0)},
          {"wrong", number_of(samples.back(), "wrong").value_or(0)},
          {"points", std::move(points)}};
}

std::string soak_section(const json& document) {
  const json& soak = field_of(document, "soak");
  if (!soak.is_object()) return {};
  const json& points = list_of(soak, "points");
  const bool good = number_of(soak, "wrong").value_or(1) == 0;
  constexpr double kTiB = 1ULL << 40;
  const std::string words =
      fmt::format("{:.1f} minutes, ended: {}; {:.2f} TiB checked, {:.0f} wrong", number_of(soak, "minutes").value_or(0),
                  text_of(soak, "ended"), number_of(soak, "checked_bytes").value_or(0) / kTiB,
                  number_of(soak, "wrong").value_or(0));
  return section(
      "soak", "Soak",
      element("p", "", (good ? mark("good", "✓", "right") : mark("bad", "✗", "wrong")) + " " + escaped(words)) +
          graph_of(points, 1, "Slowest copy", "GB/s", "rate") + graph_of(points, 2, "Hottest GPU", "°C", "heat"));
}

}  // namespace p2pd::ctl
