// SPDX-License-Identifier: MIT
// p2pctl metrics: state of P2P, as text for the textfile collector of Prometheus' node_exporter. Measures nothing.
#include "ctl/metrics.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "base/json_members.hpp"
#include "ctl/service.hpp"
#include "engine/journal.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "report/proof.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kRuns = 30;  // newest runs, which are searched for the last proof; a boot makes one or two

/// Adds a sample to the newest metric if it has that name, else to a new one. Leaves out an unknown value.
void add(std::vector<Metric>& metrics, const char* name, const char* help, std::optional<double> value,
         Labels labels = {}) {
  if (!value) return;
  if (metrics.empty() || metrics.back().name != name) metrics.push_back({name, help, {}});
  metrics.back().samples.emplace(std::move(labels), *value);
}

/// Names of the values of an enum, up to `last`.
template <class Enum>
std::vector<std::string> words_up_to(Enum last) {
  std::vector<std::string> words;
  for (int i = 0; i <= static_cast<int>(last); ++i) words.emplace_back(to_string(static_cast<Enum>(i)));
  return words;
}

void add_state(std::vector<Metric>& metrics, const json& status, bool ready, const Proof& proof) {
  Labels info = {{"version", P2PD_VERSION}};
  if (const std::string plan = text_of(status, "plan"); !plan.empty()) info.emplace_back("plan", plan);
  add(metrics, "p2pd_info", "Version of p2pd, and the plan of the last run.", 1, info);
  const std::string now = text_of(status, "state");
  for (const std::string& state : words_up_to(RunState::reverting))
    if (!now.empty())
      add(metrics, "p2pd_state", "Whether the last run is in this state.", now == state, {{"state", state}});
  add(metrics, "p2pd_ready", "Whether P2P is proven on this boot, with what is here now.", ready);
  for (const P2pUse use : kP2pUses)
    add(metrics, "p2pd_fit_for", "Whether P2P is proven on this boot for this use.", proof.is_fit_for(to_string(use)),
        {{"use", std::string(to_string(use))}});
  for (const ProvenGroup& group : proof.groups)
    add(metrics, "p2pd_group_gpus", "GPUs between whose every two P2P is proven on this boot.",
        static_cast<double>(group.gpus.size()), {{"group", group.name}});
  for (const ProvenGroup& group : proof.groups)
    for (const std::string& gpu : group.gpus)
      add(metrics, "p2pd_group_member", "A GPU of a group of peers.", 1, {{"group", group.name}, {"gpu", gpu}});
  if (const json& required = field_of(status, "reboot_required"); required.is_boolean())
    add(metrics, "p2pd_reboot_required", "Whether changes wait for a reboot.", required.get<bool>());
}

void add_run(std::vector<Metric>& metrics, const json& status) {
  if (number_of(status, "run").value_or(0) <= 0) return;
  const json& steps = list_of(status, "steps");
  add(metrics, "p2pd_run_reboots", "Reboots of the last run, crashes included.", number_of(status, "reboots"));
  if (!steps.empty())  // the plan is known
    add(metrics, "p2pd_run_reboots_max", "Reboots that the plan of the last run allows.",
        number_of(status, "reboots_at_most"));
  add(metrics, "p2pd_run_start_timestamp_seconds", "When the last run began.", unix_time(text_of(status, "started")));
  add(metrics, "p2pd_run_end_timestamp_seconds", "When the last run ended.", unix_time(text_of(status, "ended")));
  for (const std::string& word : words_up_to(StepStatus::reverted)) {
    const auto count = std::ranges::count_if(steps, [&](const json& step) { return text_of(step, "status") == word; });
    add(metrics, "p2pd_steps", "Steps of the last run with this status.", static_cast<double>(count),
        {{"status", word}});
  }
  for (const json& step : steps)
    if (is_noted(step))
      add(metrics, "p2pd_note", "A step that passes with a note for the owner.", 1,
          {{"step", text_of(step, "id")}, {"text", text_of(step, "summary")}});
  for (const json& step : steps)
    if (text_of(step, "status") == "blocked")
      add(metrics, "p2pd_blocked_step", "A step that waits for a person.", 1, {{"step", text_of(step, "id")}});
}

/// Adds a figure of every ordered pair of GPUs. `unit`: one unit of the figure in the unit of the gauge.
void add_pairs(std::vector<Metric>& metrics, const bench::Measurement& run, const bench::Quantity& quantity,
               const char* name, const char* help, double unit) {
  for (const bench::Pair& pair : run.pairs)
    if (const auto value = bench::median_of(pair.*quantity.figure))
      add(metrics, name, help, *value / quantity.divisor * unit,
          {{"from", run.gpus[static_cast<std::size_t>(pair.from)].address},
           {"to", run.gpus[static_cast<std::size_t>(pair.to)].address}});
}

void add_proofs(std::vector<Metric>& metrics, const json& history) {
  const std::vector<Measured> proofs = proofs_in(history);
  if (proofs.empty()) return;
  add(metrics, "p2pd_last_proof_timestamp_seconds", "When P2P was proven last.", unix_time(proofs.front().time));
  std::vector<Measured> last = proofs;
  std::erase_if(last, [&](const Measured& one) { return one.run != proofs.front().run; });
  add_pairs(metrics, fullest(last)->report.measurement, bench::quantity("copy"), "p2pd_pair_copy_bytes_per_second",
            "Rate of a copy from one GPU to another, in the last proof.", 1e9);
  add_pairs(metrics, fullest(proofs)->report.measurement, bench::quantity("latency"), "p2pd_pair_latency_seconds",
            "Latency of a load by one GPU from another, in the last full proof.", 1e-6);
}

/// Start of this boot, in seconds since 1970.
std::optional<double> boot_time(const Host& host) {
  std::istringstream words(host.files().read("/proc/stat", 1U << 20).value_or(""));
  for (std::string word; words >> word;)
    if (double time = 0; word == "btime" && words >> time) return time;
  return std::nullopt;
}

/// The sum of the errors that the kernel counted at a function; nothing if it counts none.
std::optional<double> errors_at(const Host& host, const std::string& address, std::string_view severity) {
  const auto counts = aer_counts(host, address, severity).value_or(std::map<std::string, std::uint64_t>());
  const auto total = std::ranges::find_if(counts, [](const auto& one) { return one.first.starts_with("TOTAL_ERR_"); });
  if (total == counts.end()) return std::nullopt;
  return static_cast<double>(total->second);
}

/// Adds the errors of both ends of a link: each counts errors in what it receives.
void add_errors(std::vector<Metric>& metrics, const Host& host) {
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  const PciTree tree(devices);
  for (const PciDevice& gpu : devices) {
    if (!gpu.takes_part()) continue;
    const PciTree::Way above = tree.above(gpu);
    const std::string port = above.ports.empty() ? "" : above.ports.front()->address;
    for (const auto& [end, address] : {std::pair("gpu", gpu.address), {"port", port}})
      for (const std::string_view severity : kAerSeverities)
        add(metrics, "p2pd_pci_errors_total",
            "PCI errors that the kernel counted since boot at this end of the link of a GPU.",
            errors_at(host, address, severity), {{"gpu", gpu.address}, {"end", end}, {"kind", std::string(severity)}});
  }
}

/// A label's value between its quotes: UTF-8, without characters that act on a terminal.
std::string label_value(const std::string& text) {
  const json utf8 = parse_json(json(harmless(text)).dump(-1, ' ', false, json::error_handler_t::replace));
  std::string out;
  for (const char c : utf8.get<std::string>()) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

json list_of_metrics(const std::vector<Metric>& metrics) {
  json list = json::array();
  for (const Metric& metric : metrics) {
    json samples = json::array();
    for (const auto& [labels, value] : metric.samples)
      samples.push_back({{"labels", std::map(labels.begin(), labels.end())}, {"value", value}});
    list.push_back({{"name", metric.name}, {"help", metric.help}, {"samples", std::move(samples)}});
  }
  return list;
}

}  // namespace

std::vector<Metric> metrics_of_runs(const json& status, const json& history, const std::optional<Proof>& proof) {
  std::vector<Metric> metrics;
  add_state(metrics, status, proof && !proof->limited, proof.value_or(Proof{}));
  add_run(metrics, status);
  add_proofs(metrics, history);
  return metrics;
}

std::vector<Metric> metrics_of_machine(const Host& host) {
  std::vector<Metric> metrics;
  add(metrics, "p2pd_boot_timestamp_seconds", "When this machine was booted.", boot_time(host));
  const auto drift = drift_since_proof(host).value_or(std::map<std::string, bool>());
  for (const auto& [part, changed] : drift)
    add(metrics, "p2pd_drift", "Whether this differs from the state in which P2P was proven on this boot.", changed,
        {{"part", part}});
  add_errors(metrics, host);
  return metrics;
}

std::string exposition(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name, metric.help,
                        metric.name.ends_with("_total") ? "counter" : "gauge");
    for (const auto& [labels, value] : metric.samples) {
      std::string inner;
      for (const auto& [name, word] : labels)
        inner += fmt::format("{}{}=\"{}\"", inner.empty() ? "" : ",", name, label_value(word));
      text += fmt::format("{}{} {:.12g}\n", metric.name, inner.empty() ? "" : "{" + inner + "}", value);
    }
  }
  return text;
}

Result<int> metrics(const Context& context) {
  const Options& options = context.options;
  if (options.json && !options.name.empty())
    return fail(ErrorCode::invalid, "--json prints the metrics and writes no file", "leave out --output, or --json");
  const json history = known_history(context, kRuns).value_or(json());  // first: it takes longest, and changes least
  const Host live = TRY(context.host());
  const auto host = live.snapshot();
  const Result<Proof> proof = require_proof(*host);
  const Result<json> status = known_status(context);
  std::vector<Metric> known =
      metrics_of_runs(status ? *status : json(), history, proof ? std::optional(*proof) : std::nullopt);
  std::ranges::move(metrics_of_machine(*host), std::back_inserter(known));
  if (!options.name.empty())
    TRY(replace_file(options.name, exposition(known), 0644));
  else if (options.json && status)
    print_json(kMetricsSchema, {{"metrics", list_of_metrics(known)}});
  else if (!options.json)
    fmt::print("{}", exposition(known));
  if (!status) return Failure(status.error());  // the available metrics are still printed
  return kDone;
}

}  // namespace p2pd::ctl
