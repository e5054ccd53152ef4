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
  std::string_view id;       ///< also the file name, with '_' for '-'
  std::string_view asserts;  ///< the state that a pass means, one sentence
  std::span<const Parameter> parameters = {};
  Result<void> (*validate)(const Parameters&) = nullptr;  ///< beyond types; may be null
  /// An Error means "could not find out" and becomes `unknown`.
  Result<Finding> (*check)(const Host&, const Parameters&) = nullptr;
  bool proves_p2p = false;  ///< a pass of this one makes the machine ready
  bool transient = false;  ///< what fails here ends without p2pd: a process, a lock; looked at again before a restart
  std::string_view quick = {};    ///< parameters, JSON, with which it is cheap enough for every boot
  bool tells_danger = false;    ///< a fail may be a reason not to try a proof: asked before one, whatever else is in the way
  bool skip_on_image = false;  ///< about hardware, or about what runs: of an image it is asked at the first boot
};

}  // namespace p2pd
