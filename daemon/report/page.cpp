// SPDX-License-Identifier: MIT
// Page of a report: its sections, in the order in which a person needs them.
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/journal.hpp"
#include "report/fields.hpp"
#include "report/heat_map.hpp"
#include "report/html.hpp"
#include "report/tables.hpp"
#include "report/topology.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::string_view kSkeleton =
#include "report_page.html.inc"  // page.html as a raw string, made by CMake
    ;
constexpr std::string_view kStyle =
#include "report_page.css.inc"  // page.css as a raw string, made by CMake
    ;
constexpr std::size_t kMostEvents = 200;

/// Escapes `text`, and marks each quoted command line in it as code.
std::string with_commands(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('"');
    const std::size_t close = open == text.npos ? open : text.find('"', open + 1);
    if (close == text.npos) return out + escaped(text);
    const std::string_view word = text.substr(open + 1, close - open - 1);
    out += escaped(text.substr(0, open));
    out += word.starts_with("p2p") ? text_element("code", "", word) : escaped(text.substr(open, close + 1 - open));
    text.remove_prefix(close + 1);
  }
  return out;
}

std::string list_of_texts(const json& texts, std::string_view style = "") {
  std::string items;
  for (const json& text : texts) items += element("li", "", with_commands(text_of(text))) + "\n";
  return items.empty() ? "" : element("ul", style, items) + "\n";
}

std::string known(std::string_view word, std::initializer_list<std::string_view> words, std::string_view otherwise) {
  return std::string(std::ranges::find(words, word) == words.end() ? otherwise : word);
}

// ---- sections -------------------------------------------------------------------------------------------------------

std::string head_of(const json& document) {
  std::string line = fmt::format("Made {} UTC by p2pd {}", escaped(time_text(text_of(document, "made"))),
                                 escaped(text_of(document, "version")));
  if (const std::string plan = text_of(document, "plan"); !plan.empty()) line += ", plan " + escaped(plan);
  line += flag_of(document, "redacted") ? ". Left out: serial numbers, UUIDs, addresses of the network, names of "
                                          "hosts, people, processes, containers and private units, and machine id."
                                        : ". <strong>Not redacted</strong>: it names this machine.";
  return element("header", "", text_element("h1", "", "GPU peer-to-peer over PCIe") + element("p", "faint", line)) +
         "\n";
}

std::string verdict_of(const json& document) {
  const json& verdict = field_of(document, "verdict");
  const std::string tone = known(text_of(verdict, "tone"), {"good", "warn", "bad"}, "open");
  const std::string sign = tone == "good" ? "✓" : tone == "warn" ? "!" : tone == "bad" ? "✗" : "○";
  std::string inner =
      element("p", "headline", element("span", "sign", sign) + " " + escaped(text_of(verdict, "headline")));
  inner += paragraph(text_of(verdict, "text"));
  if (const std::string next = text_of(verdict, "next"); !next.empty())
    inner += element("p", "next", "<b>Next</b> " + with_commands(next));
  std::string notes;
  for (const json& note : list_of(document, "notes")) notes += paragraph(text_of(note), "note");
  return element("section", "verdict " + tone, inner) + notes + "\n";
}

std::string numbers_of(const json& document) {
  std::string items;
  for (const json& number : list_of(document, "numbers")) {
    items +=
        element("div", "",
                text_element("dt", "", text_of(number, "label")) + text_element("dd", "", text_of(number, "value")) +
                    text_element("dd", "faint", text_of(number, "note"))) +
        "\n";
  }
  return element("dl", "numbers", items) + "\n";
}

std::string cause_of(const json& cause, bool first) {
  const std::string summary = text_of(cause, "summary");
  std::string inner = element(
      "h3", "",
      verdict_mark(text_of(cause, "verdict")) + " " + escaped(summary.empty() ? text_of(cause, "title") : summary));
  if (!first) return element("div", "cause", "<p class=\"faint\">Besides:</p>" + inner) + "\n";
  inner += paragraph(text_of(cause, "why"));
  inner += paragraph(text_of(cause, "obstacle"), "note");
  std::string rows;
  for (const json& seen : list_of(cause, "evidence"))
    rows +=
        element("tr", "",
                text_element("td", "where", text_of(seen, "source")) + text_element("td", "", text_of(seen, "value")));
  if (!rows.empty()) inner += element("table", "evidence", rows);
  if (const std::string next = text_of(cause, "next"); !next.empty())
    inner += element("p", "next", "<b>Next</b> " + with_commands(next));
  return element("div", "cause", inner) + "\n";
}

std::string causes_of(const json& document) {
  std::string inner;
  for (const json& cause : list_of(document, "causes")) inner += cause_of(cause, inner.empty());
  if (inner.empty() && flag_of(document, "ran")) inner = paragraph("Nothing that the plan looks at is in the way.");
  if (inner.empty()) inner = paragraph("No gate of the plan is shut.");
  return section("Root cause", inner);
}

std::string changes_of(const json& document) {
  std::string items;
  for (const json& change : list_of(document, "changes")) {
    const std::optional<StepStatus> status = step_status(text_of(change, "status"));
    const char* what = status == StepStatus::reverted         ? "undone"
                       : status == StepStatus::pending_reboot ? "with the next restart"
                                                              : "made so";
    const std::string title = text_of(change, "title");
    items += element("li", "",
                     escaped(title.empty() ? text_of(change, "step") : title) + " " + text_element("small", "", what) +
                         paragraph(text_of(change, "why"), "faint")) +
             "\n";
  }
  return items.empty() ? paragraph("Nothing on this machine was changed.") : element("ol", "changes", items) + "\n";
}

std::string event_row(const json& event) {
  const std::string title = text_of(event, "title"), step = text_of(event, "step"), text = text_of(event, "text");
  std::string what = text_element("b", "", text_of(event, "what"));
  if (!step.empty()) what += " " + escaped(title.empty() ? step : title);
  if (!text.empty()) what += text_element("span", "faint", (step.empty() ? " " : ": ") + text);
  return element("tr", "",
                 element("td", "time", escaped(time_text(text_of(event, "time")))) +
                     element("td", "boot", fmt::format("boot {:.0f}", number_of(event, "boot").value_or(0))) +
                     element("td", "", what)) +
         "\n";
}

std::string events_of(const json& document) {
  const json& events = list_of(document, "events");
  const std::size_t first = events.size() - std::min(events.size(), kMostEvents);
  std::string rows;
  for (std::size_t i = first; i < events.size(); ++i) rows += event_row(events[i]);
  std::string out = rows.empty() ? "" : element("table", "events", rows) + "\n";
  if (first > 0) out = paragraph(fmt::format("{} earlier events are left out.", first), "faint") + out;
  const double looks = number_of(document, "looks").value_or(0);
  if (looks > 0)
    out += paragraph(fmt::format("Runs besides these that only looked, as at every boot: {:.0f}.", looks), "faint");
  return out;
}

std::string done_of(const json& document) {
  if (!flag_of(document, "ran"))
    return section("What was done",
                   paragraph("Nothing has run on this machine yet: what this page tells was found by looking."));
  return section("What was done, and when", changes_of(document) + events_of(document));
}

std::string topology_of(const json& document) {
  const std::string drawing = topology_drawing(list_of(document, "topology")),
                    pairs = pairs_table(list_of(document, "pairs"));
  if (drawing.empty() && pairs.empty()) return {};
  return section("Topology", element("div", "sides", element("div", "", drawing) + element("div", "", pairs)));
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

std::string measured_of(const json& document) {
  const json& proof = field_of(document, "proof");
  if (!proof.is_object())
    return section("Bandwidth and latency",
                   paragraph("No benchmark has run on this machine, or its report is not kept."));
  std::string inner = paragraph(text_of(proof, "summary"));
  inner += paragraph(fmt::format("Measured {} UTC. Rows send, columns receive.", time_text(text_of(proof, "time"))),
                     "faint");
  if (const json& again = field_of(proof, "again"); again.is_object())
    inner += paragraph(
        fmt::format("Looked at again {} UTC: {}", time_text(text_of(again, "time")), text_of(again, "summary")),
        "faint");
  const json& before = field_of(document, "before");
  if (!flag_of(before, "measured")) inner += paragraph("Before: " + text_of(before, "why"), "faint");
  std::string main, others;
  for (const json& matrix : list_of(proof, "matrices")) {
    const bool first = text_of(matrix, "id") == "copy" || text_of(matrix, "id") == "latency";
    (first ? main : others) +=
        pair_of_maps(matrix, text_of(matrix, "id") == "copy" ? list_of(proof, "grades") : field_of(matrix, "none"));
  }
  inner += heat_legend() + element("div", "maps two", main) + "\n" +
           element("div", "maps", word_map("Bytes that arrived", list_of(proof, "bytes")) + others);
  return section("Bandwidth and latency", inner);
}

std::string remarks_section(const json& document) {
  const json& proof = field_of(document, "proof");
  std::string items;
  for (const json& remark : list_of(proof, "remarks")) {
    const std::string grade = text_of(remark, "grade");
    items += element("li", "",
                     verdict_mark(grade == "fail"   ? "fail"
                                  : grade == "warn" ? "unknown"
                                                    : "not_applicable") +
                         " " + escaped(text_of(remark, "text"))) +
             "\n";
  }
  std::string inner = items.empty() ? "" : element("ul", "marks", items);
  inner += list_of_texts(gain_of(proof));
  std::string log;
  for (const json& line : list_of(proof, "kernel_log")) log += escaped(text_of(line)) + "\n";
  if (!log.empty()) inner += paragraph("Kernel log since the measurement began:") + element("pre", "", log);
  return section("Remarks and gain", inner);
}

std::string advice_of(const json& document) {
  const json& proof = field_of(document, "proof");
  std::string items;
  for (const json& line : list_of(proof, "advice")) {
    const std::string text = text_of(line);
    const std::size_t colon = text.find(": ");
    items += element("li", "",
                     colon == std::string::npos ? escaped(text)
                                                : text_element("b", "", text.substr(0, colon)) +
                                                      text_element("span", "", text.substr(colon))) +
             "\n";
  }
  return section("Advice for software: atomics, NCCL, pinning", items.empty() ? "" : element("ul", "", items));
}

}  // namespace

std::string report_page(const json& document) {
  std::string body = head_of(document) + verdict_of(document) + numbers_of(document);
  for (const auto part : {causes_of, done_of, topology_of, measured_of, remarks_section, advice_of, checks_section,
                          environment_section, runs_section})
    body += part(document);
  const std::string title = "P2P report: " + text_of(field_of(document, "verdict"), "headline");
  return fmt::format(kSkeleton, fmt::arg("title", escaped(title)), fmt::arg("style", kStyle),
                     fmt::arg("body", element("main", "", body)));
}

}  // namespace p2pd::ctl
