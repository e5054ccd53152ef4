// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// One self-contained HTML file, from a document of schema p2pd.report/1: a script of its own draws it, nothing is
/// loaded, and all content of the document is text.
std::string report_page(const nlohmann::json& document);

}  // namespace p2pd::ctl
