// SPDX-License-Identifier: MIT
// p2p-baseline: the transfers between the GPUs before any change have been measured, and the report is saved.
// The gain is the purpose of the whole plan, and needs a measurement from before for comparison. Without a loaded
// driver no measurement is possible, and a tree that is not running has no GPUs: neither is a fault. A measurement that
// failed is none, either: its reason is saved, and it is tried only once.
// Reads the saved report.
// Reference: probes/bench/report/gain.cpp, which reads it.
#include "base/probe.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"file", Parameter::Type::string, true, "where the report is saved"},
};

/// Reason that actions/p2p_baseline.cpp saved in the report's place; empty for a report.
std::string why_not_measured(const std::string& text) {
  const auto saved = parse_json(text);
  const auto why = saved.is_object() ? saved.find("not_measured") : saved.end();
  return why != saved.end() && why->is_string() ? why->get<std::string>() : "";
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (!host.live()) return not_applicable("this system is not running: there is nothing to measure");
  const auto file = parameters.at("file").get<std::string>();
  const bool saved = host.files().exists(file);
  if (!saved && !host.files().exists("/proc/driver/nvidia/version"))
    return not_applicable("no NVIDIA driver is loaded: there is nothing to compare with");
  Finding finding;
  if (saved) {
    const std::string why = why_not_measured(host.files().read(file).value_or(""));
    finding.set(Verdict::pass,
                why.empty() ? "measured before the first change" : "the first measurement failed: " + why);
    finding.saw(file, why.empty() ? "is there" : "tells why nothing was measured");
  } else {
    finding.set(Verdict::fail, "not measured yet");
  }
  return finding;
}

}  // namespace

extern const Probe kP2pBaseline = {
    .id = "p2p-baseline",
    .asserts = "the GPUs were measured before the first change",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
