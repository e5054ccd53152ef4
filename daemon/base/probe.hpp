// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string_view>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "base/parameters.hpp"

namespace p2pd {

/// A check, as a row of the registry: reads the host, changes nothing.
struct Probe {
  std::string_view id;       ///< file name, with '_' for '-'
  std::string_view asserts;  ///< state that a pass means, one sentence
  std::span<const Parameter> parameters = {};
  Result<void> (*validate)(const Parameters&) = nullptr;  ///< checks more than types; may be null
  /// An Error means "could not find out" and becomes `unknown`.
  Result<Finding> (*check)(const Host&, const Parameters&) = nullptr;
  bool proves_p2p = false;       ///< a pass makes the machine ready
  bool transient = false;        ///< a fail ends without p2pd (a process, a lock): checked again before a restart
  std::string_view quick = {};   ///< JSON parameters with which it is cheap enough for every boot
  bool tells_danger = false;     ///< a fail may forbid a proof: checked before each proof, whatever else is failing
  bool judges_each_gpu = false;  ///< a fail names the GPUs that cause it: others can do without them
  bool asks_driver = false;      ///< asks the loaded driver on every machine: p2pctl doctor does so ahead
  bool skip_on_image = false;    ///< checks hardware, or running programs: an image is checked at its first boot
};

}  // namespace p2pd
