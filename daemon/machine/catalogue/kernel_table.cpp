// SPDX-License-Identifier: MIT
#include "machine/catalogue/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/json_fields.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kTable =
#include "kernel-table.inc"  // config/kernel-table.yaml as JSON, made by CMake
    ;

constexpr std::string_view kBuilds = "builds", kWith = "builds with ", kFails = "fails: ";
using Json = nlohmann::json;

bool any_row(const std::string&, const Json&) { return true; }
bool outcome(const std::string& kernel, const Json& value) {
  if (!parse_version(kernel) || !value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text == kBuilds || text.starts_with(kWith) || (text.starts_with(kFails) && text.size() > kFails.size());
}

KernelTrial trial_of(const std::string& release, const std::string& kernel, std::string_view text) {
  KernelTrial trial{release, kernel, *parse_version(kernel), {}, {}};
  if (text.starts_with(kFails)) trial.failure = text.substr(kFails.size());
  if (!text.starts_with(kWith)) return trial;
  std::istringstream rules{std::string(text.substr(kWith.size()))};
  for (std::string rule; std::getline(rules >> std::ws, rule, ',');) trial.rules.push_back(rule);
  return trial;
}

Result<std::vector<KernelTrial>> trials_of(const std::string& release, const Json& row) {
  JsonFields fields(row);
  const auto is_text = [](std::string_view text) { return !text.empty(); };
  (void)fields.text("source", is_text);
  (void)fields.text("tree", is_text);
  const Json kernels = fields.object("kernels", outcome, JsonFields::Need::required);
  TRY(fields.done());
  std::vector<KernelTrial> trials;
  for (const auto& [kernel, text] : kernels.items())
    trials.push_back(trial_of(release, kernel, text.get_ref<const std::string&>()));
  std::ranges::sort(trials, {}, &KernelTrial::version);
  return trials;
}

Result<KernelTable> parse(std::string_view text) {
  const Json document = parse_json(text);
  JsonFields fields(document);
  (void)fields.text("schema", [](std::string_view schema) { return schema == "p2pd.kernel-table/1"; });
  (void)fields.object("kernels", any_row);
  const Json releases = fields.object("releases", any_row, JsonFields::Need::required);
  TRY(fields.done());
  KernelTable table;
  for (const auto& [release, row] : releases.items()) {
    const auto version = parse_version(release);
    if (!version) return fail(ErrorCode::invalid, release + " is no release");
    table[*version] = TRY_IN(release, trials_of(release, row));
  }
  return table;
}

/// Trials of `release`, or of the nearest of its branch; null if none of that was built.
const KernelTable::value_type* row_of(const KernelTable& table, const Version& release) {
  if (const auto exact = table.find(release); exact != table.end()) return &*exact;
  const auto later = table.upper_bound(release);  // an older release supports fewer kernels: it decides
  if (later != table.begin() && std::prev(later)->first.front() == release.front()) return &*std::prev(later);
  return later != table.end() && later->first.front() == release.front() ? &*later : nullptr;
}

/// Release of `row` as NVIDIA writes it, "570.211.01".
std::string name_of(const KernelTable::value_type& row) {
  return row.second.empty() ? dotted(row.first) : row.second.front().release;
}

/// Outlook by the trials of `row`, of `release` or of one near it; null: no trials.
KernelOutlook outlook_by(const KernelTable::value_type* row, const Version& release, std::string_view kernel,
                         const std::vector<std::string>& compat) {
  using Kind = KernelOutlook::Kind;
  const Version version = mainline_of(kernel);
  if (row == nullptr || version.empty()) return {Kind::untried, fmt::format("no test build for {}", kernel)};
  const std::string of = row->first == release ? "" : fmt::format(" ({} does)", name_of(*row));
  const KernelTrial *before = nullptr, *same = nullptr, *after = nullptr;
  const Version whole = parse_version(kernel.substr(0, kernel.find_first_not_of("0123456789."))).value_or(version);
  for (const KernelTrial& trial : row->second) {
    const Version line(trial.version.begin(), trial.version.begin() + 2);
    if (line == version && (same == nullptr || trial.version <= whole)) same = &trial;  // headers change within a line
    if (line < version) before = &trial;
    if (line > version && after == nullptr) after = &trial;
  }
  const KernelTrial* const nearest = same != nullptr ? same : before != nullptr ? before : after;
  if (nearest != after && !nearest->failure.empty())
    return {Kind::fails, fmt::format("it does not build for Linux {}{}: {}", nearest->kernel, of, nearest->failure)};
  if (same != nullptr || (after != nullptr && after->failure.empty())) {
    const auto listed = [&](const std::string& rule) { return std::ranges::count(compat, rule) > 0; };
    if (of.empty() || std::ranges::all_of(nearest->rules, listed)) return {Kind::builds, {}};
    return {Kind::untried, fmt::format("{} builds for Linux {} with compat headers; no test build for {}",
                                       name_of(*row), nearest->kernel, kernel)};
  }
  if (before != nullptr)
    return {Kind::untried, fmt::format("it builds for Linux {}{}; no test build for {}", before->kernel, of, kernel)};
  return {Kind::untried, fmt::format("no test build for {}{}", kernel, of)};
}

}  // namespace

Version mainline_of(std::string_view kernel) {
  const std::size_t dot = kernel.find('.');
  if (dot == std::string_view::npos) return {};
  const std::size_t end = kernel.find_first_not_of("0123456789", dot + 1);
  return parse_version(kernel.substr(0, end)).value_or(Version());
}

Version fails_from(const KernelTable& table, const Version& release) {
  Version first;
  if (const auto* const row = row_of(table, release); row != nullptr && row->first >= release)
    for (auto trial = row->second.rbegin(); trial != row->second.rend() && !trial->failure.empty(); ++trial)
      first = {trial->version[0], trial->version[1]};
  return first;
}

std::string tested_release(const KernelTable& table, const Version& release) {
  const auto* const row = row_of(table, release);
  return row == nullptr ? "" : name_of(*row);
}

Result<KernelTable> parse_kernel_table(std::string_view text) { return TRY_IN("kernel-table.yaml", parse(text)); }

Result<KernelTable> kernel_table() { return parse_kernel_table(kTable); }

KernelOutlook kernel_outlook(const KernelTable& table, const Version& release, std::string_view kernel,
                             const std::vector<std::string>& compat) {
  using Kind = KernelOutlook::Kind;
  const auto* const row = row_of(table, release);
  KernelOutlook outlook = outlook_by(row, release, kernel, compat);
  if (outlook.kind == Kind::fails && row->first < release)  // a newer one may support more kernels
    outlook = {Kind::untried, fmt::format("no test build for {}; {}, which is older, fails", kernel, name_of(*row))};
  if (outlook.kind != Kind::untried) return outlook;
  for (auto newer = table.upper_bound(release); newer != table.end(); ++newer) {  // an older one supports fewer kernels
    if (row != nullptr && newer->first.front() != release.front())
      break;  // branches grow in parallel: 580.178 is later than 590.48
    if (const KernelOutlook its = outlook_by(&*newer, newer->first, kernel, compat); its.kind == Kind::fails)
      return {Kind::fails, fmt::format("{} is newer, and {}", name_of(*newer), its.reason)};
  }
  return outlook;
}

}  // namespace p2pd
