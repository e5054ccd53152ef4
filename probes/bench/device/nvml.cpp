// SPDX-License-Identifier: MIT
#include "probes/bench/device/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "base/strings.hpp"

namespace p2pd::bench {
namespace {

using namespace nvml;
using nlohmann::json;

constexpr std::string_view kNoLibrary = "no libnvidia-ml.so.1";
constexpr std::string_view kNoStart = "NVML does not start";
constexpr std::string_view kNoCount = "NVML does not count the GPUs";
constexpr int kNoFunction = 13;     // NVML_ERROR_FUNCTION_NOT_FOUND
constexpr unsigned kMostGpus = 64;  // more than a board has room for: a broken library
constexpr unsigned kEnabled = 1;
constexpr unsigned kMostLinks = 36;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kRemoteGpu = 0;   // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr unsigned kRemoteSwitch = 2;
constexpr unsigned kSpeedOfLink = 164;  // NVML_FI_DEV_NVLINK_GET_SPEED: 10^6 bytes per second; `scope` is the link
constexpr unsigned kCommonSpeed = 90;   // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: older cards and drivers

// nvmlGpuP2PCapsIndex_t
constexpr unsigned kRead = 0;
constexpr unsigned kWrite = 1;
constexpr unsigned kNvlink = 2;
constexpr unsigned kAtomics = 3;

// nvmlGpuP2PStatus_t, of which the first is OK, and, in steps of ten, nvmlGpuTopologyLevel_t
constexpr std::array<const char*, 7> kStatuses = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
constexpr std::array<const char*, 6> kLevels = {"internal", "PIX", "PXB", "PHB", "NODE", "SYS"};

/// nvmlBAR1Memory_t and nvmlMemory_t, which both begin with the total; bytes.
struct MemoryInfo {
  unsigned long long total, free_or_used, used_or_free;
};

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  union {
    double floating;
    unsigned number;
    unsigned long long large;
  } value;
};
static_assert(sizeof(Process) == 24 && sizeof(FieldValue) == 40);

/// F(member, name, parameters...)
#define P2PD_NVML_FUNCTIONS(F)                                                          \
  F(init, "nvmlInit_v2")                                                                \
  F(shutdown, "nvmlShutdown")                                                           \
  F(count, "nvmlDeviceGetCount_v2", unsigned*)                                          \
  F(device, "nvmlDeviceGetHandleByIndex_v2", unsigned, Device*)                         \
  F(pci, "nvmlDeviceGetPciInfo_v3", Device, PciInfo*)                                   \
  F(uuid, "nvmlDeviceGetUUID", Device, char*, unsigned)                                 \
  F(mig, "nvmlDeviceGetMigMode", Device, unsigned*, unsigned*)                          \
  F(processes, "nvmlDeviceGetComputeRunningProcesses_v3", Device, unsigned*, Process*)  \
  F(temperature, "nvmlDeviceGetTemperature", Device, unsigned, unsigned*)               \
  F(replays, "nvmlDeviceGetPcieReplayCounter", Device, unsigned*)                       \
  F(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", Device, unsigned long long*) \
  F(link_state, "nvmlDeviceGetNvLinkState", Device, unsigned, unsigned*)                \
  F(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", Device, unsigned, PciInfo*)     \
  F(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", Device, unsigned, unsigned*)      \
  F(fields, "nvmlDeviceGetFieldValues", Device, int, FieldValue*)                       \
  F(persistence, "nvmlDeviceGetPersistenceMode", Device, unsigned*)                     \
  F(bar1, "nvmlDeviceGetBAR1MemoryInfo", Device, MemoryInfo*)                           \
  F(vram, "nvmlDeviceGetMemoryInfo", Device, MemoryInfo*)                               \
  F(generation, "nvmlDeviceGetCurrPcieLinkGeneration", Device, unsigned*)               \
  F(generation_most, "nvmlDeviceGetMaxPcieLinkGeneration", Device, unsigned*)           \
  F(width, "nvmlDeviceGetCurrPcieLinkWidth", Device, unsigned*)                         \
  F(width_most, "nvmlDeviceGetMaxPcieLinkWidth", Device, unsigned*)                     \
  F(p2p_status, "nvmlDeviceGetP2PStatus", Device, Device, unsigned, unsigned*)          \
  F(topology, "nvmlDeviceGetTopologyCommonAncestor", Device, Device, unsigned*)

struct Functions {
#define F(member, name, ...) int (*member)(__VA_ARGS__) = nullptr;
  P2PD_NVML_FUNCTIONS(F)
#undef F
};

Functions load(const Find& find) {
  Functions nvml;
#define F(member, name, ...) nvml.member = reinterpret_cast<int (*)(__VA_ARGS__)>(find(name));
  P2PD_NVML_FUNCTIONS(F)
#undef F
  return nvml;
}

/// Loads the library; empty if it does not exist.
Find open_library() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return [library](const char* name) { return ::dlsym(library, name); };
}

/// False if the library lacks the function or the function fails.
template <class... Parameters, class... Arguments>
bool ask(int (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

/// The library's GPUs; nothing if it does not count them.
std::optional<std::vector<Device>> devices_of(const Functions& nvml) {
  unsigned count = 0;
  if (!ask(nvml.count, &count) || count > kMostGpus) return std::nullopt;
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i)
    if (Device device = nullptr; ask(nvml.device, i, &device)) devices.push_back(device);
  return devices;
}

std::string address_of(const Functions& nvml, Device device) {
  PciInfo pci{};
  return ask(nvml.pci, device, &pci) ? pci_address(pci.address) : "";
}

/// True if a process is certainly another one. Containers see numbers that are 0 or of another namespace, also their
/// own; and a process that just ended keeps its contexts for a while.
bool is_others(const Process& process) {
  constexpr unsigned kExiting = 4;  // PF_EXITING
  std::ifstream file(fmt::format("/proc/{}/stat", process.pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // "4711 (a name) S 1 ..."
  if (name_end == std::string::npos) return false;
  pid_t parent = 0;
  unsigned flags = 0;
  if (std::sscanf(text.c_str() + name_end, ") %*c %d %*d %*d %*d %*d %u", &parent, &flags) != 2) return false;
  const auto pid = static_cast<pid_t>(process.pid);
  return pid != ::getpid() && pid != ::getppid() && parent != ::getpid() && (flags & kExiting) == 0;
}

int count_processes(const Functions& nvml, Device device) {
  std::array<Process, 256> processes{};
  auto count = static_cast<unsigned>(processes.size());
  if (!ask(nvml.processes, device, &count, processes.data())) return 0;
  return static_cast<int>(std::count_if(processes.begin(), processes.begin() + count, is_others));
}

double link_gb_s(const Functions& nvml, Device device, unsigned link) {
  for (const unsigned field : {kSpeedOfLink, kCommonSpeed}) {
    FieldValue speed{};
    speed.field = field;
    speed.scope = link;
    if (ask(nvml.fields, device, 1, &speed) && speed.result == kSuccess) return speed.value.number / 1e3;
  }
  return 0;
}

void read_links(const Functions& nvml, Device device, NvmlGpu& gpu) {
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned state = 0;
    unsigned type = 0;
    if (!ask(nvml.link_state, device, link, &state)) break;  // no more links
    if (state != kEnabled || !ask(nvml.link_type, device, link, &type)) continue;
    const double rate = link_gb_s(nvml, device, link);
    PciInfo remote{};
    if (type == kRemoteSwitch) gpu.switch_gb_s += rate;
    if (type != kRemoteGpu || !ask(nvml.link_remote, device, link, &remote)) continue;
    const std::string address = pci_address(remote.address);
    const auto known = std::ranges::find(gpu.peers_gb_s, address, &std::pair<std::string, double>::first);
    if (known != gpu.peers_gb_s.end())
      known->second += rate;
    else
      gpu.peers_gb_s.emplace_back(address, rate);
  }
}

NvmlGpu read_gpu(const Functions& nvml, Device device) {
  NvmlGpu gpu;
  gpu.address = address_of(nvml, device);
  std::array<char, 96> uuid{};
  if (ask(nvml.uuid, device, uuid.data(), static_cast<unsigned>(uuid.size()))) gpu.uuid = uuid.data();
  unsigned now = 0;
  unsigned later = 0;
  gpu.mig = ask(nvml.mig, device, &now, &later) && now == kEnabled;
  gpu.processes = count_processes(nvml, device);
  constexpr unsigned kOfGpu = 0;  // NVML_TEMPERATURE_GPU
  if (ask(nvml.temperature, device, kOfGpu, &now)) gpu.temperature_c = now;
  if (ask(nvml.replays, device, &now)) gpu.replays = now;
  if (unsigned long long reasons = 0; ask(nvml.throttle, device, &reasons)) gpu.throttle = reasons;
  read_links(nvml, device, gpu);
  return gpu;
}

/// Takes the links to a GPU away that the driver refuses for P2P: with RMForceP2PType=1 of 575 and later, or with a
/// build that prefers BAR1, data goes over PCIe although the links are trained.
void refuse_links(const Functions& nvml, const std::vector<Device>& devices, std::vector<NvmlGpu>& gpus) {
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = 0; j < gpus.size(); ++j) {
      unsigned status = kSuccess;
      if (i == j || !ask(nvml.p2p_status, devices[i], devices[j], kNvlink, &status) || status == kSuccess) continue;
      const auto to = [&](const auto& link) { return link.first == gpus[j].address; };
      if (std::erase_if(gpus[i].peers_gb_s, to) > 0) gpus[i].unused.push_back(gpus[j].address);
    }
}

json number(int (*function)(Device, unsigned*), Device device) {
  unsigned value = 0;
  return ask(function, device, &value) ? json(value) : json(nullptr);
}

json total(int (*function)(Device, MemoryInfo*), Device device) {
  MemoryInfo memory{};
  return ask(function, device, &memory) ? json(memory.total) : json(nullptr);
}

json facts_of(const Functions& nvml, Device device) {
  const std::string address = address_of(nvml, device);
  unsigned persistence = 0;
  return {{"address", address.empty() ? json(nullptr) : json(address)},
          {"persistence", ask(nvml.persistence, device, &persistence) ? json(persistence != 0) : json(nullptr)},
          {"bar1_bytes", total(nvml.bar1, device)},
          {"vram_bytes", total(nvml.vram, device)},
          {"generation", number(nvml.generation, device)},
          {"generation_most", number(nvml.generation_most, device)},
          {"width", number(nvml.width, device)},
          {"width_most", number(nvml.width_most, device)}};
}

/// The driver's answers about a pair, without its addresses.
json answers_about(const Functions& nvml, Device from, Device to) {
  const auto status = [&](unsigned capability) {
    unsigned value = 0;
    if (!ask(nvml.p2p_status, from, to, capability, &value)) return json(nullptr);
    return json(value < kStatuses.size() ? kStatuses[value] : "U");
  };
  unsigned level = 0;
  const bool told = ask(nvml.topology, from, to, &level) && level % 10 == 0 && level / 10 < kLevels.size();
  return {{"read", status(kRead)},
          {"write", status(kWrite)},
          {"nvlink", status(kNvlink)},
          {"atomics", status(kAtomics)},
          {"topology", told ? json(kLevels[level / 10]) : json(nullptr)}};
}

}  // namespace

std::string pci_address(std::string_view nvml) {
  constexpr std::size_t kLength = 12;  // "0000:01:00.0"
  std::string address = lower(std::string(nvml));
  while (address.size() > kLength && address.front() == '0') address.erase(0, 1);
  return address;
}

Nvml read_nvml(const Find& find) {
  const Functions nvml = load(find);
  if (!ask(nvml.init)) return {{}, std::string(kNoStart)};
  Nvml found;
  const auto devices = devices_of(nvml);
  if (!devices) found.not_available = kNoCount;
  for (const Device device : devices.value_or(std::vector<Device>())) found.gpus.push_back(read_gpu(nvml, device));
  if (devices) refuse_links(nvml, *devices, found.gpus);
  ask(nvml.shutdown);
  return found;
}

Nvml read_nvml() {
  const Find find = open_library();
  return find ? read_nvml(find) : Nvml{{}, std::string(kNoLibrary)};
}

json driver_peers(const Find& find) {
  json found = {{"schema", "p2pd.driver-peers/1"}, {"gpus", json::array()}, {"pairs", json::array()}};
  if (!find) {
    found["not_available"] = kNoLibrary;
    return found;
  }
  const Functions nvml = load(find);
  if (const int error = nvml.init != nullptr ? nvml.init() : kNoFunction; error != kSuccess) {
    const auto words = reinterpret_cast<const char* (*)(int)>(find("nvmlErrorString"));
    const char* why = words != nullptr ? words(error) : nullptr;
    found["not_available"] = std::string(kNoStart) + (why != nullptr ? std::string(": ") + why : "");
    return found;
  }
  const auto devices = devices_of(nvml);
  if (!devices) found["not_available"] = kNoCount;
  json& gpus = found["gpus"];
  for (const Device device : devices.value_or(std::vector<Device>())) gpus.push_back(facts_of(nvml, device));
  for (std::size_t from = 0; from < gpus.size(); ++from)
    for (std::size_t to = 0; to < gpus.size(); ++to) {
      if (from == to) continue;
      json& pair = found["pairs"].emplace_back(answers_about(nvml, (*devices)[from], (*devices)[to]));
      pair["from"] = gpus[from]["address"];
      pair["to"] = gpus[to]["address"];
    }
  ask(nvml.shutdown);
  return found;
}

json driver_peers() { return driver_peers(open_library()); }

}  // namespace p2pd::bench
