// SPDX-License-Identifier: MIT
// Page of a report: its sections, in the order in which a person needs them.
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/fields.hpp"
#include "report/html.hpp"
#include "report/proof.hpp"
#include "report/sections.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::string_view kSkeleton =
#include "report_page.html.inc"  // page.html as a raw string, made by CMake
    ;
constexpr std::string_view kStyle =
#include "report_page.css.inc"  // page.css as a raw string, made by CMake
    ;

std::string known(std::string_view word, std::initializer_list<std::string_view> words, std::string_view otherwise) {
  return std::string(std::ranges::find(words, word) == words.end() ? otherwise : word);
}

// ---- top of the page ------------------------------------------------------------------------------------------------

std::string origin_of(const json& document) {
  std::string line = fmt::format("Report of p2pd {}, {} UTC", escaped(text_of(document, "version")),
                                 escaped(time_text(text_of(document, "made"))));
  if (const std::string plan = text_of(document, "plan"); !plan.empty()) line += ", plan " + escaped(plan);
  if (!flag_of(document, "redacted")) line += ". <strong>Not redacted</strong>: it names this machine.";
  return element("p", "faint", line) + "\n";
}

/// Actions of the operator, in order, then the command that continues.
std::string actions_of(const json& document) {
  const json &verdict = field_of(document, "verdict"), &actions = list_of(document, "actions");
  std::string items;
  for (const json& action : actions)
    items += element("li", "",
                     with_commands(text_of(action, "next")) + " <span class=\"faint\">" +
                         text_element("code", "", text_of(action, "step")) + " " + escaped(text_of(action, "seen")) +
                         "</span>") +
             "\n";
  const std::string next = text_of(verdict, "next");
  std::string out = items.empty() ? "" : element("ol", "actions", items) + "\n";
  if (!next.empty())
    out += element("p", "next", (items.empty() ? "<b>Next</b> " : "<b>Then</b> ") + with_commands(next)) + "\n";
  return out;
}

std::string verdict_of(const json& document) {
  const json &verdict = field_of(document, "verdict"), &machine = field_of(document, "machine");
  const std::string tone = known(text_of(verdict, "tone"), {"good", "warn", "bad"}, "open");
  const std::string sign = tone == "good" ? "✓" : tone == "warn" ? "!" : tone == "bad" ? "✗" : "○";
  std::string inner = element("h1", "", element("span", "sign", sign) + " " + escaped(text_of(verdict, "headline")));
  inner += paragraph(text_of(machine, "text"), "machine") + paragraph(text_of(machine, "emulated"), "note");
  const bool told = !flag_of(document, "ran") && !list_of(document, "actions").empty();  // by the actions
  inner += (told ? "" : paragraph(text_of(verdict, "text"))) + actions_of(document);
  if (!flag_of(document, "ran"))
    inner += paragraph("Nothing has run on this machine yet: nothing is changed, and this is a diagnosis.", "faint");
  std::string notes;
  for (const json& note : list_of(document, "notes")) notes += paragraph("Not read: " + text_of(note), "note");
  return element("div", "verdict " + tone, inner) + notes + "\n";
}

std::string numbers_of(const json& document) {
  std::string items;
  for (const json& number : list_of(document, "numbers")) {
    const std::string note = text_of(number, "note");
    items +=
        element("div", "",
                text_element("dt", "", text_of(number, "label")) + text_element("dd", "", text_of(number, "value")) +
                    (note.empty() ? "" : text_element("dd", "faint", note))) +
        "\n";
  }
  return !field_of(document, "proof").is_object() ? "" : element("dl", "numbers", items) + "\n";
}

// ---- sections -------------------------------------------------------------------------------------------------------

std::string topology_of(const json& document) {
  const std::string drawing = topology_drawing(list_of(document, "topology")),
                    pairs = pairs_table(list_of(document, "pairs"));
  if (drawing.empty() && pairs.empty()) return {};
  return section("topology", "Topology",
                 element("div", "sides", element("div", "", drawing) + element("div", "", pairs)));
}

std::string remarks_section(const json& document) {
  const json& proof = field_of(document, "proof");
  std::string items;
  for (const json& remark : list_of(proof, "remarks")) {
    const std::string grade = text_of(remark, "grade");
    const std::string sign = grade == "fail"   ? mark("bad", "✗", "failed")
                             : grade == "warn" ? mark("warn", "!", "slower than it should be")
                                               : mark("faint", "–", "not judged");
    items += element("li", "", sign + " " + escaped(text_of(remark, "text"))) + "\n";
  }
  std::string inner = items.empty() ? "" : element("ul", "marks", items);
  json gain = json::array();
  for (const std::string& line : gain_of(proof)) gain.push_back(line);
  inner += list_of_texts(gain);
  std::string log;
  for (const json& line : list_of(proof, "kernel_log")) log += escaped(text_of(line)) + "\n";
  if (!log.empty()) inner += paragraph("Kernel log since the measurement began:") + element("pre", "", log);
  return section("remarks", "Remarks and gain", inner);
}

std::string advice_of(const json& document) {
  std::string items;
  for (const json& line : list_of(field_of(document, "proof"), "advice")) {
    const std::string text = text_of(line);
    const std::size_t colon = text.find(": ");
    items += element("li", "",
                     colon == std::string::npos ? escaped(text)
                                                : text_element("b", "", text.substr(0, colon)) +
                                                      text_element("span", "", text.substr(colon))) +
             "\n";
  }
  return section("advice", "Advice for software", items.empty() ? "" : element("ul", "", items));
}

/// All of the document as text: without a script element, and without a character that HTML or a terminal interprets.
std::string json_of(const json& document) {
  return section("json", "JSON",
                 folded("This report for programs, schema " + text_of(document, "schema"),
                        element("pre", "", escaped(document.dump(1, ' ', true, json::error_handler_t::replace)))));
}

/// Section and its name in the list of anchors.
struct Part {
  const char* anchor;
  const char* name;
  std::string (*of)(const json& document);
};
constexpr Part kBeforeAfter = {"before-after", "Before and after", measured_section};
constexpr Part kChecks = {"checks", "Checks", checks_section};
constexpr Part kParts[] = {{"remarks", "Remarks", remarks_section},
                           {"soak", "Soak", soak_section},
                           {"advice", "Advice", advice_of},
                           {"changes", "Changes", changes_section},
                           {"timeline", "Timeline", timeline_section}};
constexpr Part kReference[] = {{"topology", "Topology", topology_of},
                               {"environment", "Environment", environment_section},
                               {"json", "JSON", json_of}};

/// Sections in the order in which a person needs them: failed checks before all else.
std::vector<Part> parts_of(const json& document) {
  std::vector<Part> parts = {kBeforeAfter};
  parts.insert(parts.end(), std::begin(kParts), std::end(kParts));
  parts.insert(list_of(document, "causes").empty() ? parts.end() : parts.begin(), kChecks);
  parts.insert(parts.end(), std::begin(kReference), std::end(kReference));
  return parts;
}

}  // namespace

std::string report_page(const json& document) {
  std::string anchors, sections;
  for (const Part& part : parts_of(document)) {
    const std::string text = part.of(document);
    if (!text.empty()) anchors += fmt::format("<a href=\"#{}\">{}</a>\n", part.anchor, part.name);
    sections += text;
  }
  std::string body = element("header", "", origin_of(document) + verdict_of(document) + numbers_of(document));
  body += "<nav aria-label=\"Sections\">" + anchors + "</nav>\n" + element("div", "sections", sections) + "\n";
  if (flag_of(document, "redacted"))
    body += element("footer", "",
                    paragraph("Redacted: words that identify this machine or its users are removed; the manual page "
                              "p2pctl(1) lists them under \"report\".",
                              "faint"));
  const std::string title = "P2P report: " + text_of(field_of(document, "verdict"), "headline");
  return fmt::format(kSkeleton, fmt::arg("title", escaped(title)), fmt::arg("style", kStyle),
                     fmt::arg("body", element("main", "", body)));
}

}  // namespace p2pd::ctl
