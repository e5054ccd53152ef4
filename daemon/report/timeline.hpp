// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// Titles and reasons of steps by id, from the first plan that has the step; empty if none has it.
class PlanWords {
 public:
  explicit PlanWords(const nlohmann::json& plans);
  std::string title(const std::string& step) const;
  std::string why(const std::string& step) const;

 private:
  std::map<std::string, std::pair<std::string, std::string>> words_;
};

/// Keys `runs`, `changes`, `events` and `looks` of a report, from a history. Boots are numbered, the oldest is 1.
/// Runs without changes, as at every boot, are counted in `looks`; the newest run is always included.
nlohmann::json timeline_of(const nlohmann::json& history, const PlanWords& words);

}  // namespace p2pd::ctl
