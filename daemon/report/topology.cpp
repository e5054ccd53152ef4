// SPDX-License-Identifier: MIT
#include "report/sections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "report/fields.hpp"
#include "report/html.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kWidth = 400;  // width of the drawing, in its own units
constexpr int kRow = 46;
constexpr int kBox = 34;
constexpr int kIndent = 26;
constexpr int kLevels = 6;  // deeper nodes are drawn at this level
constexpr std::size_t kMostNodes = 200;

/// Node and its position.
struct Placed {
  const json* node;
  int level;
  int above;  ///< row of its parent; -1: none
};

/// Places the nodes below `above`, depth first. Never reaches nodes that are their own parents.
void place(const std::multimap<std::string, const json*>& below, const std::string& above, int level, int row,
           std::vector<Placed>& rows) {
  const auto [first, last] = below.equal_range(above);
  for (auto node = first; node != last && rows.size() < kMostNodes; ++node) {
    rows.push_back({node->second, std::min(level, kLevels), row});
    const std::string id = text_of(*node->second, "id");
    if (!id.empty()) place(below, id, level + 1, static_cast<int>(rows.size()) - 1, rows);
  }
}

int left_of(const Placed& node) { return 4 + node.level * kIndent; }
int middle_of(std::size_t row) { return static_cast<int>(row) * kRow + kRow / 2; }

/// Thickness from 2 to 7: lanes times the rate of the generation, in steps of a factor of two.
int thickness_of(const json& link) {
  const double rate = number_of(link, "width").value_or(0) *
                      (1 << static_cast<int>(std::clamp(number_of(link, "generation_most").value_or(0), 0.0, 6.0)));
  return rate >= 512 ? 7 : rate >= 256 ? 5 : rate >= 128 ? 3 : 2;
}

bool is_narrow(const json& link) {
  return number_of(link, "width").value_or(0) < number_of(link, "width_most").value_or(0);
}

std::string link_text(const json& node) {
  const json& link = field_of(node, "link");
  std::string text;
  if (link.is_object()) {
    text = fmt::format("Gen{:.0f} x{:.0f}", number_of(link, "generation_most").value_or(0),
                       number_of(link, "width").value_or(0));
    if (is_narrow(link)) text += fmt::format(" of x{:.0f}", number_of(link, "width_most").value_or(0));
  }
  if (const std::string port = text_of(node, "port"); !port.empty())
    text += (text.empty() ? "" : ", ") + ("port " + port);
  return text;
}

std::string line_of(const std::vector<Placed>& rows, std::size_t row) {
  const Placed& node = rows[row];
  if (node.above < 0) return {};
  const int x = left_of(rows[static_cast<std::size_t>(node.above)]) + kIndent / 2;
  const json& link = field_of(*node.node, "link");
  return fmt::format("<path class=\"{}\" stroke-width=\"{}\" d=\"M{} {}V{}H{}\"/>", is_narrow(link) ? "narrow" : "link",
                     thickness_of(link), x, middle_of(static_cast<std::size_t>(node.above)) + kBox / 2, middle_of(row),
                     left_of(node));
}

std::string kind_of(const json& node) {
  for (const char* known : {"cpu", "switch", "gpu"})
    if (text_of(node, "kind") == known) return known;
  return "hidden";
}

std::string box_of(const Placed& placed, std::size_t row) {
  const json& node = *placed.node;
  const int x = left_of(placed), y = middle_of(row);
  const bool redirects = flag_of(node, "redirects");
  const std::string link = link_text(node);
  std::string out = fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/>",
                                kind_of(node), x, y - kBox / 2, kWidth - 4 - x, kBox);
  out += fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\">{} <tspan class=\"faint\">{}</tspan></text>", x + 10,
                     link.empty() ? y + 4 : y - 2, escaped(text_of(node, "title")), escaped(text_of(node, "detail")));
  out += fmt::format("<text class=\"faint\" x=\"{}\" y=\"{}\">{}{}</text>", x + 10, y + 12, escaped(link),
                     redirects ? R"(<tspan class="alarm">  ACS redirects</tspan>)" : "");
  return out;
}

// ---- table of paths -------------------------------------------------------------------------------------------------

std::string class_of(const json& pair) {
  static const std::map<std::string, std::string> kKinds = {
      {"nvlink", "NVLink"}, {"pcie_switch", "switch"}, {"one_socket", "socket"}, {"cross_socket", "sockets"}};
  const std::string topology = text_of(pair, "topology");
  const auto kind = kKinds.find(text_of(pair, "kind"));
  if (kind != kKinds.end() && (kind->first == "nvlink" || topology.empty())) return kind->second;
  return topology.empty() ? "?" : topology;
}

std::string limit_text(const json& pair) {
  const double limit = number_of(pair, "limit_gb_s").value_or(0);
  return limit > 0 ? fmt::format("{:.1f}", limit) : "?";
}

std::string table_of_pairs(const json& pairs) {
  std::string head = R"(<td class="corner"><span>from ↓ to →</span></td>)", body;
  for (std::size_t to = 0; to < pairs.size(); ++to) head += fmt::format("<th scope=\"col\">{}</th>", to);
  for (std::size_t from = 0; from < pairs.size(); ++from) {
    std::string row = fmt::format("<th scope=\"row\">{}</th>", from);
    for (std::size_t to = 0; to < pairs.size(); ++to) {
      const json& pair = cell_of(pairs, from, to);
      row += from == to ? "<td class=\"self\"></td>"
                        : element("td", "",
                                  text_element("b", "", class_of(pair)) + text_element("small", "", limit_text(pair)));
    }
    body += element("tr", "", row) + "\n";
  }
  return element("table", pairs.size() > 4 ? "heat many plain" : "heat plain",
                 element("thead", "", element("tr", "", head)) + element("tbody", "", body));
}

/// "28.8 GB/s: Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %", with its pairs.
std::string limits_list(const json& pairs) {
  std::map<std::string, std::vector<std::string>> ways;
  for (std::size_t from = 0; from < pairs.size(); ++from) {
    for (std::size_t to = from + 1; to < pairs.size(); ++to) {
      const json& pair = cell_of(pairs, from, to);
      const std::string limit = limit_text(pair), arithmetic = text_of(pair, "arithmetic");
      ways[limit == "?" ? "not known: " + arithmetic : limit + " GB/s: " + arithmetic].push_back(
          fmt::format("{}‑{}", from, to));
    }
  }
  constexpr std::size_t kMost = 12;
  std::string items;
  for (const auto& [way, names] : ways) {
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
    const std::string more = names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "";
    items += element("li", "",
                     escaped(way) + " " + text_element("small", "", fmt::format("{}{}", fmt::join(shown, ", "), more)));
  }
  return element("ul", "limits", items);
}

}  // namespace

std::string topology_drawing(const json& nodes) {
  std::multimap<std::string, const json*> below;
  for (const json& node : nodes) below.emplace(text_of(node, "above"), &node);
  std::vector<Placed> rows;
  place(below, "", 0, -1, rows);
  if (rows.empty()) return {};
  std::string lines, boxes, words;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    lines += line_of(rows, row);
    boxes += box_of(rows[row], row) + "\n";
    words += fmt::format("{}{} {} {}", row == 0 ? "" : "; ", text_of(*rows[row].node, "title"),
                         text_of(*rows[row].node, "detail"), link_text(*rows[row].node));
  }
  return fmt::format(
      "<svg class=\"tree\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Tree of CPUs, switches and GPUs: "
      "{}\">\n{}\n{}</svg>\n",
      kWidth, rows.size() * kRow, escaped(words), lines, boxes);
}

std::string pairs_table(const json& pairs) {
  if (pairs.size() < 2) return {};
  if (pairs.size() == 2) {
    const std::string path = class_of(cell_of(pairs, 0, 1));
    return (path == "?" ? "" : paragraph("Path of GPU 0 and GPU 1: " + path + ".")) + limits_list(pairs) + "\n";
  }
  return element(
             "figure", "map",
             element("figcaption", "", "Paths and their limits <small>GB/s one way</small>") + table_of_pairs(pairs)) +
         limits_list(pairs) + "\n";
}

}  // namespace p2pd::ctl
