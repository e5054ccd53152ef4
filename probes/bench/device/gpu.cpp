// SPDX-License-Identifier: MIT
#include "probes/bench/device/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr char kPtx[] =
#include "kernels.inc"
    ;
constexpr const char* kNames[kKernels] = {"fill",      "verify", "store",      "copy",    "chain",     "chase",
                                          "handshake", "tag",    "check_tags", "contend", "all_reduce"};

/// Assembles PTX to machine code for the current context's GPU.
Result<std::string> assemble(const Driver& driver) {
  CUlinkState state = nullptr;
  CU(driver, cuLinkCreate(0, nullptr, nullptr, &state));
  Result<void> done = driver.check(driver->cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(kPtx), sizeof(kPtx),
                                                         "kernels", 0, nullptr, nullptr),
                                   "assembling the kernels");
  void* cubin = nullptr;
  std::size_t bytes = 0;
  if (done) done = driver.check(driver->cuLinkComplete(state, &cubin, &bytes), "assembling the kernels");
  std::string machine_code = done ? std::string(static_cast<const char*>(cubin), bytes) : "";
  driver->cuLinkDestroy(state);
  TRY(std::move(done));
  return machine_code;
}

}  // namespace

Result<std::array<CUfunction, kKernels>> Kernels::load(const Driver& driver, int sm) {
  const std::string* cubin = nullptr;
  {
    const std::lock_guard lock(one_at_a_time_);
    if (!cubins_.contains(sm)) cubins_[sm] = TRY(assemble(driver));
    cubin = &cubins_[sm];  // std::map does not move its elements
  }
  CUmodule module = nullptr;
  CU(driver, cuModuleLoadData(&module, cubin->data()));
  std::array<CUfunction, kKernels> functions{};
  for (std::size_t i = 0; i < kKernels; ++i) CU(driver, cuModuleGetFunction(&functions[i], module, kNames[i]));
  return functions;
}

Result<void> OpenGpu::open(Kernels& kernels, u64 most_half) {
  const Driver& driver = *driver_;
  CU(driver, cuDeviceGet(&device_, ordinal_));
  CU(driver, cuDevicePrimaryCtxRetain(&context_, device_));
  TRY(use());
  int major = 0;
  int minor = 0;
  CU(driver, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
  CU(driver, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_));
  CU(driver, cuDeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_));
  kernels_ = TRY(kernels.load(driver, 10 * major + minor));
  CU(driver, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  CU(driver, cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING));
  CU(driver, cuEventCreate(&order_, CU_EVENT_DISABLE_TIMING));
  std::size_t free = 0;
  std::size_t total = 0;
  CU(driver, cuMemGetInfo(&free, &total));
  free_ = free;
  total_ = total;
  constexpr u64 kSpare = 64ULL << 20;  // for the driver itself and for mappings
  const u64 room = free_ > kHeader + kSpare ? (free_ - kHeader - kSpare) / 2 : 0;
  half_ = std::min(most_half, room) & ~((2ULL << 20) - 1);
  if (half_ < kHalfLeast)
    return fail(ErrorCode::busy, fmt::format("only {} MiB of its memory are free", free_ >> 20), "stop what uses it");
  arena_bytes_ = kHeader + 2 * half_;
  CU(driver, cuMemAlloc(&arena_, arena_bytes_));
  void* host = nullptr;
  CU(driver, cuMemHostAlloc(&host, kHostBytes, CU_MEMHOSTALLOC_PORTABLE));
  host_ = static_cast<std::uint8_t*>(host);
  CU(driver, cuMemsetD32Async(arena_, 0, kHeader / 4, stream_));
  CU(driver, cuStreamSynchronize(stream_));
  return {};
}

Result<void> OpenGpu::launch_raw(Kernel kernel, Shape shape, CUstream stream, void** parameters) const {
  TRY(use());
  const auto number = static_cast<std::size_t>(kernel);
  return driver_->check((*driver_)->cuLaunchKernel(kernels_[number], shape.blocks, shape.slots, 1, shape.threads, 1, 1,
                                                   0, stream, parameters, nullptr),
                        fmt::format("kernel {}", kNames[number]));
}

Result<void> OpenGpu::set(CUdeviceptr to, u64 bytes, u64 word) const {
  TRY(use());
  CU(*driver_, cuMemsetD32Async(to, static_cast<u32>(word), bytes / 4, stream_));
  return {};
}

Result<u32> OpenGpu::verify(CUdeviceptr address, const Slots& slots, u64 key, u64 poison, Load how) {
  const u32 place = TRY(new_seen());
  TRY(launch(Kernel::verify, wide(slots.count), stream_, address, slots, key, poison, u32{how}, seen_at(place)));
  return place;
}

Result<void> OpenGpu::wait_for(CUstream first, const OpenGpu& other, CUstream second) {
  TRY(other.use());
  CU(*driver_, cuEventRecord(other.order_, second));
  TRY(use());
  CU(*driver_, cuStreamWaitEvent(first, other.order_, 0));
  return {};
}

Result<void> OpenGpu::finish() const {
  TRY(use());
  CU(*driver_, cuStreamSynchronize(stream_));
  CU(*driver_, cuStreamSynchronize(side_));
  return {};
}

Result<u32> OpenGpu::new_seen() {
  if (seen_used_ == kSeen) return fail(ErrorCode::invalid, "more transfers than places for what was seen");
  return seen_used_++;
}

Result<std::vector<Seen>> OpenGpu::seen() const {
  std::vector<Seen> all(seen_used_);
  TRY(use());
  if (!all.empty()) CU(*driver_, cuMemcpyDtoH(all.data(), seen_at(0), all.size() * sizeof(Seen)));
  return all;
}

Result<std::uint8_t*> OpenGpu::host_bytes(u64 bytes) {
  if (host_used_ + bytes > kHostBytes) return fail(ErrorCode::invalid, "more samples than pinned host memory");
  std::uint8_t* const given = host_ + host_used_;
  host_used_ += bytes;
  return given;
}

Result<void> OpenGpu::forget() {
  TRY(set(seen_at(0), seen_used_ * sizeof(Seen), 0));
  CU(*driver_, cuStreamSynchronize(stream_));
  seen_used_ = 0;
  host_used_ = 0;
  return {};
}

Result<Graph> Graph::capture(const Driver& driver, const OpenGpu& gpu, const std::function<Result<void>()>& enqueue) {
  TRY(gpu.use());
  CU(driver, cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  Result<void> done = enqueue();
  CUgraph graph = nullptr;
  Result<void> ended = driver.check(driver->cuStreamEndCapture(gpu.stream(), &graph), "cuStreamEndCapture");
  if (done) done = std::move(ended);
  CUgraphExec executable = nullptr;
  if (done)
    done = driver.check(driver->cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  if (graph != nullptr) driver->cuGraphDestroy(graph);
  TRY(std::move(done));
  return Graph(driver, gpu, executable);
}

Result<void> Graph::launch() const {
  TRY(gpu_->use());
  CU(*driver_, cuGraphLaunch(executable_, gpu_->stream()));
  return {};
}

}  // namespace p2pd::bench
