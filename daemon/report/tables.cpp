// SPDX-License-Identifier: MIT
// Sections of a page in words and tables: changes, checks, timeline, environment.
#include "report/sections.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <set>

#include "engine/journal.hpp"
#include "report/fields.hpp"
#include "report/html.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 20;
constexpr std::size_t kMostEvents = 200;

std::string size_text(const json& gpu, const char* key) {
  const auto mib = number_of(gpu, key);
  if (!mib) return "?";
  return *mib < 1024 ? fmt::format("{:.0f} MiB", *mib) : fmt::format("{:.0f} GiB", *mib / 1024);
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
                 "<thead><tr><th scope=\"col\">GPU</th><th scope=\"col\">Model</th><th scope=\"col\">VRAM</th>"
                 "<th scope=\"col\">BAR1</th><th scope=\"col\">Driver</th></tr></thead>" +
                     element("tbody", "", rows)) +
         "\n";
}

// ---- changes --------------------------------------------------------------------------------------------------------

std::string codes_of(const json& change, const char* key, const char* label) {
  std::string codes;
  for (const json& text : list_of(change, key)) codes += " " + text_element("code", "", text_of(text));
  return codes.empty() ? "" : element("p", "", label + codes) + "\n";
}

std::string change_of(const json& change) {
  const std::optional<StepStatus> status = step_status(text_of(change, "status"));
  const char* what = status == StepStatus::reverted         ? "undone"
                     : status == StepStatus::pending_reboot ? "with the next reboot"
                     : flag_of(change, "reboot")            ? "done, in effect since a reboot"
                                                            : "done";
  std::string inner = text_element("b", "", text_of(change, "step")) + " " + text_element("small", "", what) + "\n";
  inner += paragraph(text_of(change, "summary"));
  inner += codes_of(change, "files", "Files") + codes_of(change, "packages", "Packages");
  if (const std::string cost = text_of(change, "cost"); !cost.empty())
    inner += element("p", "", text_element("span", "warn", "Security") + " " + escaped(cost)) + "\n";
  return element("li", "", inner) + "\n";
}

// ---- checks ---------------------------------------------------------------------------------------------------------

std::string failed_check(const json& cause) {
  const std::string summary = text_of(cause, "summary"), step = text_of(cause, "step");
  std::string inner = element(
      "h3", "", verdict_mark(text_of(cause, "verdict")) + " " + escaped(summary.empty() ? "not checked" : summary));
  const std::string title = text_of(cause, "title");
  inner += element("p", "faint", text_element("code", "", step) + " " + escaped(title));
  inner += paragraph(text_of(cause, "why")) + paragraph(text_of(cause, "obstacle"), "note");
  std::string rows;
  for (const json& seen : list_of(cause, "evidence"))
    rows +=
        element("tr", "",
                text_element("th", "where", text_of(seen, "source")) + text_element("td", "", text_of(seen, "value")));
  if (!rows.empty()) inner += element("table", "evidence", rows);
  if (const std::string next = text_of(cause, "next"); !next.empty())
    inner += element("p", "next", "<b>Next</b> " + with_commands(next));
  return element("div", "cause", inner) + "\n";
}

std::string check_row(const json& step) {
  const std::string summary = text_of(step, "summary");
  return element("tr", "",
                 element("td", "", verdict_mark(text_of(step, "verdict"))) +
                     text_element("th", "where", text_of(step, "id")) +
                     element("td", "",
                             escaped(text_of(step, "title")) +
                                 (summary.empty() ? "" : "<br>" + text_element("span", "faint", summary)))) +
         "\n";
}

/// Headings of the folded lists: kinds of checks outside the failed ones.
constexpr const char* kFolds[] = {"passed or not applicable", "failed, not in the way", "not checked"};

std::size_t fold_of(const std::string& verdict) {
  return verdict == "pass" || verdict == "not_applicable" ? 0 : verdict.empty() ? 2 : 1;
}

// ---- timeline -------------------------------------------------------------------------------------------------------

/// duration_text() between two times; empty: not known.
std::string duration_between(const std::string& from, const std::string& to) {
  const auto begin = unix_time(from), end = unix_time(to);
  return !begin || !end || *end < *begin ? "" : duration_text(*end - *begin);
}

/// "11:01:05" of an ISO time, the whole text of another one.
std::string clock_text(const std::string& time) { return unix_time(time) ? time.substr(11, 8) : time; }

std::string event_row(const json& event, const std::string& before) {
  const std::string step = text_of(event, "step"), text = text_of(event, "text"), time = text_of(event, "time");
  std::string what = text_element("b", "", text_of(event, "what"));
  if (!step.empty()) what += " " + text_element("code", "", step);
  if (!text.empty()) what += text_element("span", "faint", " " + text);
  const std::string took = before.empty() ? "" : duration_between(before, time);
  return element("tr", "",
                 text_element("td", "time", clock_text(time)) +
                     text_element("td", "time", took.empty() ? "" : "+" + took) + element("td", "", what)) +
         "\n";
}

/// Events [first, last) of one boot and run, with the time since the event before `first` if that is of the same run.
std::string boot_of(const json& events, std::size_t first, std::size_t last) {
  const std::string begin = text_of(events[first], "time"), end = text_of(events[last - 1], "time");
  const bool goes_on = first > 0 && field_of(events[first - 1], "run") == field_of(events[first], "run");
  std::string heading = fmt::format("Boot {:.0f}, run {:.0f}", number_of(events[first], "boot").value_or(0),
                                    number_of(events[first], "run").value_or(0));
  if (const std::string took = duration_between(begin, end); !took.empty())
    heading += fmt::format(": {}, from {} UTC", took, time_text(begin));
  if (const std::string gap = goes_on ? duration_between(text_of(events[first - 1], "time"), begin) : ""; !gap.empty())
    heading +=
        fmt::format(", {} after the last event of boot {:.0f}", gap, number_of(events[first - 1], "boot").value_or(0));
  std::string rows;
  for (std::size_t i = first; i < last; ++i)
    rows += event_row(events[i], i == first ? "" : text_of(events[i - 1], "time"));
  return text_element("h3", "", heading) + element("table", "events", rows) + "\n";
}

std::string runs_table(const json& document) {
  const json& runs = list_of(document, "runs");
  std::string rows;
  for (std::size_t i = 0; i < std::min(runs.size(), kMostLines); ++i) {
    const json& run = runs[i];
    const std::string result = text_of(run, "result");
    rows += element("tr", "",
                    element("td", "", fmt::format("{:.0f}", number_of(run, "id").value_or(0))) +
                        text_element("td", "", text_of(run, "plan")) +
                        text_element("td", "time", time_text(text_of(run, "started"))) +
                        text_element("td", "", duration_between(text_of(run, "started"), text_of(run, "ended"))) +
                        text_element("td", "", result.empty() ? text_of(run, "state") : result) +
                        element("td", "", fmt::format("{:.0f}", number_of(run, "reboots").value_or(0))) +
                        text_element("td", "faint", text_of(run, "reason"))) +
            "\n";
  }
  if (rows.empty()) return {};
  std::string head;
  for (const char* name : {"Run", "Plan", "Begun", "Took", "Result", "Reboots", "Reason"})
    head += fmt::format("<th scope=\"col\">{}</th>", name);
  const std::string more =
      runs.size() > kMostLines
          ? paragraph(fmt::format("{} earlier runs are left out.", runs.size() - kMostLines), "faint")
          : "";
  return folded(
      fmt::format("Runs: {}", runs.size()),
      element("table", "runs", element("thead", "", element("tr", "", head)) + element("tbody", "", rows)) + more);
}

}  // namespace

std::string changes_section(const json& document) {
  std::string items;
  bool undoable = false;
  for (const json& change : list_of(document, "changes")) {
    items += change_of(change);
    undoable = undoable || step_status(text_of(change, "status")) != StepStatus::reverted;
  }
  if (items.empty() && !flag_of(document, "ran")) return {};
  std::string inner =
      items.empty() ? paragraph("Nothing on this machine is changed.") : element("ol", "changes", items) + "\n";
  if (undoable)
    inner += element("p", "",
                     with_commands("Undo all of it: \"sudo p2pctl revert\"") +
                         ". Files get back the content that they had; packages that p2pd removed are "
                         "installed again from its backup, without network.");
  return section("changes", "What was changed", inner);
}

std::string checks_section(const json& document) {
  std::string failed, folds[std::size(kFolds)];
  std::size_t counts[std::size(kFolds)] = {};
  std::set<std::string> shown;
  for (const json& cause : list_of(document, "causes")) {
    failed += failed_check(cause);
    shown.insert(text_of(cause, "step"));
  }
  for (const json& step : list_of(document, "steps")) {
    if (shown.contains(text_of(step, "id"))) continue;
    const std::size_t fold = fold_of(text_of(step, "verdict"));
    folds[fold] += check_row(step);
    ++counts[fold];
  }
  std::string inner =
      failed.empty() ? paragraph("Nothing that the plan checks is in the way.") : element("div", "failed", failed);
  for (std::size_t i = 0; i < std::size(kFolds); ++i)
    if (counts[i] > 0)
      inner += folded(fmt::format("{} {}", counts[i], kFolds[i]), element("table", "checks", folds[i]));
  return section("checks", "Checks", inner);
}

std::string timeline_section(const json& document) {
  const json& events = list_of(document, "events");
  const std::size_t start = events.size() - std::min(events.size(), kMostEvents);
  std::string out;
  if (start > 0) out = paragraph(fmt::format("{} earlier events are left out.", start), "faint");
  for (std::size_t first = start, last = start; first < events.size(); first = last) {
    const auto is_same = [&](const char* key) { return field_of(events[last], key) == field_of(events[first], key); };
    while (last < events.size() && is_same("boot") && is_same("run")) ++last;
    out += boot_of(events, first, last);
  }
  const double looks = number_of(document, "looks").value_or(0);
  if (looks > 0) out += paragraph(fmt::format("Runs that changed nothing, as at every boot: {:.0f}.", looks), "faint");
  return section("timeline", "Timeline", out + runs_table(document));
}

std::string environment_section(const json& document) {
  std::string rows;
  for (const json& row : list_of(document, "environment"))
    rows += element("tr", "",
                    "<th scope=\"row\">" + escaped(text_of(row, "name")) + "</th>" +
                        text_element("td", "", text_of(row, "value"))) +
            "\n";
  return section("environment", "Environment",
                 gpus_of(document) + (rows.empty() ? "" : element("table", "environment", rows)));
}

}  // namespace p2pd::ctl
