// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "base/result.hpp"
#include "probes/bench/device/cuda.hpp"

namespace p2pd::bench {

/// CUDA driver of this machine, loaded at run time and initialized.
class Driver {
 public:
  /// Errors name the fault and the next action: no driver, no GPU, a userspace that does not match the kernel module.
  static Result<Driver> load();

  const cuda::Functions* operator->() const { return &functions_; }
  /// Returns an Error that names `call` (its text up to the parenthesis) and CUDA's name of the result.
  Result<void> check(cuda::CUresult result, std::string_view call) const;
  /// True if check() has seen an error that a context keeps until the process ends, such as an illegal address.
  bool faulted() const { return *faulted_; }
  /// Name of an error in CUDA, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED".
  std::string name(cuda::CUresult result) const;
  /// "12.8"
  std::string version() const;

 private:
  cuda::Functions functions_;
  std::shared_ptr<std::atomic<bool>> faulted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace p2pd::bench

/// Calls a function of the driver, or leaves the enclosing function with its error.
#define CU(driver, ...) TRY((driver).check((driver)->__VA_ARGS__, #__VA_ARGS__))
