// SPDX-License-Identifier: MIT
// Modules from PTX, kernels, copies and fills.
#include <cstring>
#include <string_view>

#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

constexpr unsigned kMostThreads = 1024;  // of a block

/// The text behind `directive` on the line where it comes first; empty: there is none.
std::string_view directive(std::string_view ptx, std::string_view name) {
  const std::size_t at = ptx.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = ptx.substr(at + name.size());
  const std::size_t begin = rest.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : rest.substr(begin, rest.find('\n') - begin);
}

/// Checks that this is PTX of a version that the driver supports.
CUresult examine(const Machine& machine, std::string_view ptx) {
  const std::string version(directive(ptx, ".version "));
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2 || directive(ptx, ".target ").empty())
    return CUDA_ERROR_INVALID_PTX;
  return std::pair(major, minor) > machine.newest_ptx ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
}

bool has_entry(const std::string& ptx, const std::string& name) {
  return ptx.find(".entry " + name + "(") != std::string::npos;
}

/// Copies that need no stream of their own use the null stream and wait for it.
CUresult enqueue(CUstream handle, bool wait, const Cost& cost, Work work) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr) return kInvalidHandle;
    if (const CUresult error = stream->context().error; error != CUDA_SUCCESS) return error;
    stream->submit(cost, std::move(work));
    if (wait) stream->drain();
    return wait ? stream->context().error.load() : CUDA_SUCCESS;
  });
}

/// Copies between two places that the driver knows.
CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr) return kInvalidHandle;
    if (bytes == 0) return CUDA_SUCCESS;
    const auto source = here.simulation.space.find(from);
    const auto target = here.simulation.space.find(to);
    if (!source || !target) return CUDA_ERROR_INVALID_VALUE;
    const Context& runs = stream->context();
    const bool peers = source->device != target->device && source->device != kHost && target->device != kHost;
    const bool direct = !peers || (may_access(runs, *source) && may_access(runs, *target));
    Cost cost = price(here.machine, source->device, target->device, bytes, Engine::copy);
    if (!direct) {  // through the host
      const Link& link = here.machine.link_of(source->device, target->device);
      cost.delay_ns = link.staged_latency_ns;
      cost.gb_s = link.staged_gb_s;
      cost.both_gb_s = 0;
    }
    const int origin = source->device;
    return enqueue(handle, false, cost, [=](Operation& gpu) {
      const Window in = gpu.source(from, bytes);
      Window out = gpu.target(to, bytes, origin, direct);
      if (out.lost() && gpu.device() == out.device()) {  // it reads, and all ones come back
        std::memset(reinterpret_cast<void*>(to), 0xff, bytes);
      } else {
        out.write(0, in.begin(), bytes);
      }
    });
  });
}

CUresult to_host(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream, bool wait) {
  return in_context([&](const Driver& here, const Context&) {
    const auto source = here.simulation.space.find(from);
    if (!source) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, wait, price(here.machine, source->device, kHost, bytes, Engine::copy),
                   [=](Operation& gpu) { gpu.source(from, bytes).read(0, to, bytes); });
  });
}

}  // namespace

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) { return to_host(to, from, bytes, nullptr, true); }

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return to_host(to, from, bytes, stream, false);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return in_context([&](const Driver& here, const Context&) {
    const auto target = here.simulation.space.find(to);
    if (!target) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(nullptr, true, price(here.machine, kHost, target->device, bytes, Engine::copy),
                   [=](Operation& gpu) { gpu.target(to, bytes, kHost, false).write(0, from, bytes); });
  });
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           std::size_t bytes, CUstream stream) {
  return with_driver([&](const Driver& here) {
    const bool known = here.context(to_context) != nullptr && here.context(from_context) != nullptr;
    return known ? copy(to, from, bytes, stream) : kInvalidContext;
  });
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t words, CUstream stream) {
  return in_context([&](const Driver& here, const Context& context) {
    const auto target = here.simulation.space.find(to);
    if (!target || to % sizeof(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    const u64 bytes = words * sizeof(value);
    return enqueue(stream, false, price(here.machine, context.device, context.device, bytes, Engine::store),
                   [=](Operation& gpu) {
                     Window window = gpu.target(to, bytes, kHost, false);
                     for (std::size_t i = 0; i < words; ++i) window.write(i * sizeof(value), &value, sizeof(value));
                   });
  });
}

// ---- modules and kernels -------------------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return in_context([&](Driver& here, const Context&) {
    std::string ptx(static_cast<const char*>(image));
    const CUresult error = examine(here.machine, ptx);
    if (error == CUDA_SUCCESS) *module = here.modules.add(std::make_shared<Module>(Module{std::move(ptx)}));
    return error;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return with_driver(
      [&](Driver& here) { return here.modules.take(module) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return with_driver([&](const Driver& here) {
    const auto found = here.modules.find(module);
    if (found == nullptr) return kInvalidHandle;
    const Kernel* row = has_entry(found->ptx, name) ? kernel(name) : nullptr;
    *function = reinterpret_cast<CUfunction>(const_cast<Kernel*>(row));
    return row == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}

CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* state) {
  return in_context([&](Driver& here, const Context&) {
    *state = here.links.add(std::make_shared<Module>());
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, std::size_t bytes, const char*, unsigned,
                       CUjit_option*, void**) {
  return with_driver([&](const Driver& here) {
    const auto link = here.links.find(state);
    if (link == nullptr) return kInvalidHandle;
    if (type != CU_JIT_INPUT_PTX) return CUDA_ERROR_INVALID_VALUE;
    std::string_view ptx(static_cast<const char*>(data), bytes);
    ptx = ptx.substr(0, ptx.find('\0'));
    const CUresult error = examine(here.machine, ptx);
    if (error == CUDA_SUCCESS) link->ptx += ptx;
    return error;
  });
}

/// The "cubin" is the PTX, with the zero at its end, and lives as long as the link state.
CUresult cuLinkComplete(CUlinkState state, void** cubin, std::size_t* bytes) {
  return with_driver([&](const Driver& here) {
    const auto link = here.links.find(state);
    if (link == nullptr) return kInvalidHandle;
    *cubin = link->ptx.data();
    *bytes = link->ptx.size() + 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return with_driver([&](Driver& here) { return here.links.take(state) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned, CUstream handle, void** parameters,
                        void** extra) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr || function == nullptr) return kInvalidHandle;
    // one dimension of threads and two of blocks are all that these kernels use
    const bool fits = grid_x > 0 && grid_y > 0 && grid_z == 1 && block_x > 0 && block_x <= kMostThreads &&
                      block_y == 1 && block_z == 1 && extra == nullptr;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = stream->context().error; error != CUDA_SUCCESS) return error;
    const Grid grid{grid_x, grid_y, block_x};
    Launch launch = reinterpret_cast<const Kernel*>(function)->prepare(
        {here.simulation, stream->context().device, grid}, parameters);
    stream->submit(launch.cost, std::move(launch.work), grid);
    return CUDA_SUCCESS;  // a later call returns the errors of this kernel
  });
}

}  // namespace p2pd::sim
