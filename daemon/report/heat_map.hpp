// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// Section of the measurement of a document of schema p2pd.report/1, before and after: sentences for two GPUs, maps for
/// more. Rows of a map send, columns receive; all maps share one scale of seven steps of one colour. Each cell has its
/// number, its share of the limit, and a mark if it was judged bad, so that no information depends on colour alone.
/// Empty: nothing was measured.
std::string measured_section(const nlohmann::json& document);

}  // namespace p2pd::ctl
