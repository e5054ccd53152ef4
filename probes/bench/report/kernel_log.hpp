// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/host.hpp"
#include "machine/hardware/pci_address.hpp"

namespace p2pd::bench {

/// Kernel messages from a moment on, about GPUs and their links.
class KernelLog {
 public:
  /// Starts now, in /dev/kmsg of `host`. If that is unreadable, `not_readable` has the reason and faults() stays empty.
  explicit KernelLog(const Host& host);

  /// Records since then, or since the last call, of faults of `gpus` that refute a proof: each Xid, and the marked rows
  /// of config/signatures.yaml; one without an address only if no other NVIDIA GPU can be the cause. Leaves out Xids of
  /// the process `expected` (one that its tests may kill).
  std::vector<std::string> faults(int expected, const GpuFunctions& gpus);
  const std::string& not_readable() const { return not_readable_; }

 private:
  Result<Descriptor> device_;
  std::string not_readable_;
};

}  // namespace p2pd::bench
