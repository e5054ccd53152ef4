// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/machine.hpp"

namespace p2pd::ctl {

inline constexpr std::string_view kReportSchema = "p2pd.report/1";  ///< config/schema/report.schema.json

/// Inputs of a report. Each may be null: not available.
struct Sources {
  nlohmann::json status;                           ///< p2pd.status/1
  nlohmann::json history;                          ///< p2pd.history/1
  nlohmann::json diagnosis;                        ///< p2pd.doctor/1; used if nothing has run
  nlohmann::json actions;                          ///< [{step, seen, next}] of the operator; used with `diagnosis`
  nlohmann::json in_place;                         ///< [{run, step, summary, cost, reboot, files, packages}]
  nlohmann::json plans = nlohmann::json::array();  ///< texts of the steps: resolved plans, that of the newest run first
  nlohmann::json baseline;         ///< p2pd.bench/1 from before the first change, or {"not_measured": why}
  nlohmann::json soak;             ///< p2pd.bench/1 of "p2pctl bench --soak"
  nlohmann::json machine;          ///< machine_facts(), and `text`: the machine in one line
  std::string made;                ///< ISO 8601 UTC
  std::vector<std::string> notes;  ///< inputs that could not be read
};

/// Content of a report, schema p2pd.report/1, with all data that was read.
nlohmann::json report_document(const Sources& sources);

/// Removes from every text of `document` the data that identifies owner or machine: UUIDs, serial numbers, host name,
/// machine id, addresses, user info and hosts of URLs, people, their processes, containers and units, values of
/// settings that no check reads.
void redact(nlohmann::json& document, const Identity& identity);

}  // namespace p2pd::ctl
