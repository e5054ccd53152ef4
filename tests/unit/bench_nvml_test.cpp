// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstring>
#include <map>

#include "catch.hpp"
#include "probes/bench/device/nvml.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

// A library of two GPUs as NVML answers for them: six links of the first go to switches, two to the second GPU.

constexpr int kNotSupported = 3;
constexpr int kInvalid = 2;

struct PciInfo {
  char legacy[16];
  unsigned numbers[5];
  char address[32];
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned instances[2];
};
struct FieldValue {
  unsigned field, scope;
  long long times[2];
  unsigned type;
  int result;
  unsigned long long value;
};

bool per_link_speed = true;

std::uintptr_t number(void* device) { return reinterpret_cast<std::uintptr_t>(device); }

int succeed() { return 0; }
int count(unsigned* gpus) { return *gpus = 2, 0; }
int device(unsigned index, void** given) { return *given = reinterpret_cast<void*>(index + std::uintptr_t{1}), 0; }
int pci(void* gpu, PciInfo* info) {
  std::strcpy(info->address, number(gpu) == 1 ? "00000000:C1:00.0" : "00010000:0A:00.0");
  return 0;
}
int uuid(void* gpu, char* text, unsigned size) {
  return std::strncpy(text, number(gpu) == 1 ? "GPU-one" : "GPU-two", size), 0;
}
int mig(void* gpu, unsigned* now, unsigned* later) { return *now = number(gpu) == 2, *later = 1, 0; }
int processes(void* gpu, unsigned* count, Process* found) {
  *count = 0;
  if (number(gpu) != 1) return kNotSupported;
  for (const unsigned pid : {0U, 1U, static_cast<unsigned>(::getpid()), static_cast<unsigned>(::getppid()), 1U << 30})
    found[(*count)++].pid = pid;
  return 0;
}
int temperature(void* gpu, unsigned, unsigned* celsius) {
  return *celsius = static_cast<unsigned>(60 + number(gpu)), 0;
}
int replays(void* gpu, unsigned* count) { return number(gpu) == 1 ? (*count = 7, 0) : kNotSupported; }
int throttle(void*, unsigned long long* reasons) { return *reasons = 0x24, 0; }
int link_state(void* gpu, unsigned link, unsigned* active) {
  if (number(gpu) != 1) return kNotSupported;
  if (link >= 12) return kInvalid;
  return *active = link < 8, 0;
}
int link_type(void*, unsigned link, unsigned* type) { return *type = link < 6 ? 2 : 0, 0; }
int link_remote(void*, unsigned, PciInfo* info) { return std::strcpy(info->address, "00010000:0A:00.0"), 0; }
bool nvlink_refused = false;
int p2p_status(void*, void*, unsigned capability, unsigned* status) {
  return *status = capability == 2 && nvlink_refused ? 5 : 0, 0;
}
int fields(void*, int, FieldValue* value) {
  if ((value->field == 164) != per_link_speed) return value->result = kNotSupported, 0;
  return value->value = 25000, 0;
}

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
          {"nvmlDeviceGetUUID", any(uuid)},
          {"nvmlDeviceGetMigMode", any(mig)},
          {"nvmlDeviceGetComputeRunningProcesses_v3", any(processes)},
          {"nvmlDeviceGetTemperature", any(temperature)},
          {"nvmlDeviceGetPcieReplayCounter", any(replays)},
          {"nvmlDeviceGetCurrentClocksThrottleReasons", any(throttle)},
          {"nvmlDeviceGetNvLinkState", any(link_state)},
          {"nvmlDeviceGetNvLinkRemotePciInfo_v2", any(link_remote)},
          {"nvmlDeviceGetNvLinkRemoteDeviceType", any(link_type)},
          {"nvmlDeviceGetP2PStatus", any(p2p_status)},
          {"nvmlDeviceGetFieldValues", any(fields)}};
}

Nvml read(const std::map<std::string, void*>& functions) {
  return read_nvml([&](const char* name) {
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
  });
}

}  // namespace

TEST_CASE("nvml: what CUDA does not tell of a GPU") {
  const Nvml nvml = read(library());
  CHECK(nvml.not_available.empty());
  REQUIRE(nvml.gpus.size() == 2);
  const auto& [one, two] = std::pair(nvml.gpus[0], nvml.gpus[1]);
  CHECK(one.address == "0000:c1:00.0");
  CHECK(two.address == "10000:0a:00.0");  // Intel VMD makes domains of five digits
  CHECK(one.uuid == "GPU-one");
  CHECK((!one.mig && two.mig));
  CHECK((one.temperature_c == 61U && two.temperature_c == 62U));
  CHECK((one.replays == 7U && !two.replays));
  CHECK(one.throttle == 0x24U);
  CHECK(one.switch_gb_s == 6 * 25.0);
  REQUIRE(one.peers_gb_s.size() == 1);
  CHECK(one.peers_gb_s[0].first == two.address);
  CHECK(one.peers_gb_s[0].second == 2 * 25.0);
  CHECK((two.switch_gb_s == 0 && two.peers_gb_s.empty()));
}

TEST_CASE("nvml: neither we ourselves nor numbers of nobody's count as other processes") {
  const int expected = ::getppid() == 1 ? 0 : 1;  // process 1, unless it is the parent
  CHECK(read(library()).gpus.at(0).processes == expected);
}

TEST_CASE("nvml: the common rate where a driver does not tell that of each link") {
  per_link_speed = false;
  CHECK(read(library()).gpus.at(0).switch_gb_s == 6 * 25.0);
  per_link_speed = true;
}

TEST_CASE("nvml: each absent function leaves its own fact out") {
  const auto without = [](const char* name) {
    auto functions = library();
    REQUIRE(functions.erase(name) == 1);
    return read(functions);
  };
  CHECK(without("nvmlInit_v2").not_available == "NVML does not start");
  CHECK(without("nvmlDeviceGetCount_v2").not_available == "NVML does not count the GPUs");
  CHECK(without("nvmlDeviceGetMigMode").gpus.at(1).mig == false);
  CHECK_FALSE(without("nvmlDeviceGetTemperature").gpus.at(0).temperature_c);
  CHECK_FALSE(without("nvmlDeviceGetCurrentClocksThrottleReasons").gpus.at(0).throttle);
  CHECK(without("nvmlDeviceGetUUID").gpus.at(0).address == "0000:c1:00.0");
  CHECK(without("nvmlDeviceGetComputeRunningProcesses_v3").gpus.at(0).processes == 0);
  const Nvml no_remote = without("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  CHECK(no_remote.gpus.at(0).peers_gb_s.empty());
  CHECK(no_remote.gpus.at(0).switch_gb_s == 6 * 25.0);
  CHECK(without("nvmlDeviceGetFieldValues").gpus.at(0).switch_gb_s == 0);
}

TEST_CASE("nvml: trained links that the driver refuses for P2P are not the path that data takes") {
  nvlink_refused = true;
  const Nvml nvml = read(library());
  nvlink_refused = false;
  CHECK(nvml.gpus.at(0).peers_gb_s.empty());
  CHECK(nvml.gpus.at(0).unused == std::vector<std::string>{nvml.gpus.at(1).address});
  CHECK(nvml.gpus.at(0).switch_gb_s == 6 * 25.0);  // of a switch, another fact tells
  CHECK(read(library()).gpus.at(0).unused.empty());
  auto old = library();
  old.erase("nvmlDeviceGetP2PStatus");
  CHECK(read(old).gpus.at(0).peers_gb_s.size() == 1);  // nothing is known against them
}
