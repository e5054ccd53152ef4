// SPDX-License-Identifier: MIT
#include "base/finding.hpp"

namespace p2pd {

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "pass";
    case Verdict::fail: return "fail";
    case Verdict::not_applicable: return "not_applicable";
    case Verdict::unknown: return "unknown";
    case Verdict::limited: return "limited";
  }
  return "unknown";
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
  finding.verdict = Verdict::unknown;
  finding.summary = error.message;
  finding.facts = {{"error", to_string(error.code)}};
  finding.next = error.next;
  return finding;
}

}  // namespace p2pd
