// SPDX-License-Identifier: MIT
// Output of the measuring process, or a saved report, as any bytes: parsed, judged and printed without a crash.
#include "fuzz.hpp"
#include "probes/bench/report/report.hpp"

FUZZ(bench) {
  namespace b = p2pd::bench;
  const auto json = parse_json(input);
  b::Report report;
  (void)b::gain(json, report);
  auto measurement = b::measurement_from(json);
  if (!measurement) return;
  report.measurement = std::move(measurement).take();
  const std::size_t gpus = report.measurement.gpus.size();
  if (gpus > 64) return;
  report.paths.assign(gpus, std::vector<Path>(gpus));
  report.judgement = b::judge(report.measurement, report.paths, report.thresholds);
  require(!report.judgement.summary.empty(), "a judgement without a summary");
  require(gpus > 1 || !report.judgement.proven, "proven without a pair");
  (void)b::matrices(report, true);
  (void)b::bug_report(report);
  (void)b::advice(report);
  (void)b::gain(json, report);
  (void)b::to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
