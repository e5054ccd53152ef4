// SPDX-License-Identifier: MIT
// p2pctl doctor: the verdict first, then what the operator must do, what p2pd does, and the next command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json_members.hpp"
#include "base/strings.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "screen/preview.hpp"

namespace p2pd::ctl {
namespace {

constexpr std::string_view kFirmware = "firmware setup (BIOS)";  ///< in a `next` about it
constexpr std::size_t kAloneRows = 3;                            ///< GPUs without a peer that are shown
constexpr std::size_t kFixes = 5;                                ///< failing steps shown when p2pd fixes them
constexpr std::size_t kFew = 2;      ///< of them, and of tasks on a narrow terminal, that get two lines each
constexpr std::size_t kNarrow = 70;  ///< columns of a narrow terminal, below

std::string things(std::size_t count) { return fmt::format("{} thing{}", count, count == 1 ? "" : "s"); }

bool does_the_rest(const PlanPreview& all) {
  return all.changes || std::ranges::any_of(all.steps, &Preview::fixed_later);
}

/// Colour and text of the verdict.
std::pair<Colour, std::string> verdict_of(const PlanPreview& all) {
  if (all.seen.goal() == nullptr && all.outlook == Outlook::ready)
    return {Colour::green, fmt::format("Plan {}: every check passes.", all.plan.name)};
  switch (all.outlook) {
    case Outlook::ready: return {Colour::green, "P2P: READY"};
    case Outlook::limited: return {Colour::yellow, "P2P: WORKS IN PART"};
    case Outlook::provable:
      return {Colour::yellow, fmt::format("P2P: NOT PROVEN on this boot. {}",
                                          all.seen.excused().empty() ? "No check is in the way."
                                                                     : "The driver says OK, but these checks fail:")};
    case Outlook::impossible: return {Colour::red, "P2P: NOT POSSIBLE with this hardware."};
    default: break;
  }
  const std::string losses = losses_text(all);
  const std::string purge = losses.empty() ? "" : fmt::format("; it purges {}", losses);
  if (!all.blocked)
    return {Colour::red, fmt::format("P2P: NOT WORKING. p2pd can {} ({}{}).", is_reported(all) ? "fix it" : "try",
                                     reboots_text(all.reboots), purge)};
  return {Colour::red, fmt::format("P2P: NOT WORKING. You must fix {}{}{}.", things(obstructions(all).size()),
                                   does_the_rest(all) ? "; p2pd does the rest" : "", purge)};
}

/// `next` as an instruction below a heading that names the firmware setup.
std::string below_heading(const std::string& next) {
  const std::string prefix = fmt::format("In the {}, ", kFirmware);
  if (!next.starts_with(prefix)) return next;
  return capitalized(next.substr(prefix.size()));
}

/// Prints the obstructions of one place, numbered from `number` on, each cut to `lines` lines.
void print_obstructions(const std::vector<const Obstruction*>& some, const std::string& heading, std::size_t lines,
                        std::size_t& number) {
  if (some.empty()) return;
  print_line(heading);
  Rows rows;
  for (const Obstruction* one : some) {
    std::vector<std::string> ids;
    for (const Preview* preview : one->steps) ids.push_back(preview->standing.step->id);
    const std::string text = one->obstacle.empty() ? fmt::format("{}: {}", fmt::join(ids, ", "),
                                                                 one->steps.front()->standing.finding.summary)
                                                   : one->obstacle;  // begins with the name of its step
    rows.push_back({fmt::format("{}.", ++number), shortened(text, lines * (text_width() - 5))});
    rows.push_back({"", paint(Colour::bold, below_heading(one->next))});
  }
  print_table(rows);
}

/// A row for each cost in security.
Rows cost_rows(std::set<std::string> costs) {
  costs.erase("");
  Rows rows;
  for (const std::string& cost : costs) rows.push_back({paint(Colour::yellow, "security"), shortened(cost, kScreen)});
  return rows;
}

/// Prints the operator's tasks: all of the firmware setup in one visit, then the rest.
void print_operator(const PlanPreview& all) {
  const std::vector<Obstruction> found = obstructions(all);
  std::vector<const Obstruction*> firmware, others;
  for (const Obstruction& one : found)
    (one.next.find(kFirmware) == std::string::npos ? others : firmware).push_back(&one);
  const std::size_t lines = text_width() < kNarrow && found.size() > kFew ? 1 : 2;
  std::size_t number = 0;
  print_obstructions(firmware, fmt::format("In the {}{}:", kFirmware, firmware.size() > 1 ? ", one visit" : ""), lines,
                     number);
  print_obstructions(others, firmware.empty() ? "To do:" : "And:", lines, number);
  std::set<std::string> costs;  // of kernel arguments that are added by hand
  for (const Preview& preview : all.steps)
    for (const std::string& argument : wanted_kernel_arguments(preview.standing.step->with))
      if (preview.blocked && preview.next.find(argument.substr(0, argument.find(';'))) != std::string::npos)
        costs.insert(isolation_cost({argument}));
  print_table(cost_rows(std::move(costs)));
}

/// Failing steps that p2pd fixes, what that costs in security, and what is waited for.
void print_fixes(const PlanPreview& all) {
  std::vector<const Preview*> failing;
  std::set<std::string> costs, waits;
  for (const Preview& preview : all.steps) {
    for (const Change& change : preview.changes) costs.insert(change.description.cost);
    if (preview.blocked || !preview.standing.is_failing()) continue;
    if (!preview.obstacle.empty()) waits.insert(preview.obstacle);
    failing.push_back(&preview);
  }
  const std::size_t left = failing.size() - std::min(failing.size(), kFixes);
  failing.resize(failing.size() - left);
  Rows rows = check_rows(failing, all, failing.size() <= kFew ? 2 : 1);
  if (left > 0) rows.push_back({mark_of_planned(), "", fmt::format("and {} more", left)});
  print_table(rows);
  rows = cost_rows(std::move(costs));
  for (const std::string& obstacle : waits)
    rows.push_back({paint(Colour::yellow, "waits for"), shortened(obstacle, 2 * kScreen)});
  print_table(rows);
}

/// Gates that the driver's report excuses, and what a machine may do where they fail.
void print_excused(const PlanPreview& all) {
  Rows rows;
  for (const Standing* one : all.seen.excused()) {
    rows.push_back({mark(one->finding.verdict),
                    shortened(fmt::format("{}: {}", one->step->id, one->finding.summary), 2 * kScreen)});
    if (!one->step->why.empty()) rows.push_back({"", paint(Colour::dim, shortened(one->step->why, 3 * kScreen))});
  }
  print_table(rows);
}

/// Warnings of checks that pass, and of upkeep, which is in nobody's way; where nothing else fails, upkeep that does.
void print_warnings(const PlanPreview& all) {
  Rows rows;
  for (const Standing& s : all.seen.steps)
    if (s.step->kind == StepKind::upkeep && s.is_failing() && !all.blocked && all.outlook != Outlook::fixable)
      rows.push_back({paint(Colour::yellow, "!"), s.step->id, shortened(s.finding.summary, 2 * kScreen)});
  for (const Standing& s : all.seen.steps)
    for (const std::string& text : json_texts(s.finding.facts, "warnings"))
      if (s.kind == Standing::Kind::holds || s.step->kind == StepKind::upkeep)
        rows.push_back({paint(Colour::yellow, "!"), s.step->id, shortened(text, 2 * kScreen)});
  print_table(rows);
}

/// GPUs without a peer, and what would change that.
void print_alone(const PlanPreview& all) {
  Rows rows;
  for (const PciDevice& gpu : pci_devices(all.host).value_or(std::vector<PciDevice>()))
    if (is_alone(gpu))
      rows.push_back({"-", shortened(fmt::format("{} is {}", gpu.address, gpu.left_out), 3 * kScreen)});
  if (rows.size() > kAloneRows) {
    const std::size_t more = rows.size() - kAloneRows;
    rows.resize(kAloneRows);
    rows.push_back({"-", fmt::format("and {} more", more)});
  }
  print_table(rows);
}

/// "changes nothing", "changes only nccl"
std::string after_proof(const PlanPreview& all) {
  std::vector<std::string> names;
  for (const Preview& preview : all.steps)
    if (preview.standing.step->kind == StepKind::upkeep && !preview.changes.empty())
      names.push_back(preview.standing.step->id);
  return names.empty() ? "changes nothing" : fmt::format("changes only {}", fmt::join(names, ", "));
}

std::string next_text(const PlanPreview& all) {
  const std::string apply = apply_command(all.plan);
  switch (all.outlook) {
    case Outlook::ready:
    case Outlook::impossible: return "";
    case Outlook::limited: return all.seen.goal()->finding.next;
    case Outlook::provable: return apply + fmt::format("   (proves it; {} where it passes)", after_proof(all));
    default: break;
  }
  if (!all.blocked) return apply + "   (\"p2pctl plan\" shows the changes)";
  return all.changes ? fmt::format("{}   ({})", apply, reboots_text(all.reboots)) : apply;
}

std::string counts(const PlanPreview& all) {
  std::map<std::string_view, int> found;  // by the words of the text
  for (const Standing& s : all.seen.steps) {
    const bool holds = s.kind == Standing::Kind::holds, applies = s.finding.verdict != Verdict::not_applicable;
    const bool upkeep = s.step->kind == StepKind::upkeep;
    ++found[holds             ? (applies ? "passed" : "not applicable")
            : !s.is_failing() ? "open"
            : upkeep          ? "optional"
                              : "failed"];
  }
  std::vector<std::string> texts;
  for (const std::string_view word : {"passed", "not applicable", "failed", "optional", "open"})
    if (found[word] > 0) texts.push_back(fmt::format("{} {}", found[word], word));
  return fmt::format("Checks: {}: p2pctl doctor --all", fmt::join(texts, ", "));
}

}  // namespace

void print_verdict(const PlanPreview& all) {
  if (const std::string machine = machine_text(all.host); !machine.empty()) print_line(machine);
  const auto [colour, text] = verdict_of(all);
  print_line(paint(colour, text));
  if (const Standing* goal = all.seen.goal(); goal != nullptr && goal->finding.proves())
    print_table({{shortened(goal->finding.summary, 3 * kScreen)}});
  print_excused(all);
  if (all.blocked) print_operator(all);
  if (all.outlook == Outlook::fixable) print_fixes(all);
  if (const std::string driver = driver_text(all); !driver.empty())
    print_table({{"driver", all.blocked ? shortened(driver, (text_width() < kNarrow ? 3 : 6) * (text_width() - 9) / 2)
                                        : driver}});
  print_warnings(all);
  print_alone(all);
  if (const std::string next = next_text(all); !next.empty())
    print_line(fmt::format("{} {}", all.blocked ? "Then:" : "Next:", paint(Colour::bold, next)));
  print_line(paint(Colour::dim, counts(all)));
}

}  // namespace p2pd::ctl
