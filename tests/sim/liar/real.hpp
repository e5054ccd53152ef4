// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <string_view>

#include "tests/sim/liar/lies.hpp"

namespace p2pd::liar {

/// The driver that everything is forwarded to.
struct Real {
  CuGetProcAddress find = nullptr;  ///< null: there is no driver, as reported on stderr
  Functions functions;
};

/// Loaded on first use: P2PD_REAL_LIBCUDA, or the first driver in the usual directories.
const Real& real_driver();
inline const Functions& real() { return real_driver().functions; }

constexpr int kMostDevices = 64;
/// Devices whose context has an illegal address, which it keeps until the process ends.
inline std::array<std::atomic<bool>, kMostDevices> failed{};
/// The device of this thread's current context; -1: none.
inline thread_local int here = -1;

inline void fail_context(int device) {
  if (device >= 0 && device < kMostDevices) failed[static_cast<std::size_t>(device)] = true;
}
inline bool context_failed(int device) {
  return device >= 0 && device < kMostDevices && failed[static_cast<std::size_t>(device)];
}

/// Functions that still work after an error of the context.
constexpr bool without_context(std::string_view name) {
  return name.starts_with("cuDevice") || name == "cuInit" || name == "cuDriverGetVersion" || name == "cuGetErrorName" ||
         name == "cuCtxSetCurrent";
}

/// Forwards one function.
template <auto Member>
struct Forward;
template <class... Parameters, CUresult (*Functions::*Member)(Parameters...)>
struct Forward<Member> {
  static CUresult call(Parameters... parameters) { return (real().*Member)(parameters...); }
  static CUresult in_context(Parameters... parameters) {
    return context_failed(here) ? CUDA_ERROR_ILLEGAL_ADDRESS : (real().*Member)(parameters...);
  }
};

}  // namespace p2pd::liar
