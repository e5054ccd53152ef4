// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// One self-contained HTML file, from a document of schema p2pd.report/1. All content of the document is escaped;
/// the page has no script and may load nothing.
std::string report_page(const nlohmann::json& document);

}  // namespace p2pd::ctl
