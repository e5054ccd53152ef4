// SPDX-License-Identifier: MIT
#include "screen/preview.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/image_runner.hpp"
#include "base/json_members.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/modules/toolchain.hpp"
#include "plan/config.hpp"
#include "plan/resolve.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {

namespace {

/// Describes the changes of a plan, each once, at the first step that needs it.
class ChangeTeller {
 public:
  /// `in_turn`: each change is described as it is after those before it.
  ChangeTeller(const Plan& plan, const Registry& registry, const Host& host, const Assessment& seen, bool in_turn)
      : plan_(plan), registry_(registry), host_(host), seen_(seen), in_turn_(in_turn) {}

  Preview tell(const Standing& standing) {
    Preview told{standing};
    if (standing.kind == Standing::Kind::waits) tell_later(told);
    if (standing.kind != Standing::Kind::fixable && standing.kind != Standing::Kind::busy) return told;
    tell_needs(*standing.step, told);
    if (!standing.step->fix.empty()) tell_fix(*standing.step, told);
    return told;
  }

 private:
  void tell_needs(const Step& step, Preview& told) {
    for (const std::string& name : step.needs) {
      const Step& need = *plan_.step(name);
      const auto found = seen_.needs.find(name);
      if (found == seen_.needs.end() || found->second.holds() || need.fix.empty() || !told_.insert(name).second)
        continue;
      tell_needs(need, told);
      tell_fix(need, told);
    }
  }

  /// Describes the fix of a failing step that waits for another step, as far as possible before that one is fixed.
  void tell_later(Preview& told) {
    const Step& step = *told.standing.step;
    const std::function<bool(const std::string&)> settles = [&](const std::string& name) {  // by the same check
      const Step& earlier = *plan_.step(name);
      return (earlier.check == step.check && !earlier.fix.empty()) || std::ranges::any_of(earlier.after, settles);
    };
    const bool fails = told.standing.finding.verdict == Verdict::fail;
    if (!fails || step.fix.empty() || std::ranges::any_of(step.after, settles)) return;
    auto change = describe(step);
    if (change && !(change->files.empty() && change->commands.empty()))
      told.changes.push_back({&step, *std::move(change)});
  }

  Result<Description> describe(const Step& step) {
    Result<Description> change = registry_.action(step.fix)->describe(after_ ? *after_ : host_, step.with);
    if (!in_turn_ || !change || change->files.empty()) return change;
    for (const Description::File& file : change->files)
      files_[file.path] = file.kind == FileState::Kind::absent ? std::nullopt : std::optional(file.content);
    after_ = host_.snapshot_after(files_);
    return change;
  }

  void tell_fix(const Step& step, Preview& told) {
    Result<Description> change = describe(step);
    if (!change && is_not_run(change.error())) {
      change.emplace();
      change->summary = "not known for an image before it boots";
    }
    if (change) {
      told.changes.push_back({&step, *std::move(change)});
    } else if (!std::exchange(told.blocked, true)) {
      told.obstacle = change.error().message;
      if (!change.error().next.empty()) told.next = change.error().next;
    }
  }

  const Plan& plan_;
  const Registry& registry_;
  const Host& host_;
  const Assessment& seen_;
  bool in_turn_;
  PendingFiles files_;                 ///< of the changes so far
  std::unique_ptr<const Host> after_;  ///< the host once they are written; null: none is
  std::set<std::string> told_;
};

Otherwise otherwise_of(const PlanPreview& all, const Plan& plan, const Host& host, const Assessment& seen) {
  Otherwise then;
  if (const auto people = seen.for_a_person(); !people.empty() && people.front() != seen.goal()) {
    const std::string& next = people.front()->next;
    then.obstacle =
        fmt::format("{}: {}", people.front()->step->id, next.empty() ? people.front()->finding.summary : next);
  }
  ChangeTeller teller(plan, all.registry, host, seen, false);
  for (const Standing& s : seen.steps) {
    const auto now = std::ranges::find(all.seen.steps, s.step->id, [](const Standing& one) { return one.step->id; });
    const bool fixed = now != all.seen.steps.end() && now->is_failing() && all.outlook == Outlook::fixable;
    if (s.kind != Standing::Kind::fixable || !s.step->is_gate() || fixed) continue;
    then.steps.push_back(s.step->id);
    for (const Change& change : teller.tell(s).changes) then.changes.push_back(change.description.summary);
  }
  return then;
}

}  // namespace

Otherwise if_the_proof_fails(const PlanPreview& all, const Step* trial) {
  Plan plan = all.plan;
  for (Step& step : plan.steps)
    if (trial != nullptr && step.id == trial->id) step.tried = Tried::ineffective;
  // an alternative may do without what a GPU lacks
  const auto host =
      all.host.snapshot(trial == nullptr ? all.host.alone_gpus() : alone_gpus(plan, all.registry, all.host));
  Assessment seen = trial == nullptr ? all.seen : assess(plan, all.registry, *host);
  Finding refuted;
  refuted.verdict = Verdict::fail;
  refuted.summary = "the proof failed";
  if (seen.goal() != nullptr) seen.judge_goal(refuted);
  return otherwise_of(all, plan, *host, seen);
}

Otherwise if_it_still_fails(const PlanPreview& all, const Step& step) {
  const Assessment seen = assess(all.plan, all.registry, [&](const Step& one) {
    const auto now = std::ranges::find(all.seen.steps, one.id, [](const Standing& s) { return s.step->id; });
    Finding held;
    held.verdict = Verdict::pass;
    if (one.id != step.id && now != all.seen.steps.end() && now->finding.verdict == Verdict::fail) return held;
    return finding_of(one, all.registry, all.host);
  });
  Otherwise then = otherwise_of(all, all.plan, all.host, seen);
  for (const Preview& preview : all.steps)  // what is changed in any case
    for (const Change& change : preview.changes) std::erase(then.changes, change.description.summary);
  return then;
}

PlanPreview::PlanPreview(Plan of, const Registry& words, const Host& machine, bool in_turn)
    : plan(std::move(of)), registry(words), host(machine), seen(assess(plan, registry, host)), outlook(seen.outlook()) {
  ChangeTeller teller(plan, registry, host, seen, in_turn);
  for (const Standing& s : seen.steps) {
    const bool needless = outlook == Outlook::ready && s.step->kind != StepKind::upkeep;
    steps.push_back(needless ? Preview{s} : teller.tell(s));
  }
  for (const auto& [name, finding] : seen.needs)
    for (const nlohmann::json& one : finding.facts.value("ends", nlohmann::json::array())) ends.push_back(one);
  for (const Preview& preview : steps)
    for (const Change& change : preview.changes) time += change.description.time;
  changes = std::ranges::any_of(steps, [](const Preview& p) { return !p.changes.empty(); });
  blocked = outlook == Outlook::person || outlook == Outlook::impossible ||
            (outlook == Outlook::fixable && std::ranges::any_of(steps, &Preview::blocked));
  if (outlook != Outlook::ready) reboots = seen.reboots(registry);
}

bool PlanPreview::reboots_for(const Preview& preview, const Change& change) const {
  const Step& step = *change.step;
  return &step == preview.standing.step && !step.fix.empty() && registry.action(step.fix)->effect == Effect::reboot;
}

std::string apply_command(const Plan& plan) {
  return fmt::format("sudo p2pctl apply{}", plan.name == Config().plan ? "" : " " + plan.name);
}

std::string reboots_text(const Reboots& reboots) { return (reboots.most == 0 ? "no" : to_string(reboots)) + " reboot"; }

std::string losses_text(const PlanPreview& all) {
  std::vector<std::string_view> losses;
  for (const Preview& preview : all.steps)
    for (const Change& change : preview.changes)
      if (!change.description.loses.empty()) losses.push_back(change.description.loses);
  return fmt::format("{}", fmt::join(losses, " and "));
}

/// Finding on the choice of a driver, if it was asked for; null: it was not.
static const Finding* driver_choice(const PlanPreview& all) {
  for (const auto& [name, finding] : all.seen.needs)
    if (all.plan.step(name)->check == "driver-catalogue") return &finding;
  return nullptr;
}

static bool swaps_modules(const PlanPreview& all) {
  return std::ranges::any_of(all.steps, [](const Preview& preview) {
    return std::ranges::any_of(preview.changes, [](const Change& one) { return one.step->fix == "driver-modules"; });
  });
}

/// "550.163.01 (5 packages stay)", "535.247.01, 8 packages purged": a narrow screen drops what is in parentheses.
static std::string driver_before(const PlanPreview& all, const DriverInstall& install) {
  const std::string losses = losses_text(all);
  const bool stay = driver_choice(all)->facts.value("keeps_packages", false);
  if (!install.packages.empty())
    return fmt::format("{}{}", fmt::join(install.package_versions(), ", "),
                       stay             ? fmt::format(" ({} packages stay)", install.packages.size())
                       : losses.empty() ? ", its packages purged"
                                        : ", " + losses + " purged");
  if (!install.runfile.installed) return "no driver";
  return install.runfile.version + (install.runfile.version.empty() ? "NVIDIA's runfile" : " of NVIDIA's runfile");
}

std::string driver_text(const PlanPreview& all) {
  const auto waits = [](const Preview& one) { return one.blocked && one.standing.step->check == "nvidia-driver"; };
  const bool comes = swaps_modules(all) || (all.blocked && std::ranges::any_of(all.steps, waits));
  if (!comes || all.outlook == Outlook::impossible) return "";
  const Finding* choice = driver_choice(all);
  const std::string entry = choice == nullptr ? "" : text_of(choice->facts, "entry");
  if (const std::string by_hand = choice == nullptr ? "" : text_of(choice->facts, "by_hand"); !by_hand.empty())
    return fmt::format("{}, by hand: {}", by_hand, text_of(choice->facts, "evidence"));
  const DriverInstall install = installed_driver(all.host).value_or(DriverInstall());
  if (entry.empty())
    return install.packages.empty() ? "not chosen yet" : "not chosen yet; packages will be kept or purged";
  return fmt::format("{} -> {}: {}", driver_before(all, install), entry, text_of(choice->facts, "evidence"));
}

bool is_reported(const PlanPreview& all) {
  const Finding* choice = driver_choice(all);
  const auto is_trial = [](const Preview& one) {
    const bool later = one.standing.kind == Standing::Kind::waits && one.standing.finding.verdict == Verdict::fail &&
                       one.standing.step->check == "driver-peers";
    return later || (one.standing.step->first && !one.changes.empty());
  };
  if (swaps_modules(all)) return choice == nullptr || choice->facts.value("reported", false);
  return std::ranges::none_of(all.steps, is_trial);
}

std::vector<Obstruction> obstructions(const PlanPreview& all) {
  std::vector<Obstruction> found;
  for (const Preview& preview : all.steps) {
    const bool open = all.outlook == Outlook::impossible && preview.standing.finding.verdict == Verdict::unknown;
    if (!preview.blocked || open) continue;
    auto same = std::ranges::find(found, preview.next, &Obstruction::next);
    if (same == found.end()) same = found.insert(same, {{}, preview.obstacle, preview.next});
    same->steps.push_back(&preview);
  }
  return found;
}

std::vector<std::string> row_of(const Standing& s, const Assessment& seen) {
  const Outlook outlook = seen.outlook();
  const bool excused = (outlook == Outlook::ready || outlook == Outlook::provable) && s.step->kind != StepKind::goal;
  const auto dim = [](const std::string& text) { return paint(Colour::dim, text); };
  const std::string& summary = s.finding.summary;
  if (s.kind == Standing::Kind::untried) return {mark(Verdict::unknown), s.step->id, "not proven on this boot"};
  if (s.kind == Standing::Kind::holds) return {mark(s.finding.verdict), s.step->id, summary};
  if (s.kind == Standing::Kind::note)
    return {dim("·"), dim(s.step->id),
            dim(std::string(s.step->is_gate() ? "not needed here" : "not maintained by p2pd") +
                (summary.empty() ? "" : "; now: " + summary))};
  if (s.kind == Standing::Kind::waits)
    return {dim("·"), dim(s.step->id),
            dim(excused           ? "not in the way" + (summary.empty() ? "" : "; now: " + summary)
                : summary.empty() ? "not checked before the steps above hold"
                                  : "waits; now: " + summary)};
  if (excused && s.kind == Standing::Kind::blocked)
    return {dim("·"), s.step->id,
            summary + dim(outlook == Outlook::ready ? "  (not in the way here)" : "  (the proof decides)")};
  const bool planned =
      s.kind == Standing::Kind::fixable || s.kind == Standing::Kind::busy || s.kind == Standing::Kind::pending;
  return {planned ? mark_of_planned() : mark(s.finding.verdict), s.step->id, summary};
}

Rows check_rows(std::span<const Preview* const> previews, const PlanPreview& all, std::size_t lines) {
  std::size_t width = 0;
  for (const Preview* preview : previews) width = std::max(width, preview->standing.step->id.size());
  Rows rows;
  for (const Preview* preview : previews) {
    rows.push_back(row_of(preview->standing, all.seen));
    rows.back().back() = shortened(preview->standing.finding.summary, lines * (kScreen - width - 6));
  }
  return rows;
}

std::string machine_text(const Host& host) {
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  std::vector<std::string> parts;
  if (std::string gpus = groups_text(devices); !gpus.empty()) parts.push_back(std::move(gpus));
  if (const std::string system = distribution(host).text(); !system.empty()) parts.push_back(system);
  if (const auto kernel = host.line("/proc/sys/kernel/osrelease")) parts.push_back("Linux " + *kernel);
  if (const auto driver = host.line(kLoadedDriver)) parts.push_back("driver " + *driver);
  return shortened(fmt::format("{}", fmt::join(parts, "; ")), 2 * kScreen);
}

}  // namespace p2pd::ctl
