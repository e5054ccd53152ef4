// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/host.hpp"
#include "machine/hardware/pci_address.hpp"

namespace p2pd::bench {

/// What the kernel said from a moment on, as far as it concerns GPUs and their links.
class KernelLog {
 public:
  /// From now on; /dev/kmsg of `host`. Where that cannot be read, `not_readable` says why and faults() stays empty.
  explicit KernelLog(const Host& host);

  /// Records since then, or since the last call, of faults of `gpus` that refute a proof: each Xid, and the rows of
  /// config/signatures.yaml that say so. Xids of the process `expected` (one that may die of what it tests) are left out.
  std::vector<std::string> faults(int expected, const GpuFunctions& gpus);
  const std::string& not_readable() const { return not_readable_; }

 private:
  Result<Descriptor> device_;
  std::string not_readable_;
};

}  // namespace p2pd::bench
