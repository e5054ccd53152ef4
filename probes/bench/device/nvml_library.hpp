// SPDX-License-Identifier: MIT
// Shared parts of the readers of NVML, declared here as in nvml.h: no toolkit is needed to build.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <string_view>

namespace p2pd::bench::nvml {

using Device = void*;
constexpr int kSuccess = 0;
constexpr std::string_view kNoLibrary = "no libnvidia-ml.so.1";

/// nvmlPciInfo_t.
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
};
static_assert(sizeof(PciInfo) == 68);

/// Function of the library by its name; null if it does not exist.
using Find = std::function<void*(const char* name)>;

/// Loads the library; empty if it does not exist. It may block in the kernel endlessly: only for a process with a
/// deadline.
inline Find open_library() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return [library](const char* name) { return ::dlsym(library, name); };
}

/// False if the library lacks the function or the function fails.
template <class... Parameters, class... Arguments>
bool ask(int (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

}  // namespace p2pd::bench::nvml
