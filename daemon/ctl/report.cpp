// SPDX-License-Identifier: MIT
// p2pctl report [FILE]: all data about this machine and p2pd's changes to it, as one HTML file to hand on.
// p2pctl gain: what P2P gives here, from the same data.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <set>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "ctl/doctor.hpp"
#include "ctl/status.hpp"
#include "ctl/verb.hpp"
#include "engine/journal.hpp"
#include "plan/config.hpp"
#include "report/document.hpp"
#include "report/fields.hpp"
#include "report/page.hpp"
#include "report/proof.hpp"
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

/// Plans of past runs, newest first; plans that no longer exist are left out.
json walked_plans(const Context& context, const json& history, const Host& host) {
  json plans = json::array();
  std::set<std::string> names;
  for (const json& run : list_of(history, "runs")) {
    Context named = context;
    named.options.plan = text_of(run, "plan");
    if (!names.insert(named.options.plan).second) continue;
    if (const Result<Plan> plan = named.plan(host)) plans.push_back(to_json(*plan));
  }
  return plans;
}

Result<Sources> sources_of(const Context& context, const Host& host) {
  Sources sources;
  sources.made = iso_time(std::chrono::system_clock::now());
  sources.status = known_or_noted(known_status(context), "state of the run", sources.notes);
  sources.history = known_or_noted(known_history(context, kReportedRuns), "what was done", sources.notes);
  sources.machine = machine_facts(host);
  sources.baseline = baseline_of(context, sources.notes);
  sources.plans = walked_plans(context, sources.history, host);
  if (json_number<std::uint64_t>(sources.status, "run") != 0) return sources;
  const Plan plan = TRY(context.plan(host));
  sources.plans.push_back(to_json(plan));
  sources.diagnosis = diagnosis_of(assess(plan, context.registry, host), plan, context.registry);
  return sources;
}

/// Reports that the report has a diagnosis only, if nothing has run.
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
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
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
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
  const Sources sources = TRY(sources_of(context, *host));
  const json proof = proof_of(sources);
  const json before = before_of(sources.baseline);
  if (proof.is_null())
    return fail(ErrorCode::not_found, "the GPUs of this machine have not been measured yet",
                "\"p2pctl bench\" measures them; \"p2pctl apply\" compares with before its changes.");
  if (context.options.json) {
    print_json("p2pd.gain/1", {{"before", before},
                               {"time", proof["time"]},
                               {"proven", proof["proven"]},
                               {"gain", proof["gain"]},
                               {"collectives", proof["collectives"]},
                               {"all_reduces", proof["all_reduces"]}});
    return kDone;
  }
  fmt::print("measured {}\n", text_of(proof, "time"));
  if (!flag_of(before, "measured")) fmt::print("before: {}\n", text_of(before, "why"));
  for (const std::string& line : gain_of(proof)) print_line(line);
  return kDone;
}

}  // namespace p2pd::ctl
