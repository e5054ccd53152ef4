// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {

/// `parameters` of modprobe-options with the needs of `entry` in `options` and `registry_dwords`: of a catalogue entry as the
/// catalogue has them, of kStockEntry as stock_p2p() does. Where both say something of one name, the plan's counts.
///
/// Error(not_found): kStockEntry, and its P2P cannot be switched on.
/// Error(invalid): a key is wrong for the driver of the entry (without one, for the loaded driver), or is experimental
/// and `experimental` is not true.
Result<Parameters> with_driver_options(const Host& host, Parameters parameters);

/// What modprobe.d gives to module nvidia: the NVreg_ option that counts, by its name.
Result<std::map<std::string, ModuleOption>> configured_options(const Host& host);

}  // namespace p2pd
