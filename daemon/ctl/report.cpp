// SPDX-License-Identifier: MIT
// p2pctl report [FILE]: all data about this machine and p2pd's changes to it, as one HTML file to hand on.
// p2pctl gain: what P2P gives here, from the same data.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "ctl/service.hpp"
#include "engine/journal.hpp"
#include "engine/undo.hpp"
#include "machine/packages/brought_packages.hpp"
#include "machine/packages/package_backup.hpp"
#include "plan/config.hpp"
#include "report/document.hpp"
#include "report/page.hpp"
#include "report/proof.hpp"
#include "screen/preview.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kReportedRuns = 200;
constexpr const char* kDefaultFile = "p2pd-report.html";
constexpr std::size_t kBaselineLimit = 16U << 20;

/// Value of `found`; an Error is added to `notes`.
json known_or_noted(Result<json> found, std::string_view what, std::vector<std::string>& notes) {
  if (found) return *std::move(found);
  notes.push_back(fmt::format("{}: {}", what, found.error().text()));
  return nullptr;
}

/// P2P measurements from before the first change, as the plans store them.
json baseline_of(const Context& context, std::vector<std::string>& notes) {
  const Result<Root> root = Root::open(context.state());
  const auto text = root ? root->read("/baseline.json", kBaselineLimit) : Failure(root.error());
  if (!text && text.error().code == ErrorCode::denied)
    notes.emplace_back("the measurement before the first change: readable by root only");
  return text ? parse_json(*text) : json();
}

/// Packages that the change behind these undo records installed, upgraded or removed.
std::vector<std::string> packages_of(const Host& host, const std::vector<std::string>& paths) {
  std::vector<std::string> packages;
  for (const std::string& path : paths)
    for (const std::string& package : brought_packages(host, path)) packages.push_back(package);
  if (std::ranges::find(paths, PackageBackup::kPurging) == paths.end()) return packages;
  if (const auto backup = read_package_backup(host))
    for (const StagedDeb& one : backup->packages)
      packages.push_back(fmt::format("{} {} removed", one.name, one.version));
  return packages;
}

std::vector<ReportedChange> in_place(const Context& context, const Host& host, std::vector<std::string>& notes) {
  std::vector<ReportedChange> changes;
  const auto root = context.root();
  const auto state = Root::open(context.state());
  if (!root || (!state && state.error().code == ErrorCode::not_found)) return changes;
  const auto undo = state ? UndoStore::open(*state, *root) : Failure(state.error());
  if (!undo) {
    notes.push_back("files and packages that were changed: " +
                    (undo.error().code == ErrorCode::denied ? "readable by root only" : undo.error().text()));
    return changes;
  }
  for (const UndoStore::Owner& owner : undo->owners()) {
    const std::vector<std::string> paths = undo->paths(owner);
    const Action* const action = context.registry.action(owner.fix);
    const auto told = action == nullptr ? Result<Description>(Description()) : action->describe(host, owner.with);
    ReportedChange& change = changes.emplace_back(ReportedChange{.run = owner.run, .step = owner.step});
    if (told) change.summary = told->summary, change.cost = told->cost;
    change.reboot = action != nullptr && action->effect == Effect::reboot;
    for (const std::string& path : paths)
      if (!path.starts_with("/var/lib/p2pd/") && !path.starts_with("/var/lib/dpkg/")) change.files.push_back(path);
    change.packages = packages_of(host, paths);
  }
  return changes;
}

std::vector<OperatorAction> actions_of(const PlanPreview& all) {
  std::vector<OperatorAction> actions;
  if (!all.blocked) return actions;
  for (const Obstruction& one : obstructions(all)) {
    const Standing& first = one.steps.front()->standing;
    actions.push_back({first.step->id, one.obstacle.empty() ? first.finding.summary : one.obstacle, one.next});
  }
  return actions;
}

std::vector<ReportedChange> planned(const PlanPreview& all) {
  std::vector<ReportedChange> changes;
  for (const Preview& preview : all.steps) {
    for (const Change& change : preview.changes) {
      const Description& made = change.description;
      ReportedChange& one = changes.emplace_back(ReportedChange{.step = change.step->id, .summary = made.summary});
      one.cost = made.cost;
      one.reboot = all.reboots_for(preview, change);
      for (const Description::File& file : made.files) one.files.push_back(file.path);
      if (!made.loses.empty()) one.packages.push_back(made.loses + " removed");
    }
  }
  return changes;
}

/// Plans of past runs, newest first; plans that no longer exist are left out.
std::vector<Plan> walked_plans(const Context& context, const json& history, const Host& host) {
  std::vector<Plan> plans;
  std::set<std::string> names;
  for (const json& run : list_of(history, "runs")) {
    Context named = context;
    named.options.plan = text_of(run, "plan");
    if (!names.insert(named.options.plan).second) continue;
    if (Result<Plan> plan = named.plan(host)) plans.push_back(*std::move(plan));
  }
  return plans;
}

/// Soak that --soak names; nothing: no such option.
Result<std::optional<bench::Soak>> soak_file(const std::string& path) {
  if (path.empty()) return std::optional<bench::Soak>();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) return fail_errno("cannot read " + path);
  std::optional<bench::Soak> soak = bench::bench_report_from(parse_json(text)).measurement.soak;
  if (soak && !soak->samples.empty()) return soak;
  return fail(ErrorCode::invalid, path + " is no report of a soak",
              "\"p2pctl bench --soak MINUTES --save FILE\" writes one.");
}

Result<Sources> sources_of(const Context& context, const Host& host) {
  Sources sources;
  sources.made = iso_time(std::chrono::system_clock::now());
  sources.status = known_or_noted(known_status(context), "state of the run", sources.notes);
  sources.history = known_or_noted(known_history(context, kReportedRuns), "what was done", sources.notes);
  sources.machine = machine_facts(host);
  sources.machine["text"] = machine_text(host);
  sources.baseline = baseline_of(context, sources.notes);
  sources.soak = TRY(soak_file(context.options.soak));
  sources.in_place = in_place(context, host, sources.notes);
  sources.plans = walked_plans(context, sources.history, host);
  if (json_number<std::uint64_t>(sources.status, "run") != 0) return sources;
  const PlanPreview all(TRY(context.plan(host)), context.registry, host);
  sources.plans.push_back(all.plan);
  sources.diagnosis = diagnosis_of(all);
  sources.actions = actions_of(all);
  sources.planned = planned(all);
  return sources;
}

/// Notes that the report has a diagnosis only, if nothing has run.
void say_what_is_missing(const json& document) {
  if (document.value("ran", false)) return;
  fmt::print(stderr,
             "p2pctl: nothing has run on this machine yet: the report has a diagnosis, but no proof\n  next: "
             "\"p2pctl plan\" shows what a run would do\n");
}

}  // namespace

Result<int> write_report(const Context& context) {
  const Options& options = context.options;
  if (options.json && !options.name.empty())
    return fail(ErrorCode::invalid, "--json prints the content and writes no file", "leave out FILE, or --json");
  const auto host = TRY(context.host_of_plan());
  json document = report_document(TRY(sources_of(context, *host)));
  if (!options.no_redact) redact(document, identity_of(*host));
  if (options.json) {
    print_json(kReportSchema, std::move(document));
    return kDone;
  }
  const std::string file = options.name.empty() ? kDefaultFile : options.name;
  std::string page = report_page(document);
  say_what_is_missing(document);
  if (file == "-") {
    fmt::print("{}", page);
    return kDone;
  }
  const std::size_t size = page.size();
  TRY(replace_file(file, std::move(page), options.no_redact ? 0600 : 0644));
  fmt::print("{}: {} KiB, {}{}\n", harmless(file), (size + 1023) / 1024, document["verdict"].value("headline", ""),
             options.no_redact ? "; not redacted: it names this machine" : "");
  return kDone;
}

Result<int> gain(const Context& context) {
  const auto host = TRY(context.host_of_plan());
  const Sources sources = TRY(sources_of(context, *host));
  const std::optional<ProofPart> proof = proof_of(sources);
  const json before = before_of(sources.baseline);
  if (!proof)
    return fail(ErrorCode::not_found, "the GPUs of this machine have not been measured yet",
                "\"sudo p2pctl apply\" measures them, and compares with before its changes.");
  if (context.options.json) {
    print_json("p2pd.gain/1", {{"before", before},
                               {"time", proof->shown.time},
                               {"proven", proof->shown.report.judgement.proven},
                               {"gain", proof->shown.report.gain},
                               {"collectives", proof->collectives()},
                               {"all_reduces", json_of(proof->all_reduces)}});
    return kDone;
  }
  fmt::print("measured {}\n", proof->shown.time);
  if (!flag_of(before, "measured")) fmt::print("before: {}\n", text_of(before, "why"));
  for (const std::string& line : proof->gain_lines()) print_line(line);
  return kDone;
}

}  // namespace p2pd::ctl
