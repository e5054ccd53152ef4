// SPDX-License-Identifier: MIT
#include "base/finding.hpp"

namespace p2pd {

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {"pass", "fail", "not_applicable", "unknown", "limited"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Verdict::limited) + 1);
  return kNames[static_cast<std::size_t>(verdict)];
}

nlohmann::json to_json(const Finding& finding) {
  nlohmann::json evidence = nlohmann::json::array();
  for (const Evidence& item : finding.evidence) evidence.push_back({{"source", item.source}, {"value", item.value}});
  nlohmann::json document = {{"verdict", to_string(finding.verdict)},
                             {"summary", finding.summary},
                             {"facts", finding.facts},
                             {"evidence", std::move(evidence)},
                             {"next", finding.next}};
  if (!finding.danger.empty()) document["danger"] = finding.danger;
  if (!finding.fit_for.empty()) document["fit_for"] = finding.fit_for;
  if (finding.impossible) document["impossible"] = true;
  return document;
}

Finding unknown(const Error& error) {
  Finding finding;
  finding.set(Verdict::unknown, error.message, error.next);
  finding.facts = {{"error", to_string(error.code)}};
  return finding;
}

}  // namespace p2pd
