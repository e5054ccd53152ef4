// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "machine/driver/ready.hpp"

namespace p2pd::ctl {

inline constexpr std::string_view kMetricsSchema = "p2pd.metrics/1";

using Labels = std::vector<std::pair<std::string, std::string>>;  ///< names and values, in the order of printing

/// Metric that may go up and down. Its name ends in its unit, a base unit of Prometheus, if it has one.
struct Metric {
  std::string_view name;
  std::string_view help;
  std::map<Labels, double> samples;
};

/// State of P2P, from documents p2pd.status/1 and p2pd.history/1 and the `proof` of this boot. Missing values are left
/// out.
std::vector<Metric> metrics_of_runs(const nlohmann::json& status, const nlohmann::json& history,
                                    const std::optional<Proof>& proof);

/// State of the machine itself: boot time, differences from what was proven on this boot, PCI errors of its GPUs.
std::vector<Metric> metrics_of_machine(const Host& host);

/// Prometheus' text exposition format, without timestamps.
std::string exposition(const std::vector<Metric>& metrics);

}  // namespace p2pd::ctl
