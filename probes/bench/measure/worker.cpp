// SPDX-License-Identifier: MIT
// One run, in one process: all parts in order, with their results in one Measurement.
#include "probes/bench/measure/worker.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <iterator>

#include "machine/hardware/peer_groups.hpp"
#include "probes/bench/device/nvml.hpp"
#include "probes/bench/measure/peer_process.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

Result<Gpu> describe(const Driver& driver, int ordinal, int* compute_mode) {
  Gpu gpu;
  gpu.index = ordinal;
  CUdevice device = 0;
  CU(driver, cuDeviceGet(&device, ordinal));
  char text[256] = {};
  CU(driver, cuDeviceGetName(text, sizeof(text), device));
  gpu.name = text;
  CU(driver, cuDeviceGetPCIBusId(text, sizeof(text), device));
  gpu.address = pci_address(text);
  CUuuid uuid{};
  CU(driver, cuDeviceGetUuid(&uuid, device));
  gpu.uuid = uuid_text(uuid);
  CU(driver, cuDeviceGetAttribute(&gpu.sm_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CU(driver, cuDeviceGetAttribute(&gpu.sm_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  CU(driver, cuDeviceGetAttribute(&gpu.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  CU(driver, cuDeviceGetAttribute(compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  return gpu;
}

/// Ordered pairs to measure, with the driver's claims: both ways of each two GPUs of a group, and of two that the
/// driver calls peers, although they are of two groups.
Result<std::vector<Pair>> describe_pairs(const Driver& driver, const Measurement& found) {
  std::vector<Pair> pairs;
  const int count = static_cast<int>(found.gpus.size());
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      CUdevice a = 0;
      CUdevice b = 0;
      CU(driver, cuDeviceGet(&a, from));
      CU(driver, cuDeviceGet(&b, to));
      Pair pair;
      pair.from = from;
      pair.to = to;
      int can = 0;
      CU(driver, cuDeviceCanAccessPeer(&can, a, b));
      pair.access = can != 0;
      if (!may_be_peers(found, from, to)) {
        int back = 0;
        CU(driver, cuDeviceCanAccessPeer(&back, b, a));
        if (can == 0 || back == 0) continue;
      }
      CU(driver, cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b));
      pair.native_atomics = can != 0;
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

/// Adds facts from NVML: other processes that compute, NVLinks, MIG.
void add_nvml(const Nvml& nvml, Measurement& found) {
  for (Gpu& gpu : found.gpus) {
    const auto known = std::ranges::find(nvml.gpus, gpu.address, &NvmlGpu::address);
    if (known == nvml.gpus.end()) continue;
    gpu.in_use = known->processes > 0;
    gpu.nvlink_gb_s = known->switch_gb_s;
    for (const auto& [address, rate] : known->peers_gb_s)
      for (Pair& pair : found.pairs)
        if (pair.from == gpu.index && found.gpus[static_cast<std::size_t>(pair.to)].address == address)
          pair.nvlink_gb_s = rate;
    for (const std::string& address : known->unused)
      found.not_run["NVLink"] =
          fmt::format("{} and {} have trained links, and the driver refuses P2P over them", gpu.address, address);
  }
  for (Pair& pair : found.pairs) {
    const double through_switch = std::min(found.gpus[static_cast<std::size_t>(pair.from)].nvlink_gb_s,
                                           found.gpus[static_cast<std::size_t>(pair.to)].nvlink_gb_s);
    pair.nvlink_gb_s = std::max(pair.nvlink_gb_s, through_switch);
  }
}

/// Reason why nothing can be proven here, as a sentence; empty: it can be tried.
std::string not_applicable(const Measurement& found, const std::vector<int>& compute_modes, const Nvml& nvml) {
  if (found.gpus.empty()) return "there is no GPU";
  if (found.gpus.size() == 1) return "there is one GPU: P2P is between two, so there is nothing to prove";
  if (found.gpus.size() > 16) return fmt::format("there are {} GPUs; p2p-bench knows 2 to 16", found.gpus.size());
  for (std::size_t i = 0; i < found.gpus.size(); ++i) {
    if (compute_modes[i] == CU_COMPUTEMODE_PROHIBITED)
      return fmt::format("GPU {} is in compute mode \"prohibited\"", i);
    if (compute_modes[i] == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && found.gpus[i].in_use)
      return fmt::format("GPU {} is in compute mode \"exclusive process\" and in use", i);
    const auto mig = [&](const NvmlGpu& g) { return g.address == found.gpus[i].address && g.mig; };
    if (std::ranges::any_of(nvml.gpus, mig))
      return fmt::format(
          "GPU {} is in MIG mode, which has no P2P{}", i,
          found.gpus.size() < 3
              ? ""
              : fmt::format(": leave it out (--exclude {0}, \"gpus: {{exclude: [{0}]}}\")", found.gpus[i].address));
  }
  return "";
}

/// Opens all GPUs at the same time, a thread each: most of it is waiting for the driver.
Result<void> open_all(std::vector<OpenGpu>& gpus, u64 most_half) {
  Kernels kernels;
  std::vector<std::future<Result<void>>> opening;
  for (OpenGpu& gpu : gpus)
    opening.push_back(std::async(std::launch::async, [&] { return gpu.open(kernels, most_half); }));
  Result<void> all;
  for (std::size_t i = 0; i < opening.size(); ++i) {
    Result<void> one = opening[i].get();
    if (!one && all) all = Failure(std::move(one).error().in(fmt::format("GPU {}", i)));
  }
  return all;
}

/// Paths, as far as known; a pair with NVLink has none over PCIe.
std::vector<std::vector<Path>> paths_of(const Host& host, const Measurement& found) {
  std::vector<std::string> addresses;
  for (const Gpu& gpu : found.gpus) addresses.push_back(gpu.address);
  const std::vector<std::vector<Path>> unknown(addresses.size(), std::vector<Path>(addresses.size()));
  std::vector<std::vector<Path>> paths = paths_between(host, addresses).value_or(unknown);
  for (const Pair& pair : found.pairs)
    if (const double rate = nvlink_gb_s(found, pair); rate > 0)
      paths[static_cast<std::size_t>(pair.from)][static_cast<std::size_t>(pair.to)] = nvlink_path(rate);
  return paths;
}

std::uint64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Error that ended the run, as a Wrong.
Wrong fault_of(const Bench& bench, const Error& error) {
  const UnderWay known = bench.under_way.value_or(UnderWay{bench.found.phases.back().name, -1, -1});
  return wrong_of(known.test, known.from, known.to, 0, WrongKind::faulted, error.message);
}

/// Runs the parts of the proof that are asked for. `other`: the second process of a full proof.
Result<void> run_all(Bench& bench, std::optional<PeerProcess>& other, const Host& host) {
  const Asked& asked = bench.asked;
  const auto run = [&](std::string_view phase, auto part) -> Result<void> {
    bench.phases.begin(phase);
    TRY_IN(phase, part(bench));
    return {};
  };
  TRY(canaries(bench, true));
  if (asked.soak_minutes > 0) {
    TRY(enable_peers(bench));
    TRY(soak(bench, *other, host));
    other->leave();
    return canaries(bench, false);
  }
  if (!asked.quick && asked.wants("staged")) TRY(run("copies through the host", staged));
  TRY(run("enabling peers", enable_peers));
  TRY(run("bytes", [](Bench& b) { return prove_bytes(b, rounds_of(b.found)); }));
  TRY(run("handshakes", shake_hands));
  if (!asked.quick) TRY(run("mappings", prove_mappings));
  if (asked.full) TRY(run("IPC", [&](Bench& b) { return other->prove_ipc(b); }));
  TRY(run("speed", measure_speed));  // only now: until here the second process was opening its contexts
  if (asked.sweep) TRY(run("sweep", sweep_memory));
  if (asked.full && asked.wants(kHostMemory))
    TRY(run("host memory", [&](Bench& b) { return prove_host_memory(b, host); }));
  TRY(canaries(bench, false));
  if (!other) {
    if (asked.tests.empty()) bench.found.not_run["IPC, all-reduce and atomics"] = "they take a second process: --full";
    return {};
  }
  bench.found.expendable_process = other->process();
  // late, like the tests below: it may kill the second process
  if (asked.wants(kGraphReduce)) TRY(run("all-reduce", [&](Bench& b) { return other->prove_all_reduce(b); }));
  if (asked.wants("atomics")) TRY(run("atomics", [&](Bench& b) { return other->contend(b); }));
  TRY(other->prove_memory(bench));  // last: it may take the machine down
  other->leave();
  return {};
}

/// The bus, with the peer groups of its GPUs; empty if there are too few GPUs for two groups, and where there is no
/// bus. Virtual configuration space is slow to read.
std::vector<PciDevice> divided_gpus(const Host& host) {
  constexpr std::size_t kFewest = 3;
  if (host.live() && host.names("/proc/driver/nvidia/gpus").size() < kFewest) return std::vector<PciDevice>();
  return pci_devices(host).value_or(std::vector<PciDevice>());
}

/// Hides the GPUs at the addresses `without` from CUDA, here and in the second process. CUDA accepts a list by UUID
/// only.
Result<void> leave_out(const std::vector<std::string>& without, const Nvml& nvml) {
  if (without.empty()) return {};
  if (nvml.gpus.empty())
    return fail(ErrorCode::not_found, "no GPU can be left out: NVML names none" +
                                          (nvml.not_available.empty() ? "" : ": " + nvml.not_available));
  std::string shown;
  for (const NvmlGpu& gpu : nvml.gpus)
    if (std::ranges::count(nvml.gpus, gpu.uuid, &NvmlGpu::uuid) > 1)
      return fail(ErrorCode::invalid,
                  fmt::format("no GPU can be left out: the driver gives two GPUs the UUID {}", gpu.uuid));
  for (const NvmlGpu& gpu : nvml.gpus)
    if (std::ranges::find(without, gpu.address) == without.end()) shown += (shown.empty() ? "" : ",") + gpu.uuid;
  ::setenv("CUDA_VISIBLE_DEVICES", shown.c_str(), 1);
  return {};
}

}  // namespace

Result<Measurement> measure(const Host& host, const Asked& asked, const Progress& progress) {
  Measurement found;
  found.mode = asked.soak_minutes > 0 ? kSoak : asked.quick ? "quick" : asked.full ? "full" : "default";
  found.fault = asked.fault;
  found.tests = asked.tests;
  for (const NamedTest& test : kNamedTests)
    if (!asked.wants(test.name)) found.not_run[std::string(test.name)] = "not requested";
  Phases phases(found.phases,
                [&](std::string_view phase, std::string_view transfer) { progress(phase, transfer, found); });
  const std::vector<PciDevice> devices = divided_gpus(host);
  std::vector<std::string> without = asked.without;
  for (const PciDevice& gpu : devices)
    if (is_alone(gpu)) without.push_back(gpu.address);
  std::optional<Nvml> early;  // read before CUDA, for the list of visible GPUs
  if (!without.empty())
    if (Result<void> hidden = leave_out(without, early.emplace(read_nvml())); !hidden && !asked.without.empty())
      return Failure(std::move(hidden).error());  // others have no pairs, seen or not
  std::optional<PeerProcess> other;
  if (asked.full) other.emplace(TRY(PeerProcess::start()));  // before any thread, and before CUDA
  auto reading_nvml =
      std::async(std::launch::async, [&] { return early ? *early : read_nvml(); });  // while CUDA starts
  u64 nonce = 0;
  if (::getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) return fail_errno("cannot draw a nonce");
  Keys keys(nonce);
  found.seed = fmt::format("{:016x}", keys.nonce());

  phases.begin("driver");
  const Driver driver = TRY(Driver::load());
  found.driver = driver.version();
  int count = 0;
  CU(driver, cuDeviceGetCount(&count));
  std::vector<OpenGpu> gpus;
  std::vector<int> compute_modes;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    gpus.emplace_back(driver, ordinal);
    Gpu& gpu = found.gpus.emplace_back(TRY(describe(driver, ordinal, &compute_modes.emplace_back())));
    if (const auto known = std::ranges::find(devices, gpu.address, &PciDevice::address); known != devices.end())
      gpu.group = is_alone(*known) ? std::string(kAlone) + known->address : known->group;
  }
  std::vector<Pair> across = TRY(describe_pairs(driver, found));
  const auto within = [&](const Pair& pair) { return may_be_peers(found, pair.from, pair.to); };
  std::ranges::copy_if(across, std::back_inserter(found.pairs), within);
  std::erase_if(across, within);

  const Nvml nvml = reading_nvml.get();
  phases.begin("GPUs");
  add_nvml(nvml, found);
  if (const std::string why = not_applicable(found, compute_modes, nvml); !why.empty()) {
    found.not_run[kEverything] = why;
    phases.end();
    return found;
  }
  found.not_run.merge(untested_memory(asked));
  auto finding_paths = std::async(std::launch::async, [&] { return paths_of(host, found); });
  Result<void> opened = open_all(gpus, static_cast<u64>(asked.buffer_mib) << 20);
  const std::vector<std::vector<Path>> paths = finding_paths.get();
  TRY(std::move(opened));
  if (other) other->go();
  for (Gpu& gpu : found.gpus) {
    const OpenGpu& open = gpus[static_cast<std::size_t>(gpu.index)];
    gpu.memory_bytes = open.total_bytes();
    gpu.free_bytes = open.free_bytes();
    gpu.arena_bytes = open.arena_bytes();
  }

  Bench bench{driver, gpus, found, keys, asked, paths, phases};
  Result<void> done = run_all(bench, other, host);
  if (done && !across.empty() && asked.soak_minutes == 0) {
    phases.begin("across groups");
    done = prove_across(bench, std::move(across));
  }
  // an error of the driver does not invalidate the results
  if (!done && !(bench.enabled && (driver.faulted() || !found.wrong.empty() || asked.soak_minutes > 0)))
    return Failure(done.error());
  if (!done) found.wrong.push_back(fault_of(bench, done.error()));
  phases.end();
  found.host_peak_bytes = peak_bytes();
  found.wall_ms = phases.elapsed_ms();
  return found;
}

}  // namespace p2pd::bench
