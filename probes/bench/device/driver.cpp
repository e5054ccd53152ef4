// SPDX-License-Identifier: MIT
#include "probes/bench/device/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/signatures.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

/// Errors that a context keeps: uncorrectable ECC and NVLink errors, a contained one, an illegal address, the watchdog,
/// an assertion, and from the hardware stack error to the failed launch.
constexpr int kFaults[] = {214, 220, 223, CUDA_ERROR_ILLEGAL_ADDRESS, 702, 710, 714, 715, 716, 717, 718, 719};

/// Next step of the operator for an error of cuInit.
std::string_view remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE: return "\"p2pctl doctor\" tells whether a GPU is on the bus and its module is loaded";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "a CUDA compatibility package is in the library path of a card that does not take it: remove it";
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return "the Fabric Manager of these GPUs does not run: systemctl start nvidia-fabricmanager";
    default: return "\"p2pctl doctor\" looks at the driver; the kernel log has its messages";
  }
}

}  // namespace

Result<Driver> Driver::load() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(ErrorCode::not_found, fmt::format("no CUDA driver: {}", ::dlerror()),
                "install the NVIDIA driver: \"p2pctl plan\" shows how p2pd would");
  const auto find = reinterpret_cast<CuGetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr)
    return fail(ErrorCode::not_found, "libcuda.so.1 has no cuGetProcAddress_v2: a driver older than 525",
                "install a driver of the catalogue");
  Driver driver;
#define F(name, ...)                                                                                             \
  if (find(#name, reinterpret_cast<void**>(&driver.functions_.name), kApiVersion, 0, nullptr) != CUDA_SUCCESS || \
      driver.functions_.name == nullptr)                                                                         \
    return fail(ErrorCode::not_found, "the CUDA driver has no " #name, "install a driver of the catalogue");
  P2PD_CUDA_FUNCTIONS(F)
#undef F
  const CUresult started = driver->cuInit(0);
  if (started == CUDA_SUCCESS) return driver;
  const std::string name = driver.name(started);
  const auto known = program_failure(name);
  return fail(ErrorCode::io,
              fmt::format("the CUDA driver does not start: {}{}", name, known ? ": " + known->cause : ""),
              known ? known->fix : std::string(remedy(started)));
}

std::string Driver::name(CUresult result) const {
  const char* text = nullptr;
  if (functions_.cuGetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr)
    return fmt::format("CUDA error {}", static_cast<int>(result));
  return text;
}

Result<void> Driver::check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return {};
  if (std::ranges::find(kFaults, static_cast<int>(result)) != std::end(kFaults)) *faulted_ = true;
  return fail(ErrorCode::io, fmt::format("{}: {}", call.substr(0, call.find('(')), name(result)));
}

std::string Driver::version() const {
  int version = 0;
  functions_.cuDriverGetVersion(&version);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace p2pd::bench
