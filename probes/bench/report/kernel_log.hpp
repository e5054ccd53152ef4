// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd::bench {

/// What the kernel said from a moment on, as far as it concerns GPUs and their links.
class KernelLog {
 public:
  /// From now on; /dev/kmsg of `host`. Where that cannot be read, `not_readable` says why and lines() stays empty.
  explicit KernelLog(const Host& host);
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  /// Messages since then, or since the last call, of Xid, NVRM asserts, IO_PAGE_FAULT, DMAR faults and AER, without their prefix. Xids of the
  /// process `expected` (one that may die of its atomics) are left out.
  std::vector<std::string> lines(int expected) const;
  const std::string& not_readable() const { return not_readable_; }

 private:
  int fd_ = -1;
  std::string not_readable_;
};

/// Does a message of the kernel tell of a fault of a GPU or its link?
bool is_gpu_fault(std::string_view message);

}  // namespace p2pd::bench
