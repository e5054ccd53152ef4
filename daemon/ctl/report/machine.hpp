// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/host.hpp"

namespace p2pd::ctl {

/// What of a machine names its owner, or tells it from others.
struct Identity {
  std::string host_name;
  std::string machine_id;
};
Identity identity_of(const Host& host);

/// The machine as it is now: keys `environment`, `gpus`, `topology` and `pairs` of schema p2pd.report/1. What cannot be
/// read is left out.
nlohmann::json machine_facts(const Host& host);

}  // namespace p2pd::ctl
