// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

// Reference sections at the end of a page, from a document of schema p2pd.report/1.

std::string checks_section(const nlohmann::json& document);
std::string environment_section(const nlohmann::json& document);
std::string runs_section(const nlohmann::json& document);

}  // namespace p2pd::ctl
