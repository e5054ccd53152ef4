// SPDX-License-Identifier: MIT
// libnvidia-ml.so.1 of the host: the functions that p2p-bench looks up, answered from sysfs, procfs and the gates.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "probes/bench/device/nvml.hpp"
#include "tests/sim/host/gates.hpp"

namespace p2pd::sim {

namespace {

using bench::nvml::Device;
using bench::nvml::kSuccess;
using bench::nvml::PciInfo;

// nvmlReturn_t
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;
constexpr int kUnknown = 999;

// nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t
enum Capability : unsigned { kRead, kWrite, kNvlink, kAtomics, kPci };
constexpr unsigned kStatusOk = 0;
constexpr unsigned kStatusNotSupported = 5;

// nvmlGpuTopologyLevel_t
constexpr unsigned kOneSwitch = 10;
constexpr unsigned kSwitches = 20;
constexpr unsigned kHostBridge = 30;
constexpr unsigned kNode = 40;
constexpr unsigned kSystem = 50;

/// nvmlMemory_t and nvmlBAR1Memory_t, whose members are the same but for their order.
struct Memory {
  unsigned long long total, free, used;
};

struct Library {
  std::mutex mutex;
  int users = 0;
  std::unique_ptr<const GpuHost> host;
  Gates gates;
};

Library& library() {
  static Library instance;
  return instance;
}

/// Result of nvmlInit: that of the first closed gate.
int start(Library& here) {
  if (std::getenv("P2PD_SIM_CUDA") != nullptr) return kDriverNotLoaded;  // a simulated machine is not this host
  here.gates = Gates::read();
  here.host = std::make_unique<const GpuHost>(GpuHost::read(false));
  for (const StartGate& gate : here.gates.start)
    if (gate.nvml_init != kSuccess && !gate.open(*here.host)) return gate.nvml_init;
  return kSuccess;
}

/// Runs `call` if the library is initialized; prints an exception, and returns an unknown error for it.
template <class Call>
int guarded(Call call, bool starting = false) {
  Library& here = library();
  const std::lock_guard lock(here.mutex);
  if (!starting && here.users == 0) return kUninitialized;
  try {
    return call(here);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated NVML: %s\n", error.what());
    return kUnknown;
  }
}

template <class Call>
int on_gpu(Device device, Call call) {
  return guarded([&](const Library& here) {
    for (const HostGpu& gpu : here.host->gpus)
      if (&gpu == device) return call(gpu);
    return kInvalidArgument;
  });
}

template <class Call>
int on_pair(Device one, Device other, Call call) {
  return guarded([&](const Library& here) {
    const HostGpu* found[2] = {};
    for (const HostGpu& gpu : here.host->gpus) {
      if (&gpu == one) found[0] = &gpu;
      if (&gpu == other) found[1] = &gpu;
    }
    if (found[0] == nullptr || found[1] == nullptr || one == other) return kInvalidArgument;
    return call(here, *found[0], *found[1]);
  });
}

template <class Value>
int set(Value* to, Value value) {
  *to = value;
  return kSuccess;
}

/// P2P status of reads and writes: that of the first closed gate.
unsigned status_of(const Library& here, const HostGpu& one, const HostGpu& other) {
  for (const PairGate& gate : here.gates.pair)
    if (gate.nvml_status != kStatusOk && !gate.open(*here.host, one, other)) return gate.nvml_status;
  return kStatusOk;
}

unsigned level_of(const HostGpu& one, const HostGpu& other) {
  const PciPath path = path_between(one.function, other.function);
  if (path.below_switch) return path.one_switch ? kOneSwitch : kSwitches;
  const auto bus = [](const HostGpu& gpu) { return gpu.function.way().front().address().substr(0, 7); };
  if (bus(one) == bus(other)) return kHostBridge;
  return one.function.line("numa_node") == other.function.line("numa_node") ? kNode : kSystem;
}

void describe(const HostGpu& gpu, PciInfo& info) {
  info = {};
  unsigned function = 0;
  std::sscanf(gpu.function.address().c_str(), "%x:%x:%x.%x", &info.domain, &info.bus, &info.device, &function);
  std::snprintf(info.legacy, sizeof(info.legacy), "%04X:%02X:%02X.%X", info.domain & 0xffff, info.bus & 0xff,
                info.device & 0xff, function & 0xf);
  std::snprintf(info.address, sizeof(info.address), "%08X:%02X:%02X.%X", info.domain, info.bus, info.device, function);
  const auto both = [&](const char* device, const char* vendor) {
    return static_cast<unsigned>(gpu.function.number(device) << 16 | gpu.function.number(vendor));
  };
  info.id = both("device", "vendor");
  info.subsystem = both("subsystem_device", "subsystem_vendor");
}

int link_generation(Device device, unsigned* generation, const char* attribute) {
  return on_gpu(device, [&](const HostGpu& gpu) {
    return set(generation, static_cast<unsigned>(gpu.function.link_generation(attribute)));
  });
}

int link_width(Device device, unsigned* width, const char* attribute) {
  return on_gpu(device,
                [&](const HostGpu& gpu) { return set(width, static_cast<unsigned>(gpu.function.number(attribute))); });
}

}  // namespace

#define P2PD_NVML extern "C" __attribute__((visibility("default"))) int

P2PD_NVML nvmlInit_v2() {
  return guarded(
      [](Library& here) {
        const int result = here.users > 0 ? kSuccess : start(here);
        if (result == kSuccess) ++here.users;
        return result;
      },
      true);
}

P2PD_NVML nvmlShutdown() {
  return guarded([](Library& here) {
    --here.users;
    return kSuccess;
  });
}

P2PD_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  return guarded([&](const Library& here) { return set(count, static_cast<unsigned>(here.host->gpus.size())); });
}

P2PD_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  return guarded([&](const Library& here) {
    if (index >= here.host->gpus.size()) return kInvalidArgument;
    return set(device, static_cast<Device>(const_cast<HostGpu*>(&here.host->gpus[index])));
  });
}

P2PD_NVML nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  return on_gpu(device, [&](const HostGpu& gpu) {
    describe(gpu, *info);
    return kSuccess;
  });
}

P2PD_NVML nvmlDeviceGetUUID(Device device, char* text, unsigned length) {
  return on_gpu(device, [&](const HostGpu& gpu) {
    if (length <= gpu.uuid.size()) return kInsufficientSize;
    std::strcpy(text, gpu.uuid.c_str());
    return kSuccess;
  });
}

P2PD_NVML nvmlDeviceGetPersistenceMode(Device device, unsigned* mode) {
  return on_gpu(device, [&](const HostGpu&) {
    const auto file = library().host->root / "run/nvidia-persistenced/nvidia-persistenced.pid";
    return set(mode, std::filesystem::exists(file) ? 1U : 0U);
  });
}

P2PD_NVML nvmlDeviceGetBAR1MemoryInfo(Device device, Memory* memory) {
  return on_gpu(device, [&](const HostGpu& gpu) {
    const unsigned long long bytes = gpu.function.bar_bytes(1);
    return set(memory, Memory{bytes, bytes, 0});
  });
}

P2PD_NVML nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  return on_gpu(device, [&](const HostGpu& gpu) {
    const unsigned long long bytes = gpu.board->vram_mib << 20;
    return set(memory, Memory{bytes, bytes, 0});
  });
}

P2PD_NVML nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* generation) {
  return link_generation(device, generation, "current_link_speed");
}

P2PD_NVML nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* generation) {
  return link_generation(device, generation, "max_link_speed");
}

P2PD_NVML nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) {
  return link_width(device, width, "current_link_width");
}

P2PD_NVML nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* width) {
  return link_width(device, width, "max_link_width");
}

P2PD_NVML nvmlDeviceGetP2PStatus(Device one, Device other, unsigned capability, unsigned* status) {
  return on_pair(one, other, [&](const Library& here, const HostGpu& first, const HostGpu& second) {
    if (capability > kPci) return kInvalidArgument;
    const bool absent = capability == kNvlink || capability == kAtomics;  // over BAR1 there are no atomics
    return set(status, absent ? kStatusNotSupported : status_of(here, first, second));
  });
}

P2PD_NVML nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned* level) {
  return on_pair(one, other, [&](const Library&, const HostGpu& first, const HostGpu& second) {
    return set(level, level_of(first, second));
  });
}

P2PD_NVML nvmlDeviceGetTemperature(Device device, unsigned, unsigned* celsius) {
  return on_gpu(device, [&](const HostGpu&) { return set(celsius, 61U); });
}

P2PD_NVML nvmlDeviceGetPcieReplayCounter(Device device, unsigned* count) {
  return on_gpu(device, [&](const HostGpu&) { return set(count, 0U); });
}

P2PD_NVML nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return on_gpu(device, [&](const HostGpu&) { return set(reasons, 0ULL); });
}

P2PD_NVML nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, void*) {
  return on_gpu(device, [&](const HostGpu&) { return set(count, 0U); });
}

// GeForce boards of today have neither.
P2PD_NVML nvmlDeviceGetMigMode(Device device, unsigned*, unsigned*) {
  return on_gpu(device, [](const HostGpu&) { return kNotSupported; });
}

P2PD_NVML nvmlDeviceGetNvLinkState(Device device, unsigned, unsigned*) {
  return on_gpu(device, [](const HostGpu&) { return kNotSupported; });
}

}  // namespace p2pd::sim
