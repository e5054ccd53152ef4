// SPDX-License-Identifier: MIT
#include <cstring>
#include <map>

#include "catch.hpp"
#include "probes/bench/device/nvml.hpp"

using namespace p2pd::bench;
using nvml::PciInfo;

namespace {

// A library of two GPUs as NVML answers for them: reads OK, writes refused by the chipset one way, no atomics.

constexpr int kNotSupported = 3;

std::uintptr_t number(void* device) { return reinterpret_cast<std::uintptr_t>(device); }

int succeed() { return 0; }
int mismatched() { return 18; }
const char* words(int error) { return error == 18 ? "Driver/library version mismatch" : "Unknown Error"; }
int count(unsigned* gpus) { return *gpus = 2, 0; }
int far_too_many(unsigned* gpus) { return *gpus = 4'000'000'000U, 0; }
int device(unsigned index, void** given) { return *given = reinterpret_cast<void*>(index + std::uintptr_t{1}), 0; }
int pci(void* gpu, PciInfo* info) {
  return std::strcpy(info->address, number(gpu) == 1 ? "00000000:C1:00.0" : "00000000:0A:00.0"), 0;
}
int persistence(void* gpu, unsigned* mode) { return *mode = number(gpu) == 1, 0; }
int bar1(void*, unsigned long long* memory) { return memory[0] = 32ULL << 30, memory[1] = memory[2] = 1, 0; }
int vram(void*, unsigned long long* memory) { return memory[0] = 24564ULL << 20, memory[1] = memory[2] = 1, 0; }
int four(void*, unsigned* value) { return *value = 4, 0; }
int sixteen(void*, unsigned* value) { return *value = 16, 0; }
int refuse(void*, unsigned*) { return kNotSupported; }
int status(void* from, void*, unsigned capability, unsigned* value) {
  constexpr unsigned kAnswers[] = {0, 0, 5, 99};  // read, write, NVLink, atomics
  if (capability > 3) return kNotSupported;
  return *value = capability == 1 && number(from) == 1 ? 1 : kAnswers[capability], 0;
}
int topology(void* from, void*, unsigned* level) { return *level = number(from) == 1 ? 30 : 7, 0; }

template <class Function>
void* any(Function* function) {
  return reinterpret_cast<void*>(function);
}

std::map<std::string, void*> library() {
  return {{"nvmlInit_v2", any(succeed)},
          {"nvmlShutdown", any(succeed)},
          {"nvmlDeviceGetCount_v2", any(count)},
          {"nvmlDeviceGetHandleByIndex_v2", any(device)},
          {"nvmlDeviceGetPciInfo_v3", any(pci)},
          {"nvmlDeviceGetPersistenceMode", any(persistence)},
          {"nvmlDeviceGetBAR1MemoryInfo", any(bar1)},
          {"nvmlDeviceGetMemoryInfo", any(vram)},
          {"nvmlDeviceGetCurrPcieLinkGeneration", any(refuse)},
          {"nvmlDeviceGetMaxPcieLinkGeneration", any(four)},
          {"nvmlDeviceGetCurrPcieLinkWidth", any(sixteen)},
          {"nvmlDeviceGetMaxPcieLinkWidth", any(sixteen)},
          {"nvmlDeviceGetP2PStatus", any(status)},
          {"nvmlDeviceGetTopologyCommonAncestor", any(topology)}};
}

nlohmann::json read(const std::map<std::string, void*>& functions) {
  return driver_peers([&](const char* name) {
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
  });
}

}  // namespace

TEST_CASE("driver peers: every GPU and every ordered pair, in nvidia-smi's words") {
  const nlohmann::json peers = read(library());
  CHECK_FALSE(peers.contains("not_available"));
  CHECK(peers["gpus"][0] == nlohmann::json{{"address", "0000:c1:00.0"},
                                           {"persistence", true},
                                           {"bar1_bytes", 34359738368},
                                           {"vram_bytes", 25757220864},
                                           {"generation", nullptr},
                                           {"generation_most", 4},
                                           {"width", 16},
                                           {"width_most", 16}});
  REQUIRE(peers["pairs"].size() == 2);
  CHECK(peers["pairs"][0] == nlohmann::json{{"from", "0000:c1:00.0"},
                                            {"to", "0000:0a:00.0"},
                                            {"read", "OK"},
                                            {"write", "CNS"},
                                            {"nvlink", "NS"},
                                            {"atomics", "U"},
                                            {"topology", "PHB"}});
  CHECK(peers["pairs"][1]["write"] == "OK");
  CHECK(peers["pairs"][1]["topology"] == nullptr);
}

TEST_CASE("driver peers: each absent function leaves its own fact out") {
  for (const auto& [name, function] : library()) {
    auto functions = library();
    functions.erase(name);
    CAPTURE(name);
    const nlohmann::json peers = read(functions);
    const bool needed = name == "nvmlInit_v2" || name == "nvmlDeviceGetCount_v2";
    CHECK(peers.contains("not_available") == needed);
    if (name == "nvmlDeviceGetP2PStatus") CHECK(peers["pairs"][0]["read"] == nullptr);
    if (name == "nvmlDeviceGetHandleByIndex_v2") CHECK(peers["gpus"].empty());
  }
  auto functions = library();
  functions["nvmlDeviceGetCount_v2"] = any(far_too_many);
  CHECK(read(functions)["not_available"] == "NVML does not count the GPUs");
  functions["nvmlInit_v2"] = any(mismatched);
  CHECK(read(functions)["not_available"] == "NVML does not start");
  functions["nvmlErrorString"] = any(words);
  CHECK(read(functions)["not_available"] == "NVML does not start: Driver/library version mismatch");
}
