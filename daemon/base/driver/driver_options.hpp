// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/host.hpp"
#include "base/modules/modprobe_d.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

/// `parameters` of modprobe-options with what the catalogue says of `entry` in `options` and `registry_dwords`; where
/// both say something of one name, the plan's counts.
///
/// Error(invalid): a key is wrong for the driver of the entry (without one, for the loaded driver), or is experimental
/// and `experimental` is not true.
Result<Parameters> with_driver_options(const Host& host, Parameters parameters);

/// What modprobe.d gives to module nvidia: the NVreg_ option that counts, by its name.
Result<std::map<std::string, ModuleOption>> configured_options(const Host& host);

}  // namespace p2pd
