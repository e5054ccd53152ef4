// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/host_machine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/sim/host/gates.hpp"

namespace p2pd::sim {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int kDriverVersion = 12080;  // CUDA 12.8, of the 570 drivers
constexpr int kFreeMib = 80;           // minimum for p2p-bench, since it is memory of the host
constexpr double kShare = 0.88;        // of what packet headers leave, as good boards reach it
constexpr double kLatencyNs = 1200;

json device_of(const HostGpu& gpu) {
  std::string uuid = gpu.uuid.substr(gpu.uuid.find('-'));
  std::erase(uuid, '-');
  return {{"name", gpu.name},
          {"uuid", uuid},
          {"address", gpu.function.address()},
          {"memory_mib", gpu.board->vram_mib},
          {"free_mib", kFreeMib},
          {"sm", {gpu.board->major, gpu.board->minor}},
          {"multiprocessors", gpu.board->multiprocessors}};
}

/// Every row in both directions.
void add_pair(json& machine, const GpuHost& host, const Gates& gates, std::size_t one, std::size_t other) {
  const double gb_s = kShare * path_between(host.gpus[one].function, host.gpus[other].function).payload_gb_s();
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    machine["links"].push_back({{"from", from},
                                {"to", to},
                                {"gb_s", gb_s},
                                {"staged_gb_s", 0.6 * gb_s},
                                {"both_gb_s", 1.9 * gb_s},
                                {"load_gb_s", 0.9 * gb_s},
                                {"store_gb_s", 0.95 * gb_s}});
    for (const PairGate& gate : gates.pair)
      if (!gate.open(host, host.gpus[one], host.gpus[other]))
        machine["faults"].push_back({{"kind", gate.fault}, {"from", from}, {"to", to}});
  }
}

json describe(const GpuHost& host, const Gates& gates) {
  json machine = {{"driver_version", kDriverVersion}, {"kernel_log", (host.root / "dev/kmsg").string()},
                  {"patience", host.quirks.patience}, {"link", {{"gb_s", 10}, {"latency_ns", kLatencyNs}}},
                  {"links", json::array()},           {"devices", json::array()}};
  for (const StartGate& gate : gates.start) {
    if (gate.cu_init == 0 || gate.open(host)) continue;
    machine["init_error"] = gate.cu_init;
    return machine;
  }
  machine["faults"] = host.quirks.faults;
  for (const HostGpu& gpu : host.gpus) machine["devices"].push_back(device_of(gpu));
  for (std::size_t one = 0; one < host.gpus.size(); ++one)
    for (std::size_t other = one + 1; other < host.gpus.size(); ++other) add_pair(machine, host, gates, one, other);
  return machine;
}

/// Writes a file so that it survives the crash.
bool write_durably(const fs::path& file, const std::string& text) {
  const auto flush = [](const fs::path& path, int flags, const std::string& content) {
    const int opened = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    const bool written = opened >= 0 && (content.empty() || ::write(opened, content.data(), content.size()) > 0);
    const bool flushed = written && ::fsync(opened) == 0;
    if (opened >= 0) ::close(opened);
    return flushed;
  };
  const fs::path folder = file.parent_path();
  std::error_code none;
  fs::create_directories(folder, none);
  return flush(file, O_WRONLY | O_CREAT | O_TRUNC, text) && flush(folder, O_RDONLY | O_DIRECTORY, "") &&
         flush(folder.parent_path(), O_RDONLY | O_DIRECTORY, "");
}

/// Crashes the host, unless it did so `times` times; below another root, this process only.
void crash(const fs::path& root, int times) {
  const fs::path counter = root / "var/lib/driver-world/crashes";
  const int before = std::atoi(read_text(counter).value_or("").c_str());
  if (before >= times) return;
  if (write_durably(counter, std::to_string(before + 1) + "\n") && root == "/") {
    const int trigger = ::open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
    if (trigger >= 0 && ::write(trigger, "c", 1) == 1) ::pause();
  }
  std::abort();
}

}  // namespace

std::unique_ptr<Machine> machine_of_host() {
  const Gates gates = Gates::read();
  const GpuHost host = GpuHost::read(true);
  std::unique_ptr<Machine> machine = Machine::from(describe(host, gates));
  // held while the process lives, so that the module cannot be unloaded meanwhile
  if (machine->count() > 0) static_cast<void>(::open((host.root / "dev/nvidiactl").c_str(), O_RDONLY | O_CLOEXEC));
  if (host.quirks.crashes > 0)
    machine->on_peer = [root = host.root, times = host.quirks.crashes] { crash(root, times); };
  return machine;
}

}  // namespace p2pd::sim
