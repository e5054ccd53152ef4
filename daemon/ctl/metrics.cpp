// SPDX-License-Identifier: MIT
// p2pctl metrics: how P2P stands, as text for the textfile collector of Prometheus' node_exporter. Nothing is measured.
#include "ctl/metrics.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <optional>

#include "base/p2p_use.hpp"
#include "ctl/print.hpp"
#include "ctl/replace_file.hpp"
#include "ctl/status.hpp"
#include "engine/journal.hpp"
#include "engine/ready.hpp"
#include "report/fields.hpp"
#include "report/proof.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kRuns = 30;  // the newest, among which the last proof is looked for; a boot makes one or two

/// Adds a sample to the newest gauge where it has that name, else to a new one. A value that is not known is left out.
void add(std::vector<Gauge>& gauges, const char* name, const char* help, std::optional<double> value,
         Labels labels = {}) {
  if (!value) return;
  if (gauges.empty() || gauges.back().name != name) gauges.push_back({name, help, {}});
  gauges.back().samples.emplace(std::move(labels), *value);
}

/// The words of an enum, up to that of `last`.
template <class Enum>
std::vector<std::string> words_up_to(Enum last) {
  std::vector<std::string> words;
  for (int i = 0; i <= static_cast<int>(last); ++i) words.emplace_back(to_string(static_cast<Enum>(i)));
  return words;
}

/// Seconds since 1970 of a time in ISO 8601 UTC; nothing where it is none.
std::optional<double> seconds_of(const std::string& time) {
  std::tm parts{};
  const char* end = ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<double>(::timegm(&parts));
}

void add_state(std::vector<Gauge>& gauges, const json& status, bool ready, const std::vector<std::string>& fit_for) {
  Labels info = {{"version", P2PD_VERSION}};
  if (const std::string plan = text_of(status, "plan"); !plan.empty()) info.emplace_back("plan", plan);
  add(gauges, "p2pd_info", "Version of p2pd, and the plan of the last run.", 1, info);
  const std::string now = text_of(status, "state");
  for (const std::string& state : words_up_to(RunState::reverting))
    if (!now.empty())
      add(gauges, "p2pd_state", "Whether the last run is in this state.", now == state, {{"state", state}});
  add(gauges, "p2pd_ready", "Whether P2P is proven on this boot, with what is here now.", ready);
  for (const P2pUse use : kP2pUses)
    add(gauges, "p2pd_fit_for", "Whether P2P is proven on this boot for this use.", std::ranges::count(fit_for, to_string(use)) > 0,
        {{"use", std::string(to_string(use))}});
  if (const json& required = field_of(status, "reboot_required"); required.is_boolean())
    add(gauges, "p2pd_reboot_required", "Whether changes wait for a reboot.", required.get<bool>());
}

void add_run(std::vector<Gauge>& gauges, const json& status) {
  if (number_of(status, "run").value_or(0) <= 0) return;
  const json& steps = list_of(status, "steps");
  add(gauges, "p2pd_run_reboots", "Reboots of the last run, crashes included.", number_of(status, "reboots"));
  if (!steps.empty())  // its plan is known
    add(gauges, "p2pd_run_reboots_max", "Reboots that the plan of the last run allows.",
        number_of(status, "reboots_at_most"));
  add(gauges, "p2pd_run_start_timestamp_seconds", "When the last run began.", seconds_of(text_of(status, "started")));
  add(gauges, "p2pd_run_end_timestamp_seconds", "When the last run ended.", seconds_of(text_of(status, "ended")));
  for (const std::string& word : words_up_to(StepStatus::reverted)) {
    const auto count = std::ranges::count_if(steps, [&](const json& step) { return text_of(step, "status") == word; });
    add(gauges, "p2pd_steps", "Steps of the last run with this status.", static_cast<double>(count),
        {{"status", word}});
  }
  for (const json& step : steps)
    if (text_of(step, "verdict") == "pass" && !text_of(step, "next").empty())
      add(gauges, "p2pd_note", "A step that holds, and of which the owner should know something.", 1,
          {{"step", text_of(step, "id")}, {"text", text_of(step, "summary")}});
  for (const json& step : steps)
    if (text_of(step, "status") == "blocked")
      add(gauges, "p2pd_blocked_step", "A step that waits for a person.", 1, {{"step", text_of(step, "id")}});
}

bool proves(const json& judgement) { return flag_of(judgement, "proven") || flag_of(judgement, "limited"); }

/// The last proof in `history`, as a report has it; measurements that proved nothing do not count.
json last_proof(const json& history) {
  json runs = json::array();
  for (json run : list_of(history, "runs")) {
    json steps = json::array();
    for (const json& step : list_of(run, "steps"))
      if (proves(field_of(field_of(field_of(step, "finding"), "facts"), "judgement"))) steps.push_back(step);
    if (steps.empty()) continue;
    run["steps"] = std::move(steps);
    runs.push_back(std::move(run));
  }
  Sources sources;
  sources.history = {{"runs", std::move(runs)}, {"events", list_of(history, "events")}};
  return proof_of(sources);
}

/// A figure of every ordered pair of GPUs; `unit`: what one of the figure is in the unit of the gauge.
void add_pairs(std::vector<Gauge>& gauges, const json& proof, const char* figure, const char* name, const char* help,
               double unit) {
  const json& gpus = list_of(proof, "addresses");
  for (const json& matrix : list_of(proof, "matrices")) {
    if (text_of(matrix, "id") != figure) continue;
    for (std::size_t from = 0; from < gpus.size(); ++from) {
      for (std::size_t to = 0; to < gpus.size(); ++to) {
        const auto value = number_of(cell_of(field_of(matrix, "after"), from, to));
        if (value) add(gauges, name, help, *value * unit, {{"from", text_of(gpus[from])}, {"to", text_of(gpus[to])}});
      }
    }
  }
}

void add_proof(std::vector<Gauge>& gauges, const json& proof) {
  const json& again = field_of(proof, "again");
  add(gauges, "p2pd_last_proof_timestamp_seconds", "When P2P was proven last.",
      seconds_of(text_of(again.is_object() ? again : proof, "time")));
  add_pairs(gauges, proof, "copy", "p2pd_pair_copy_bytes_per_second",
            "Rate of a copy from one GPU to another, in the last full proof.", 1e9);
  add_pairs(gauges, proof, "latency", "p2pd_pair_latency_seconds",
            "Latency of a load by one GPU from another, in the last full proof.", 1e-6);
}

/// A label's value between its quotes: UTF-8, without what acts on a terminal.
std::string label_value(const std::string& text) {
  const json utf8 = parse_json(json(harmless(text)).dump(-1, ' ', false, json::error_handler_t::replace));
  std::string out;
  for (const char c : utf8.get<std::string>()) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

json list_of_gauges(const std::vector<Gauge>& gauges) {
  json list = json::array();
  for (const Gauge& gauge : gauges) {
    json samples = json::array();
    for (const auto& [labels, value] : gauge.samples)
      samples.push_back({{"labels", std::map(labels.begin(), labels.end())}, {"value", value}});
    list.push_back({{"name", gauge.name}, {"help", gauge.help}, {"samples", std::move(samples)}});
  }
  return list;
}

}  // namespace

std::vector<Gauge> gauges_of(const json& status, const json& history, const std::optional<Proof>& proof) {
  std::vector<Gauge> gauges;
  add_state(gauges, status, proof && !proof->limited, proof ? proof->fit_for : std::vector<std::string>());
  add_run(gauges, status);
  add_proof(gauges, last_proof(history));
  return gauges;
}

std::string exposition(const std::vector<Gauge>& gauges) {
  std::string text;
  for (const Gauge& gauge : gauges) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", gauge.name, gauge.help);
    for (const auto& [labels, value] : gauge.samples) {
      std::string inner;
      for (const auto& [name, word] : labels)
        inner += fmt::format("{}{}=\"{}\"", inner.empty() ? "" : ",", name, label_value(word));
      text += fmt::format("{}{} {:.12g}\n", gauge.name, inner.empty() ? "" : "{" + inner + "}", value);
    }
  }
  return text;
}

Result<int> metrics(const Context& context) {
  const Options& options = context.options;
  if (options.json && !options.name.empty())
    return fail(ErrorCode::invalid, "--json prints the metrics and writes no file", "leave out --output, or --json");
  const json history = known_history(context, kRuns).value_or(json());  // first: it takes longest, and changes least
  const auto runner = TRY(context.runner());
  const Result<Proof> proof = require_proof(TRY(context.host(*runner)));
  const Result<json> status = known_status(context);
  const std::vector<Gauge> gauges = gauges_of(status ? *status : json(), history, proof ? std::optional(*proof) : std::nullopt);
  if (!options.name.empty())
    TRY(replace_file(options.name, exposition(gauges), 0644));
  else if (options.json && status)
    print_json(kMetricsSchema, {{"metrics", list_of_gauges(gauges)}});
  else if (!options.json)
    fmt::print("{}", exposition(gauges));
  if (!status) return Failure(status.error());  // what is known without it is told all the same
  return kDone;
}

}  // namespace p2pd::ctl
