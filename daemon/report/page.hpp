// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// One HTML file that needs nothing else, of a document of schema p2pd.report/1. Everything out of the document is
/// escaped; there is no script in it, and it may load nothing.
std::string report_page(const nlohmann::json& document);

}  // namespace p2pd::ctl
