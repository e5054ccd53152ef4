// SPDX-License-Identifier: MIT
#include "probes/bench/device/nvml_peers.hpp"

#include <array>
#include <string>
#include <vector>

#include "probes/bench/device/nvml.hpp"

namespace p2pd::bench {
namespace {

using namespace nvml;
using nlohmann::json;

constexpr int kNoFunction = 13;     // NVML_ERROR_FUNCTION_NOT_FOUND
constexpr unsigned kMostGpus = 64;  // more than a board has room for: a broken library

/// nvmlBAR1Memory_t and nvmlMemory_t, which both begin with the total; bytes.
struct Memory {
  unsigned long long total, free_or_used, used_or_free;
};

/// F(member, name, parameters...)
#define P2PD_NVML_FUNCTIONS(F)                                                 \
  F(init, "nvmlInit_v2")                                                       \
  F(shutdown, "nvmlShutdown")                                                  \
  F(count, "nvmlDeviceGetCount_v2", unsigned*)                                 \
  F(device, "nvmlDeviceGetHandleByIndex_v2", unsigned, Device*)                \
  F(pci, "nvmlDeviceGetPciInfo_v3", Device, PciInfo*)                          \
  F(persistence, "nvmlDeviceGetPersistenceMode", Device, unsigned*)            \
  F(bar1, "nvmlDeviceGetBAR1MemoryInfo", Device, Memory*)                      \
  F(vram, "nvmlDeviceGetMemoryInfo", Device, Memory*)                          \
  F(generation, "nvmlDeviceGetCurrPcieLinkGeneration", Device, unsigned*)      \
  F(generation_most, "nvmlDeviceGetMaxPcieLinkGeneration", Device, unsigned*)  \
  F(width, "nvmlDeviceGetCurrPcieLinkWidth", Device, unsigned*)                \
  F(width_most, "nvmlDeviceGetMaxPcieLinkWidth", Device, unsigned*)            \
  F(p2p_status, "nvmlDeviceGetP2PStatus", Device, Device, unsigned, unsigned*) \
  F(topology, "nvmlDeviceGetTopologyCommonAncestor", Device, Device, unsigned*)

struct Functions {
#define F(member, name, ...) int (*member)(__VA_ARGS__) = nullptr;
  P2PD_NVML_FUNCTIONS(F)
#undef F
};

// nvmlGpuP2PStatus_t and, in steps of ten, nvmlGpuTopologyLevel_t
constexpr std::array<const char*, 7> kStatuses = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
constexpr std::array<const char*, 6> kLevels = {"internal", "PIX", "PXB", "PHB", "NODE", "SYS"};

// nvmlGpuP2PCapsIndex_t
constexpr unsigned kRead = 0;
constexpr unsigned kWrite = 1;
constexpr unsigned kNvlink = 2;
constexpr unsigned kAtomics = 3;

struct Gpu {
  Device device = nullptr;
  json facts;
};

json number(int (*function)(Device, unsigned*), Device device) {
  unsigned value = 0;
  return ask(function, device, &value) ? json(value) : json(nullptr);
}

json total(int (*function)(Device, Memory*), Device device) {
  Memory memory{};
  return ask(function, device, &memory) ? json(memory.total) : json(nullptr);
}

Gpu read_gpu(const Functions& nvml, Device device) {
  PciInfo pci{};
  unsigned persistence = 0;
  Gpu gpu{device, json::object()};
  gpu.facts["address"] = ask(nvml.pci, device, &pci) ? json(pci_address(pci.address)) : json(nullptr);
  gpu.facts["persistence"] = ask(nvml.persistence, device, &persistence) ? json(persistence != 0) : json(nullptr);
  gpu.facts["bar1_bytes"] = total(nvml.bar1, device);
  gpu.facts["vram_bytes"] = total(nvml.vram, device);
  gpu.facts["generation"] = number(nvml.generation, device);
  gpu.facts["generation_most"] = number(nvml.generation_most, device);
  gpu.facts["width"] = number(nvml.width, device);
  gpu.facts["width_most"] = number(nvml.width_most, device);
  return gpu;
}

json read_pair(const Functions& nvml, const Gpu& from, const Gpu& to) {
  const auto status = [&](unsigned capability) {
    unsigned value = 0;
    if (!ask(nvml.p2p_status, from.device, to.device, capability, &value)) return json(nullptr);
    return json(value < kStatuses.size() ? kStatuses[value] : "U");
  };
  unsigned level = 0;
  const bool told =
      ask(nvml.topology, from.device, to.device, &level) && level % 10 == 0 && level / 10 < kLevels.size();
  return {{"from", from.facts["address"]},
          {"to", to.facts["address"]},
          {"read", status(kRead)},
          {"write", status(kWrite)},
          {"nvlink", status(kNvlink)},
          {"atomics", status(kAtomics)},
          {"topology", told ? json(kLevels[level / 10]) : json(nullptr)}};
}

}  // namespace

json driver_peers(const Find& find) {
  Functions nvml;
#define F(member, name, ...) nvml.member = reinterpret_cast<int (*)(__VA_ARGS__)>(find(name));
  P2PD_NVML_FUNCTIONS(F)
#undef F
  json found = {{"schema", "p2pd.driver-peers/1"}, {"gpus", json::array()}, {"pairs", json::array()}};
  if (const int error = nvml.init != nullptr ? nvml.init() : kNoFunction; error != kSuccess) {
    const auto words = reinterpret_cast<const char* (*)(int)>(find("nvmlErrorString"));
    const char* why = words != nullptr ? words(error) : nullptr;
    found["not_available"] = std::string("NVML does not start") + (why != nullptr ? std::string(": ") + why : "");
    return found;
  }
  unsigned count = 0;
  if (!ask(nvml.count, &count) || count > kMostGpus) {
    found["not_available"] = "NVML does not count the GPUs";
    count = 0;
  }
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (ask(nvml.device, i, &device)) gpus.push_back(read_gpu(nvml, device));
  }
  for (const Gpu& from : gpus) {
    found["gpus"].push_back(from.facts);
    for (const Gpu& to : gpus)
      if (&from != &to) found["pairs"].push_back(read_pair(nvml, from, to));
  }
  ask(nvml.shutdown);
  return found;
}

json driver_peers() {
  const Find find = open_library();
  if (find) return driver_peers(find);
  return {{"schema", "p2pd.driver-peers/1"},
          {"gpus", json::array()},
          {"pairs", json::array()},
          {"not_available", kNoLibrary}};
}

}  // namespace p2pd::bench
