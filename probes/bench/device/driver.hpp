// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

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

/// Frees something of the driver with the object, which can be moved.
class Cleanup {
 public:
  Cleanup() = default;
  explicit Cleanup(std::function<void()> free) : free_(std::move(free)) {}
  Cleanup(Cleanup&& other) noexcept : free_(std::exchange(other.free_, nullptr)) {}
  Cleanup& operator=(Cleanup&& other) noexcept {
    std::swap(free_, other.free_);
    return *this;
  }
  ~Cleanup() {
    if (free_) free_();
  }

 private:
  std::function<void()> free_;
};

}  // namespace p2pd::bench

/// Calls a function of the driver, or leaves the enclosing function with its error.
#define CU(driver, ...) TRY((driver).check((driver)->__VA_ARGS__, #__VA_ARGS__))
