// SPDX-License-Identifier: MIT
// p2p-bench: every pair of GPUs moved correct bytes on this boot, as fast as its path allows.
// The driver's report about peers is a claim, and a fast copy of wrong bytes looks like success: only verified data
// proves P2P. Runs the program p2p-bench, which measures in a process of its own with a deadline; needs memory on
// every GPU for a few seconds and changes nothing. A tree that is not running has nothing to prove.
// Reference: probes/bench/; CUDA samples p2pBandwidthLatencyTest and nvbandwidth, which do not judge.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/measurement.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {

Result<Finding> p2p_bench(const Host& host, const Parameters& parameters);

namespace {

constexpr Parameter kParameters[] = {
    {"mode", Parameter::Type::string, false,
     "\"quick\": bytes and one rate; \"default\"; \"full\": IPC, atomics, wanted managed memory and NCCL too"},
    {"nccl", Parameter::Type::string, false, "path of the libnccl to use in mode full; otherwise it is looked for"},
    {"fit_for", Parameter::Type::strings, false,
     "uses that must work, of those that p2p-bench --help lists (nccl and custom-all-reduce)"},
    {"thresholds", Parameter::Type::object, false, "thresholds to replace, by name, as p2p-bench --json lists them"},
    {"beside", Parameter::Type::strings, false,
     "NVIDIA's benchmarks to run too, by name or path: p2pBandwidthLatencyTest, nvbandwidth, all_reduce_perf"},
    {"against", Parameter::Type::string, false, "a saved report; the gain over it is reported if the file exists"},
};

Result<void> validate(const Parameters& parameters) {
  if (parameters.contains("fit_for"))
    TRY_IN("fit_for", uses_from(parameters["fit_for"].get<std::vector<std::string>>()));
  const std::string mode = parameters.value("mode", "default");
  if (mode == "quick" || mode == "default" || mode == "full") return {};
  return fail(ErrorCode::invalid, "mode: \"" + mode + "\" is not one of quick, default, full");
}

Finding not_running() {
  Finding finding;
  finding.verdict = Verdict::not_applicable;
  finding.summary = "this system is not running: P2P is proven after its boot";
  return finding;
}

/// Known defect of the driver build that p2pd installed, with these GPUs, that makes a test of wanted memory unsafe;
/// empty: none is known.
Result<std::string> unsafe_memory(const Host& host, const std::vector<std::string>& wanted) {
  const auto is_memory = [](const std::string& use) { return use.ends_with("-memory"); };
  const auto build = installed_build(host);
  if (!build || std::ranges::none_of(wanted, is_memory)) return std::string();
  const Catalogue all = TRY(catalogue(host));
  const Machine machine = machine_of(host, all).value_or(Machine());  // if it cannot be read, all defects count
  for (const CatalogueEntry& entry : all.entries) {
    if (entry.commit != build->commit || (!build->release.empty() && entry.base_version != build->release)) continue;
    for (const Defect* defect : defects_on(entry, machine))
      if (is_memory(defect->use) && std::ranges::count(wanted, defect->use) != 0)
        return fmt::format("{} is not tested with {}: {}", defect->use, entry.id, defect->text);
  }
  return std::string();
}

/// Report that the program printed, for any exit status; without members if it printed none.
nlohmann::json report_of(const CommandResult& result) {
  nlohmann::json report = parse_json(result.output);
  return report.is_object() ? report : nlohmann::json::object();
}

/// Judges a report. `before`: uses that the machine was fit for without the changes. A limited result without a gain
/// over it fails.
Finding judged(const nlohmann::json& document, const std::string& program, const std::vector<std::string>& before) {
  const bench::BenchReport report = bench::bench_report_from(document);
  const bench::Judgement& judgement = report.judgement;
  Finding finding;
  finding.fit_for = judgement.uses(bench::Fitness::Kind::fit);
  finding.unfit_for = judgement.uses(bench::Fitness::Kind::unfit);
  const bool more = std::ranges::any_of(finding.fit_for,
                                        [&](const std::string& use) { return std::ranges::count(before, use) == 0; });
  finding.verdict = judgement.proven ? Verdict::pass : judgement.limited && more ? Verdict::limited : Verdict::fail;
  finding.summary = judgement.summary;
  if (!report.gain.empty()) finding.summary += "; " + report.gain.back();
  finding.facts = document;
  finding.evidence.push_back({program, "seed " + report.measurement.seed});
  if (const auto& nccl = report.measurement.collectives) finding.evidence.push_back({"NCCL", nccl->summary});
  for (const bench::Remark& remark : judgement.remarks) {
    if (finding.evidence.size() > 8) break;
    finding.evidence.push_back({remark.test, remark.text});
  }
  if (finding.verdict != Verdict::pass) finding.next = "\"p2p-bench --bug-report\" prints what a bug report needs";
  return finding;
}

}  // namespace

Result<Finding> p2p_bench(const Host& host, const Parameters& parameters) {
  if (!host.live()) return not_running();
  if (std::string unsafe = TRY(unsafe_memory(host, parameters.value("fit_for", std::vector<std::string>())));
      !unsafe.empty()) {
    Finding finding;
    finding.verdict = Verdict::fail;
    finding.summary = std::move(unsafe);
    finding.next = "Leave that use out of fit_for, or choose a build without this defect: \"p2pctl catalogue\".";
    return finding;
  }
  Command command = bench_command(host, {"--json"});
  const std::string mode = parameters.value("mode", "default");
  if (mode != "default") command.argv.push_back("--" + mode);
  if (mode == "full" && parameters.contains("nccl"))
    command.argv.insert(command.argv.end(), {"--nccl", parameters["nccl"].get<std::string>()});
  for (const auto& [parameter, option] : {std::pair("fit_for", "--for"), std::pair("beside", "--beside")})
    if (parameters.contains(parameter))
      command.argv.insert(
          command.argv.end(),
          {option, fmt::format("{}", fmt::join(parameters[parameter].get<std::vector<std::string>>(), ","))});
  if (parameters.contains("thresholds"))
    command.argv.insert(command.argv.end(), {"--thresholds", parameters["thresholds"].dump()});
  const std::string against = parameters.value("against", "");
  if (!against.empty() && host.files().exists(against)) command.argv.insert(command.argv.end(), {"--against", against});
  command.deadline = std::chrono::hours(1);  // p2p-bench ends earlier if the GPUs hang
  const CommandResult result = TRY(host.run_readonly(command));
  const nlohmann::json report = report_of(result);
  if (report.contains("judgement")) {
    const auto before = against.empty() ? nlohmann::json() : parse_json(host.files().read(against).value_or(""));
    return judged(report, command.text(), bench::bench_report_from(before).judgement.uses(bench::Fitness::Kind::fit));
  }
  TRY(require_success(command, report.empty() ? result : CommandResult{}));
  Finding finding;
  finding.verdict = Verdict::fail;  // no attempt was possible: no driver, a hung GPU
  finding.summary = report.value("error", "p2p-bench printed no report");
  finding.next = report.value("next", "");
  finding.evidence.push_back({command.text(), fmt::format("exit {}", result.status)});
  return finding;
}

extern const Probe kP2pBench;
const Probe kP2pBench = {
    .id = "p2p-bench",
    .asserts = "every pair of GPUs moved correct bytes on this boot, as fast as its path allows",
    .parameters = kParameters,
    .validate = validate,
    .check = p2p_bench,
    .proves_p2p = true,
    .quick = R"({"mode": "quick"})",
    .skip_on_image = true,
};

}  // namespace p2pd
