// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

/// `parameters` of modprobe-options with what the catalogue says of `entry` in `options` and `registry_dwords`; where
/// both say something of one name, the plan's counts.
///
/// Error(invalid): a key is wrong for the driver of the entry (without one, for the loaded driver), or is experimental
/// and `experimental` is not true.
Result<Parameters> with_driver_options(const Host& host, Parameters parameters);

}  // namespace p2pd
