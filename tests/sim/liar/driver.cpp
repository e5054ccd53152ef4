// SPDX-License-Identifier: MIT
// A CUDA driver that forwards everything to the real one and tells one lie (README.md).
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "tests/sim/liar/liar.hpp"

namespace p2pd::liar {

namespace {

struct Given {
  std::string_view name;
  void* function;
};

constexpr auto kPlain = [](auto function) { return reinterpret_cast<void*>(function); };

/// Functions that do more than forward.
const std::vector<Given>& own_functions() {
  static const std::vector<Given> rows = {
      {"cuInit", kPlain(init)},
      {"cuDeviceCanAccessPeer", kPlain(can_access)},
      {"cuDeviceGetP2PAttribute", kPlain(p2p_attribute)},
      {"cuDevicePrimaryCtxRetain", kPlain(context_retain)},
      {"cuCtxSetCurrent", kPlain(context_current)},
      {"cuCtxEnablePeerAccess", kPlain(enable_peer)},
      {"cuCtxDisablePeerAccess", kPlain(disable_peer)},
      {"cuMemAlloc", kPlain(allocate)},
      {"cuMemFree", kPlain(release)},
      {"cuMemcpyAsync", kPlain(copy_async)},
      {"cuStreamCreate", kPlain(stream_create)},
      {"cuStreamSynchronize", kPlain(stream_synchronize)},
      {"cuStreamWaitEvent", kPlain(stream_wait)},
      {"cuEventRecord", kPlain(event_record)},
      {"cuEventElapsedTime", kPlain(event_elapsed)},
      {"cuModuleGetFunction", kPlain(module_function)},
      {"cuLaunchKernel", kPlain(launch)},
      {"cuStreamBeginCapture", kPlain(capture_begin)},
      {"cuGraphLaunch", kPlain(graph_launch)},
      {"cuMemCreate", kPlain(create)},
      {"cuMemMap", kPlain(map)},
      {"cuMemUnmap", kPlain(unmap)},
      {"cuMemSetAccess", kPlain(set_access)},
      {"cuMemExportToShareableHandle", kPlain(export_handle)},
      {"cuMemPoolCreate", kPlain(pool_create)},
      {"cuMemPoolSetAccess", kPlain(pool_set_access)},
      {"cuMemAllocFromPoolAsync", kPlain(pool_allocate)},
      {"cuMemFreeAsync", kPlain(pool_free)},
      {"cuIpcGetMemHandle", kPlain(ipc_handle)},
      {"cuIpcOpenMemHandle", kPlain(ipc_open)},
      {"cuIpcCloseMemHandle", kPlain(ipc_close)},
  };
  return rows;
}

const std::vector<Given>& forwarded_functions() {
  static const std::vector<Given> rows = {
#define F(name, ...)                                                                         \
  {#name, without_context(#name) ? reinterpret_cast<void*>(&Forward<&Functions::name>::call) \
                                 : reinterpret_cast<void*>(&Forward<&Functions::name>::in_context)},
      P2PD_CUDA_FUNCTIONS(F)
#undef F
  };
  return rows;
}

/// P2PD_REAL_LIBCUDA, or the driver in one of the usual directories.
void* open_real() {
  if (const char* const set = std::getenv("P2PD_REAL_LIBCUDA"); set != nullptr && *set != '\0')
    return ::dlopen(set, RTLD_NOW | RTLD_LOCAL);
  for (const char* const directory : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat"}) {
    void* const library = ::dlopen((std::string(directory) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  return nullptr;
}

Real load_real() {
  Real real;
  void* const library = open_real();
  if (library == nullptr) {
    std::fprintf(stderr, "the lying CUDA driver: no real one: %s\n", ::dlerror());
    return real;
  }
  real.find = reinterpret_cast<CuGetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (real.find == nullptr) return real;
  const auto take = [&](const char* name, void** function) { real.find(name, function, kApiVersion, 0, nullptr); };
#define F(name, ...) take(#name, reinterpret_cast<void**>(&real.functions.name));
  P2PD_CUDA_FUNCTIONS(F)
#undef F
  return real;
}

}  // namespace

const Real& real_driver() {
  static const Real once = load_real();
  return once;
}

/// Functions that the real driver lacks are missing here too; those that p2p-bench does not use are the real driver's.
extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* symbol, void** function,
                                                                               int version, std::uint64_t flags,
                                                                               int* status) {
  *function = nullptr;
  if (real_driver().find == nullptr) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = real_driver().find(symbol, function, version, flags, status);
  if (result != CUDA_SUCCESS || *function == nullptr) return result;
  for (const std::vector<Given>* rows : {&own_functions(), &forwarded_functions()}) {
    const auto found = std::ranges::find(*rows, std::string_view(symbol), &Given::name);
    if (found == rows->end()) continue;
    *function = found->function;
    break;
  }
  return result;
}

}  // namespace p2pd::liar
