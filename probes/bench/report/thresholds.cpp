// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <array>

#include "base/parameters.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {
namespace {

struct NamedShares {
  std::string_view name;
  Shares Thresholds::*member;
};
constexpr std::array<NamedShares, 5> kShares = {{{"pcie_switch", &Thresholds::pcie_switch},
                                                 {"one_socket", &Thresholds::one_socket},
                                                 {"one_socket_intel", &Thresholds::one_socket_intel},
                                                 {"cross_socket", &Thresholds::cross_socket},
                                                 {"nvlink", &Thresholds::nvlink}}};
struct NamedNumber {
  std::string_view name;
  double Thresholds::*member;
  double most;
};
constexpr double kMostShare = 2;
constexpr double kMostNs = 1e9;
constexpr std::array<NamedNumber, 6> kNumbers = {{{"over_raw", &Thresholds::over_raw, kMostShare},
                                                  {"both_over_one", &Thresholds::both_over_one, kMostShare},
                                                  {"asymmetry_warn", &Thresholds::asymmetry_warn, kMostShare},
                                                  {"asymmetry_fail", &Thresholds::asymmetry_fail, kMostShare},
                                                  {"chase_ns", &Thresholds::chase_ns, kMostNs},
                                                  {"chase_cross_ns", &Thresholds::chase_cross_ns, kMostNs}}};
constexpr Thresholds kDefaults;

/// Calls `visit` with the name, the value and the highest permitted value of each numeric threshold.
template <class Whole, class Visit>
void each_number(Whole& thresholds, Visit visit) {
  for (const NamedShares& row : kShares) {
    visit(fmt::format("{}.warn", row.name), (thresholds.*row.member).warn, kMostShare);
    visit(fmt::format("{}.fail", row.name), (thresholds.*row.member).fail, kMostShare);
  }
  for (const NamedNumber& row : kNumbers) visit(std::string(row.name), thresholds.*row.member, row.most);
}

/// Error for an unknown name, with the most similar known one.
Failure unknown(const std::string& name) {
  std::vector<std::string> names;
  each_number(kDefaults, [&](const std::string& known, double, double) { names.push_back(known); });
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest(name, views);
  return fail(ErrorCode::invalid,
              fmt::format("unknown threshold \"{}\"{}", name, near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

Result<void> set(Thresholds& thresholds, const std::string& name, const nlohmann::json& value) {
  double* slot = nullptr;
  double most = 0;
  each_number(thresholds, [&](const std::string& known, double& number, double limit) {
    if (known != name) return;
    slot = &number;
    most = limit;
  });
  if (slot == nullptr) return unknown(name);
  if (!value.is_number()) return fail(ErrorCode::invalid, fmt::format("threshold \"{}\" is not a number", name));
  const double number = value.get<double>();
  if (!(number >= 0 && number <= most)) {
    return fail(ErrorCode::invalid, fmt::format("threshold \"{}\" is {}; it must be in 0 to {}", name, number, most));
  }
  *slot = number;
  return {};
}

}  // namespace

nlohmann::json to_json(const Thresholds& thresholds) {
  nlohmann::json document = nlohmann::json::object();
  each_number(thresholds, [&](const std::string& name, double number, double) { document[name] = number; });
  return document;
}

Result<Thresholds> thresholds_from(const nlohmann::json& json) {
  if (!json.is_object()) return fail(ErrorCode::invalid, "thresholds are not a mapping");
  Thresholds thresholds;
  for (const auto& [name, value] : json.items()) TRY(set(thresholds, name, value));
  return thresholds;
}

}  // namespace p2pd::bench
