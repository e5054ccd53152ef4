// SPDX-License-Identifier: MIT
// Functions of NVML that are used, declared here as in nvml.h: no toolkit is needed to build.
#include "probes/bench/device/nvml.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <fstream>

#include "probes/bench/device/nvml_library.hpp"

namespace p2pd::bench {
namespace {

using namespace nvml;

constexpr unsigned kEnabled = 1;
constexpr unsigned kMostLinks = 36;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kRemoteGpu = 0;   // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr unsigned kRemoteSwitch = 2;
constexpr unsigned kNvlinkP2p = 2;      // NVML_P2P_CAPS_INDEX_NVLINK; the status 0 is OK
constexpr unsigned kSpeedOfLink = 164;  // NVML_FI_DEV_NVLINK_GET_SPEED: 10^6 bytes per second; `scope` is the link
constexpr unsigned kCommonSpeed = 90;   // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: older cards and drivers

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
  F(display, "nvmlDeviceGetDisplayActive", Device, unsigned*)                           \
  F(processes, "nvmlDeviceGetComputeRunningProcesses_v3", Device, unsigned*, Process*)  \
  F(temperature, "nvmlDeviceGetTemperature", Device, unsigned, unsigned*)               \
  F(replays, "nvmlDeviceGetPcieReplayCounter", Device, unsigned*)                       \
  F(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", Device, unsigned long long*) \
  F(link_state, "nvmlDeviceGetNvLinkState", Device, unsigned, unsigned*)                \
  F(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", Device, unsigned, PciInfo*)     \
  F(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", Device, unsigned, unsigned*)      \
  F(fields, "nvmlDeviceGetFieldValues", Device, int, FieldValue*)                       \
  F(p2p_status, "nvmlDeviceGetP2PStatus", Device, Device, unsigned, unsigned*)

struct Functions {
#define F(member, name, ...) int (*member)(__VA_ARGS__) = nullptr;
  P2PD_NVML_FUNCTIONS(F)
#undef F
};

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
  PciInfo pci{};
  if (ask(nvml.pci, device, &pci)) gpu.address = pci_address(pci.address);
  std::array<char, 96> uuid{};
  if (ask(nvml.uuid, device, uuid.data(), static_cast<unsigned>(uuid.size()))) gpu.uuid = uuid.data();
  unsigned now = 0;
  unsigned later = 0;
  gpu.mig = ask(nvml.mig, device, &now, &later) && now == kEnabled;
  gpu.display_active = ask(nvml.display, device, &now) && now == kEnabled;
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
      if (i == j || !ask(nvml.p2p_status, devices[i], devices[j], kNvlinkP2p, &status) || status == kSuccess) continue;
      const auto to = [&](const auto& link) { return link.first == gpus[j].address; };
      if (std::erase_if(gpus[i].peers_gb_s, to) > 0) gpus[i].unused.push_back(gpus[j].address);
    }
}

}  // namespace

std::string pci_address(std::string_view nvml) {
  constexpr std::size_t kLength = 12;  // "0000:01:00.0"
  std::string address(nvml);
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  while (address.size() > kLength && address.front() == '0') address.erase(0, 1);
  return address;
}

Nvml read_nvml(const std::function<void*(const char* name)>& find) {
  Functions nvml;
#define F(member, name, ...) nvml.member = reinterpret_cast<int (*)(__VA_ARGS__)>(find(name));
  P2PD_NVML_FUNCTIONS(F)
#undef F
  Nvml found;
  if (!ask(nvml.init)) {
    found.not_available = "NVML does not start";
    return found;
  }
  unsigned count = 0;
  if (!ask(nvml.count, &count)) found.not_available = "NVML does not count the GPUs";
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (!ask(nvml.device, i, &device)) continue;
    devices.push_back(device);
    found.gpus.push_back(read_gpu(nvml, device));
  }
  refuse_links(nvml, devices, found.gpus);
  ask(nvml.shutdown);
  return found;
}

Nvml read_nvml() {
  const Find find = open_library();
  return find ? read_nvml(find) : Nvml{{}, std::string(kNoLibrary)};
}

}  // namespace p2pd::bench
