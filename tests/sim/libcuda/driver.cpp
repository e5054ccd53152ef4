// SPDX-License-Identifier: MIT
// Start and end of the driver in a process, and the one function that is exported.
#include "tests/sim/libcuda/driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/libcuda/host_machine.hpp"

namespace p2pd::sim {

namespace {

/// State of this process: the machine as shown to it, and the driver once it runs.
struct Process {
  ~Process() {
    if (pid != ::getpid()) static_cast<void>(driver.release());  // its threads are the parent's
  }
  const pid_t pid = ::getpid();
  std::mutex mutex;
  std::unique_ptr<Machine> machine;
  std::string error;
  std::unique_ptr<Driver> driver;
  std::atomic<Driver*> running = nullptr;
};

Process& process() {
  static Process instance;
  return instance;
}

/// Reads the machine file, or the host, once; null when it is broken. The lock is held.
Machine* machine_of(Process& here) {
  if (here.machine != nullptr || !here.error.empty()) return here.machine.get();
  const char* path = std::getenv("P2PD_SIM_CUDA");
  try {
    here.machine = path != nullptr ? Machine::read(path) : machine_of_host();
    if (const char* shown = std::getenv("CUDA_VISIBLE_DEVICES")) here.machine->show_only(shown);
  } catch (const std::exception& error) {
    here.error = std::string(path == nullptr ? "this host" : path) + ": " + error.what();
    std::ranges::replace(here.error, '\n', ' ');
  }
  return here.machine.get();
}

struct ErrorName {
  CUresult code;
  const char* name;
};
constexpr ErrorName kErrorNames[] = {
#define NAMED(name) \
  { name, #name }
    NAMED(CUDA_SUCCESS),
    NAMED(CUDA_ERROR_INVALID_VALUE),
    NAMED(CUDA_ERROR_OUT_OF_MEMORY),
    NAMED(CUDA_ERROR_NO_DEVICE),
    NAMED(CUDA_ERROR_INVALID_DEVICE),
    NAMED(CUDA_ERROR_INVALID_PTX),
    NAMED(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
    NAMED(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
    NAMED(CUDA_ERROR_NOT_FOUND),
    NAMED(CUDA_ERROR_NOT_READY),
    NAMED(CUDA_ERROR_ILLEGAL_ADDRESS),
    NAMED(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    NAMED(CUDA_ERROR_TOO_MANY_PEERS),
    NAMED(CUDA_ERROR_NOT_SUPPORTED),
    NAMED(CUDA_ERROR_SYSTEM_NOT_READY),
    NAMED(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
    NAMED(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    NAMED(CUDA_ERROR_UNKNOWN),
#undef NAMED
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kNotEnabled, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
    {static_cast<CUresult>(716), "CUDA_ERROR_MISALIGNED_ADDRESS"},
};

}  // namespace

// ---- the process ---------------------------------------------------------------------------------------------------

Driver* driver() {
  Process& here = process();
  return here.pid == ::getpid() ? here.running.load() : nullptr;
}

Context*& current() {
  thread_local Context* context = nullptr;
  return context;
}

Driver::Driver(Machine& described)
    : machine(described), simulation(described), null_streams_(described.devices.size()) {
  for (int device = 0; device < machine.count(); ++device) contexts.push_back(std::make_unique<Context>(device));
}

/// Ends spinning and hanging operations, and skips the rest of every queue.
Driver::~Driver() {
  simulation.stopping = true;
  simulation.stopping.notify_all();
}

Context* Driver::context(CUcontext handle) const {
  for (const auto& context : contexts)
    if (reinterpret_cast<CUcontext>(context.get()) == handle) return context.get();
  return nullptr;
}

CUcontext Driver::handle(CUdevice device) const {
  return reinterpret_cast<CUcontext>(contexts[static_cast<std::size_t>(device)].get());
}

std::shared_ptr<Stream> Driver::new_stream(Context& context) {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Stream>(simulation, timeline, context, next_stream_++);
}

std::shared_ptr<Stream> Driver::stream(Context& context, CUstream handle) {
  if (handle != nullptr) return streams.find(handle);
  auto& stream = null_streams_[static_cast<std::size_t>(context.device)];
  {
    const std::lock_guard lock(mutex_);
    if (stream != nullptr) return stream;
  }
  auto made = new_stream(context);
  const std::lock_guard lock(mutex_);
  if (stream == nullptr) stream = std::move(made);
  return stream;
}

void Driver::drain(const Context& context) {
  std::vector<std::shared_ptr<Stream>> all = streams.all();
  {
    const std::lock_guard lock(mutex_);
    all.push_back(null_streams_[static_cast<std::size_t>(context.device)]);
  }
  for (const auto& stream : all)
    if (stream != nullptr && &stream->context() == &context) stream->drain();
}

void Driver::drain_all() {
  for (const auto& context : contexts) drain(*context);
}

CUresult cuInit(unsigned) {
  Process& here = process();
  if (here.pid != ::getpid()) return kNotInitialized;
  const std::lock_guard lock(here.mutex);
  if (here.running != nullptr) return CUDA_SUCCESS;
  Machine* const machine = machine_of(here);
  if (machine == nullptr) {
    std::fprintf(stderr, "simulated CUDA driver: %s\n", here.error.c_str());
    return CUDA_ERROR_UNKNOWN;
  }
  if (machine->init_error != CUDA_SUCCESS) return machine->init_error;
  if (machine->count() == 0) return CUDA_ERROR_NO_DEVICE;
  here.driver = std::make_unique<Driver>(*machine);
  here.running = here.driver.get();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const Machine* const machine = machine_of(here);
  if (machine == nullptr) return CUDA_ERROR_UNKNOWN;
  *version = machine->driver_version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const auto found = std::ranges::find(kErrorNames, error, &ErrorName::code);
  *text = found == std::end(kErrorNames) ? nullptr : found->name;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// ---- what is exported ----------------------------------------------------------------------------------------------

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* symbol, void** function,
                                                                               int version, std::uint64_t,
                                                                               int* status) {
  struct Row {
    std::string_view name;
    void* function;
  };
  static const Row rows[] = {
#define F(name, ...) {#name, reinterpret_cast<void*>(&name)},
      P2PD_CUDA_FUNCTIONS(F)
#undef F
  };
  int driver_version = 0;
  const bool old = cuDriverGetVersion(&driver_version) == CUDA_SUCCESS && driver_version < version;
  const auto found = std::ranges::find(rows, std::string_view(symbol), &Row::name);
  const int problem = found == std::end(rows) ? 1 : old ? 2 : 0;
  *function = problem == 0 ? found->function : nullptr;
  if (status != nullptr) *status = problem;
  return problem == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace p2pd::sim
