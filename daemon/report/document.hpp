// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/machine.hpp"

namespace p2pd::ctl {

inline constexpr std::string_view kReportSchema = "p2pd.report/1";  ///< config/schema/report.schema.json

/// What a report is made of. Each may be null: it was not to be had.
struct Sources {
  nlohmann::json status;           ///< p2pd.status/1
  nlohmann::json history;          ///< p2pd.history/1
  nlohmann::json diagnosis;        ///< p2pd.doctor/1; where nothing has run
  nlohmann::json plans = nlohmann::json::array();  ///< what the steps mean: resolved plans, that of the newest run first
  nlohmann::json baseline;         ///< p2pd.bench/1 of before the first change, or {"not_measured": why}
  nlohmann::json machine;          ///< machine_facts()
  std::string made;                ///< ISO 8601 UTC
  std::vector<std::string> notes;  ///< what could not be read
};

/// The content of a report, schema p2pd.report/1, with everything that was read in it.
nlohmann::json report_document(const Sources& sources);

/// Takes out of every text of `document` what names the owner or tells the machine from others: UUIDs, serial numbers, host name,
/// machine id, addresses, user info and hosts of URLs, people, their processes, containers and units, private kernel arguments.
void redact(nlohmann::json& document, const Identity& identity);

}  // namespace p2pd::ctl
