// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/measurement.hpp"
#include "plan/plan.hpp"
#include "record/private_words.hpp"

namespace p2pd::ctl {

inline constexpr std::string_view kReportSchema = "p2pd.report/1";  ///< config/schema/report.schema.json

/// Task of the operator before p2pd can continue.
struct OperatorAction {
  std::string step;
  std::string seen;
  std::string next;
};

/// Change that is in place, from the undo records, or that apply would make. The files are without p2pd's own and
/// dpkg's: the packages stand for these.
struct ReportedChange {
  std::int64_t run = 0;
  std::string step;
  std::string summary = {};
  std::string cost = {};
  bool reboot = false;
  std::vector<std::string> files = {};
  std::vector<std::string> packages = {};
};

/// Inputs of a report. Each JSON may be null: not available.
struct Sources {
  nlohmann::json status;                ///< p2pd.status/1
  nlohmann::json history;               ///< p2pd.history/1
  nlohmann::json diagnosis;             ///< p2pd.doctor/1; used if nothing has run
  std::vector<OperatorAction> actions;  ///< used with `diagnosis`
  std::vector<ReportedChange> in_place;
  std::vector<ReportedChange> planned;  ///< used with `diagnosis`
  std::vector<Plan> plans;              ///< texts of the steps: that of the newest run first
  nlohmann::json baseline;              ///< p2pd.bench/1 from before the first change, or {"not_measured": why}
  std::optional<bench::Soak> soak;      ///< of "p2pctl bench --soak", with samples
  nlohmann::json machine;               ///< machine_facts(), and `text`: the machine in one line
  std::string made;                     ///< ISO 8601 UTC
  std::vector<std::string> notes;       ///< inputs that could not be read
};

/// Current machine: keys `environment`, `gpus`, `topology` and `pairs` of schema p2pd.report/1. Unreadable data is
/// left out.
nlohmann::json machine_facts(const Host& host);

/// Content of a report, schema p2pd.report/1, with all data that was read.
nlohmann::json report_document(const Sources& sources);

/// Removes from every text of `document` the data that identifies owner or machine: UUIDs, serial numbers, host name,
/// machine id, addresses, user info and hosts of URLs, people, their processes, containers and units, values of
/// settings that no check reads.
void redact(nlohmann::json& document, const Identity& identity);

}  // namespace p2pd::ctl
