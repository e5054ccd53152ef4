// SPDX-License-Identifier: MIT
// p2pctl env: settings of applications that use P2P, from the proof of this boot, each with its reason.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ctl/status.hpp"
#include "engine/ready.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "report/fields.hpp"
#include "report/figures.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kSearchedRuns = 30;  // newest runs, which are searched for the last full proof

/// A setting as a line of `format`; a flag, and what an env-file cannot say, is a comment.
std::string line_of(const Setting& s, std::string_view format) {
  if (s.kind == Setting::Kind::flag) return fmt::format("# command line: {}", s.name);
  if (format == "sh")
    return s.kind == Setting::Kind::unset ? fmt::format("unset {}", s.name)
                                          : fmt::format("export {}='{}'", s.name, s.value);
  if (format == "systemd")
    return s.kind == Setting::Kind::unset ? fmt::format("UnsetEnvironment={}", s.name)
                                          : fmt::format("Environment=\"{}={}\"", s.name, s.value);
  return s.kind == Setting::Kind::unset ? fmt::format("# not set: {}", s.name) : fmt::format("{}={}", s.name, s.value);
}

void print_lines(const std::vector<Setting>& settings, const Proof& proven, std::string_view format) {
  fmt::print("# P2P is proven on this boot for {}\n", fmt::join(proven.fit_for, ", "));
  if (settings.empty()) fmt::print("# nothing to set\n");
  if (format == "systemd" && !settings.empty()) fmt::print("[Service]\n");
  for (const Setting& s : settings)
    fmt::print("# {}: {}\n{}\n", fmt::join(s.applications, ", "), s.reason, line_of(s, format));
}

void print_settings(const std::vector<Setting>& settings, const Proof& proven) {
  json list = json::array();
  for (const Setting& s : settings)
    list.push_back({{"applications", s.applications},
                    {"kind", to_string(s.kind)},
                    {"name", s.name},
                    {"value", s.value},
                    {"reason", s.reason}});
  print_json("p2pd.env/1", {{"fit_for", proven.fit_for}, {"settings", std::move(list)}});
}

/// Last report of a full proof in the history; else of a quick one, which has fewer figures.
json last_report(const json& history) {
  json found;
  for (const json& run : list_of(history, "runs")) {
    for (const json& step : list_of(run, "steps")) {
      const json &facts = field_of(field_of(step, "finding"), "facts"), &judgement = field_of(facts, "judgement");
      if (!is_bench_report(facts) || !(flag_of(judgement, "proven") || flag_of(judgement, "limited"))) continue;
      if (text_of(facts, "mode") != "quick") return facts;
      if (found.is_null()) found = facts;
    }
  }
  return found;
}

}  // namespace

Result<int> env(const Context& context) {
  const Options& options = context.options;
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
  const Result<Proof> proof = require_proof(*host);
  if (!proof) return print_error(context, proof.error(), kNotReady);
  const json report = last_report(TRY(known_history(context, kSearchedRuns)));
  const std::vector<Setting> settings = TRY(settings_of(*host, proof->fit_for, report, options.application));
  if (options.json || options.format == "json")
    print_settings(settings, *proof);
  else
    print_lines(settings, *proof, options.format);
  if (options.format == "docker" && !options.json && host->files().exists(kOwnCdi))
    fmt::print("# for a container that should start only on a ready machine, in place of this file: --device {}\n",
               kReadyDevice);
  return kDone;
}

}  // namespace p2pd::ctl
