// SPDX-License-Identifier: MIT
// What every reader of NVML uses, declared here as in nvml.h: no toolkit is needed to build.
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

/// A function of the library by its name; null where it has none of it.
using Find = std::function<void*(const char* name)>;

/// Empty where the library is not there. It may block in the kernel for ever, so: in a process with a deadline only.
inline Find open_library() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return [library](const char* name) { return ::dlsym(library, name); };
}

/// False where the library lacks the function or it refuses.
template <class... Parameters, class... Arguments>
bool ask(int (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

}  // namespace p2pd::bench::nvml
