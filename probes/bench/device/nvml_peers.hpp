// SPDX-License-Identifier: MIT
#pragma once

#include "base/json.hpp"
#include "probes/bench/device/nvml_library.hpp"

namespace p2pd::bench {

/// Report of the driver about every GPU and every ordered pair; measures nothing and creates no context:
///
///   schema         "p2pd.driver-peers/1"
///   not_available  reason for a missing answer: "no libnvidia-ml.so.1"; absent if there is one
///   gpus           [{"address", "persistence", "bar1_bytes", "vram_bytes", "generation", "generation_most", "width",
///                  "width_most"}]; current and maximum generation and width of the PCIe link
///   pairs          [{"from", "to", "read", "write", "nvlink", "atomics", "topology"}]: addresses; the status as
///                  nvidia-smi prints it, "OK", "CNS"; the level as it does, "PIX" to "SYS", of PCIe even under NVLink
///
/// A value that the driver does not report is null.
nlohmann::json driver_peers(const nvml::Find& find);
nlohmann::json driver_peers();

}  // namespace p2pd::bench
