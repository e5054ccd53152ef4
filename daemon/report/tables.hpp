// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

// Sections of a page, from a document of schema p2pd.report/1.

std::string changes_section(const nlohmann::json& document);
std::string checks_section(const nlohmann::json& document);
std::string timeline_section(const nlohmann::json& document);
std::string environment_section(const nlohmann::json& document);

}  // namespace p2pd::ctl
