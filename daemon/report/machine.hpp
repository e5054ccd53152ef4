// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"
#include "base/json.hpp"
#include "record/private_words.hpp"

namespace p2pd::ctl {

/// Current machine: keys `environment`, `gpus`, `topology` and `pairs` of schema p2pd.report/1. Unreadable data is
/// left out.
nlohmann::json machine_facts(const Host& host);

}  // namespace p2pd::ctl
