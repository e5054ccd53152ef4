// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {

/// Adds the needs of `entry` to `options` and `registry_dwords` in `parameters` of modprobe-options: those of a
/// catalogue entry are in the catalogue, but for RMForceStaticBar1, which with_static_bar1() decides for each GPU;
/// those of NVIDIA's own modules (is_stock) are from stock_p2p(). If both have a name, the plan's value counts.
///
/// Error(not_found): is_stock, and its P2P cannot be enabled.
/// Error(invalid): a key is wrong for the driver of the entry (without one, for the loaded driver), or is experimental
/// and `experimental` is not true.
Result<Parameters> with_driver_options(const Host& host, Parameters parameters);

/// Options of modprobe.d for module nvidia: the NVreg_ option that counts, by its name.
Result<std::map<std::string, ModuleOption>> configured_options(const Host& host);

}  // namespace p2pd
