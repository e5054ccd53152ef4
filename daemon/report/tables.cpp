// SPDX-License-Identifier: MIT
#include "report/tables.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/fields.hpp"
#include "report/html.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 20;

std::string size_text(const json& gpu, const char* key) {
  const auto mib = number_of(gpu, key);
  return mib ? fmt::format("{:.{}f} GiB", *mib / 1024, *mib < 1024 ? 1 : 0) : "?";
}

std::string gpus_of(const json& document) {
  std::string rows;
  const json& gpus = list_of(document, "gpus");
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const std::string driver = text_of(gpus[i], "driver"), uuid = text_of(gpus[i], "uuid");
    std::string row = fmt::format("<th scope=\"row\">{}</th>", i);
    row += element(
        "td", "",
        escaped(text_of(gpus[i], "name")) + "<br>" + text_element("span", "where", text_of(gpus[i], "address")) +
            (uuid.empty() || flag_of(document, "redacted") ? "" : "<br>" + text_element("span", "where", uuid)));
    row += element("td", "", size_text(gpus[i], "vram_mib")) + element("td", "", size_text(gpus[i], "bar1_mib"));
    rows += element("tr", "", row + text_element("td", "", driver.empty() ? "none" : driver)) + "\n";
  }
  if (rows.empty()) return {};
  return element("table", "gpus",
                 "<thead><tr><th></th><th>GPU</th><th>VRAM</th><th>BAR1</th><th>Driver</th></tr></thead>" +
                     element("tbody", "", rows)) +
         "\n";
}

}  // namespace

std::string checks_section(const json& document) {
  std::string rows;
  for (const json& step : list_of(document, "steps")) {
    const std::string summary = text_of(step, "summary");
    rows += element("tr", "",
                    element("td", "", verdict_mark(text_of(step, "verdict"))) +
                        text_element("td", "where", text_of(step, "id")) +
                        element("td", "",
                                escaped(text_of(step, "title")) +
                                    (summary.empty() ? "" : "<br>" + text_element("span", "faint", summary)))) +
            "\n";
  }
  return section("Every check", rows.empty() ? "" : element("table", "checks", rows));
}

std::string environment_section(const json& document) {
  std::string rows;
  for (const json& row : list_of(document, "environment"))
    rows += element("tr", "",
                    text_element("th", "", text_of(row, "name")) + text_element("td", "", text_of(row, "value"))) +
            "\n";
  return section("Environment", gpus_of(document) + (rows.empty() ? "" : element("table", "environment", rows)));
}

std::string runs_section(const json& document) {
  const json& runs = list_of(document, "runs");
  std::string rows;
  for (std::size_t i = 0; i < std::min(runs.size(), kMostLines); ++i) {
    const json& run = runs[i];
    const std::string result = text_of(run, "result");
    rows += element("tr", "",
                    element("td", "", fmt::format("{:.0f}", number_of(run, "id").value_or(0))) +
                        text_element("td", "", text_of(run, "plan")) +
                        text_element("td", "time", time_text(text_of(run, "started"))) +
                        text_element("td", "", result.empty() ? text_of(run, "state") : result) +
                        element("td", "", fmt::format("{:.0f}", number_of(run, "reboots").value_or(0))) +
                        text_element("td", "faint", text_of(run, "reason"))) +
            "\n";
  }
  if (rows.empty()) return {};
  const std::string head =
      "<thead><tr><th>Run</th><th>Plan</th><th>Begun</th><th>Result</th><th>Restarts</th><th>Why</th></tr></thead>";
  const std::string more =
      runs.size() > kMostLines
          ? paragraph(fmt::format("{} earlier runs are left out.", runs.size() - kMostLines), "faint")
          : "";
  return section("Runs", element("table", "runs", head + element("tbody", "", rows)) + more);
}

}  // namespace p2pd::ctl
