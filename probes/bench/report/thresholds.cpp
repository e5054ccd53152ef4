// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "base/parameters.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {
namespace {

constexpr double kMostShare = 2;
constexpr double kMostNs = 1e9;

/// Threshold by its name in a plan, with the highest value that it can have.
struct Row {
  std::string_view name;
  double& (*of)(Thresholds&);
  double most = kMostShare;
};
constexpr Row kRows[] = {
    {"pcie_switch.warn", [](Thresholds& t) -> double& { return t.pcie_switch.warn; }},
    {"pcie_switch.fail", [](Thresholds& t) -> double& { return t.pcie_switch.fail; }},
    {"one_socket.warn", [](Thresholds& t) -> double& { return t.one_socket.warn; }},
    {"one_socket.fail", [](Thresholds& t) -> double& { return t.one_socket.fail; }},
    {"one_socket_intel.warn", [](Thresholds& t) -> double& { return t.one_socket_intel.warn; }},
    {"one_socket_intel.fail", [](Thresholds& t) -> double& { return t.one_socket_intel.fail; }},
    {"cross_socket.warn", [](Thresholds& t) -> double& { return t.cross_socket.warn; }},
    {"cross_socket.fail", [](Thresholds& t) -> double& { return t.cross_socket.fail; }},
    {"nvlink.warn", [](Thresholds& t) -> double& { return t.nvlink.warn; }},
    {"nvlink.fail", [](Thresholds& t) -> double& { return t.nvlink.fail; }},
    {"over_raw", [](Thresholds& t) -> double& { return t.over_raw; }},
    {"both_over_one", [](Thresholds& t) -> double& { return t.both_over_one; }},
    {"asymmetry_warn", [](Thresholds& t) -> double& { return t.asymmetry_warn; }},
    {"asymmetry_fail", [](Thresholds& t) -> double& { return t.asymmetry_fail; }},
    {"chase_ns", [](Thresholds& t) -> double& { return t.chase_ns; }, kMostNs},
    {"chase_cross_ns", [](Thresholds& t) -> double& { return t.chase_cross_ns; }, kMostNs},
};

/// Error for an unknown name, with the most similar known one.
Failure unknown(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return fail(ErrorCode::invalid, fmt::format("unknown threshold \"{}\"{}", name, did_you_mean(name, names)));
}

Result<void> set(Thresholds& thresholds, const std::string& name, const nlohmann::json& value) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) return unknown(name);
  if (!value.is_number()) return fail(ErrorCode::invalid, fmt::format("threshold \"{}\" is not a number", name));
  const double number = value.get<double>();
  if (!(number >= 0 && number <= row->most))
    return fail(ErrorCode::invalid,
                fmt::format("threshold \"{}\" is {}; it must be in 0 to {}", name, number, row->most));
  row->of(thresholds) = number;
  return {};
}

}  // namespace

nlohmann::json to_json(Thresholds thresholds) {
  nlohmann::json document = nlohmann::json::object();
  for (const Row& row : kRows) document[std::string(row.name)] = row.of(thresholds);
  return document;
}

Result<Thresholds> thresholds_from(const nlohmann::json& json) {
  if (!json.is_object()) return fail(ErrorCode::invalid, "thresholds are not a mapping");
  Thresholds thresholds;
  for (const auto& [name, value] : json.items()) TRY(set(thresholds, name, value));
  return thresholds;
}

}  // namespace p2pd::bench
