// SPDX-License-Identifier: MIT
// Soak: faults of links, power and cooling show only after minutes of load. Rounds of all copies, stores, loads and
// all-reduces, all verified; between rounds a sample of links, error counters and temperatures. Reference: the kernel's
// Documentation/ABI/testing/sysfs-bus-pci (current_link_speed) and sysfs-bus-pci-devices-aer_stats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>

#include "machine/hardware/pci.hpp"
#include "probes/bench/device/nvml.hpp"
#include "probes/bench/measure/peer_process.hpp"

namespace p2pd::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// First number of a file; 0: unreadable, or "Unknown".
double number_in(const Host& host, const std::string& file) {
  const auto text = host.files().read(file);
  return text ? std::strtod(text->c_str(), nullptr) : 0;
}

/// Errors that the kernel counted at the GPUs and at the ports between them.
std::map<std::string, std::uint64_t> errors_of(const Host& host, const Bench& bench) {
  std::set<std::string> functions;
  for (const Gpu& gpu : bench.found.gpus) functions.insert(gpu.address);
  for (const auto& row : bench.paths)
    for (const Path& path : row)
      for (const Link& link : path.links) functions.insert(link.address);
  std::map<std::string, std::uint64_t> errors;
  for (const std::string& address : functions) {
    for (const std::string_view severity : kAerSeverities) {
      const auto counts = aer_counts(host, address, severity);
      if (!counts) continue;
      for (const auto& [name, count] : *counts)
        if (name.starts_with("TOTAL_ERR_")) errors[fmt::format("{} {}", address, severity)] = count;
    }
  }
  return errors;
}

SoakGpu readings_of(const Host& host, const Gpu& gpu, const Nvml& nvml) {
  SoakGpu now;
  now.link_gt_s = number_in(host, sysfs_path(gpu.address, "current_link_speed"));
  now.link_width = static_cast<std::uint64_t>(number_in(host, sysfs_path(gpu.address, "current_link_width")));
  const auto known = std::ranges::find(nvml.gpus, gpu.address, &NvmlGpu::address);
  if (known == nvml.gpus.end()) return now;
  now.temperature_c = known->temperature_c;
  now.replays = known->replays;
  now.throttle = known->throttle;
  return now;
}

/// True if the function answers reads of its configuration space.
bool answers(const Host& host, const Gpu& gpu) {
  const auto config = host.files().read(sysfs_path(gpu.address, "config"));
  return config && config->size() >= 4 && config->substr(0, 4) != "\xff\xff\xff\xff";
}

/// One soak under way.
class Soaking {
 public:
  Soaking(Bench& bench, PeerProcess& other, const Host& host) : bench_(bench), other_(other), host_(host) {
    bench_.found.soak.emplace().minutes = bench_.asked.soak_minutes;
    for (const Gpu& gpu : bench_.found.gpus) answered_.push_back(answers(host_, gpu));
  }

  Result<void> run() {
    const milliseconds length(static_cast<long>(bench_.asked.soak_minutes * 60'000));
    const milliseconds pause = std::clamp(length / 1000, milliseconds(1000), milliseconds(60'000));
    sample(read_nvml());
    Clock::time_point due = start_ + pause;
    for (bool going = true; going;) {
      std::future<Nvml> reading;  // NVML is slow: the GPUs work meanwhile
      if (Clock::now() >= due) reading = std::async(std::launch::async, [] { return read_nvml(); });
      Result<void> done = round();
      ++rounds_;
      const bool read = reading.valid();
      const Nvml readings = read ? reading.get() : Nvml{};
      if (!done) return gone(std::move(done).error());
      going = bench_.found.wrong.empty() && Clock::now() - start_ < length;
      if (read || !going) sample(read ? readings : read_nvml());
      if (read) due = Clock::now() + pause;
    }
    return {};
  }

 private:
  /// Everything once, over all pairs.
  Result<void> round() {
    TRY_IN("bytes", prove_bytes(bench_, rounds_of(bench_.found)));
    if (bench_.found.wrong.empty()) TRY_IN("speed", measure_speed(bench_));
    if (bench_.found.wrong.empty()) TRY_IN("all-reduce", other_.prove_all_reduce(bench_));
    for (Wrong& wrong : bench_.found.wrong)
      wrong.detail += fmt::format("{}after {:.1f} s of soak", wrong.detail.empty() ? "" : "; ", elapsed_s());
    if (bench_.found.wrong.empty()) bench_.keys.forget();
    return {};
  }

  void sample(const Nvml& nvml) {
    SoakSample now;
    now.seconds = elapsed_s();
    now.rounds = rounds_;
    now.slowest_gb_s = 1e9;
    for (const Pair& pair : bench_.found.pairs) {
      for (const auto& [test, bytes] : pair.verified_bytes) now.checked_bytes += bytes;
      if (pair.copy_gb_s) now.slowest_gb_s = std::min(now.slowest_gb_s, pair.copy_gb_s->median);
    }
    if (now.slowest_gb_s == 1e9) now.slowest_gb_s = 0;
    for (const Wrong& wrong : bench_.found.wrong)
      now.wrong += is_end(wrong.kind) ? 0 : std::max<std::uint64_t>(wrong.words, 1);
    now.aer = errors_of(host_, bench_);
    for (const Gpu& gpu : bench_.found.gpus) now.gpus.push_back(readings_of(host_, gpu, nvml));
    bench_.found.soak->samples = {std::move(now)};
    bench_.phases.begin_part("");
  }

  /// The error, with the GPUs that no longer answer: the kernel may take a moment to notice.
  Result<void> gone(Error error) {
    std::vector<std::string> names;
    for (int look = 0; look < 10 && names.empty(); ++look) {
      if (look > 0) std::this_thread::sleep_for(milliseconds(100));
      for (const Gpu& gpu : bench_.found.gpus)
        if (answered_[static_cast<std::size_t>(gpu.index)] && !answers(host_, gpu))
          names.push_back(fmt::format("GPU {} ({})", gpu.index, gpu.address));
    }
    error.message += fmt::format("; after {:.1f} s of soak", elapsed_s());
    if (!names.empty()) error.message += fmt::format("; off the PCI bus: {}", fmt::join(names, ", "));
    return Failure(std::move(error));
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Bench& bench_;
  PeerProcess& other_;
  const Host& host_;
  const Clock::time_point start_ = Clock::now();
  std::vector<bool> answered_;  ///< by GPU: at the start
  std::uint64_t rounds_ = 0;
};

}  // namespace

Result<void> soak(Bench& bench, PeerProcess& other, const Host& host) {
  bench.phases.begin(kSoak);
  return Soaking(bench, other, host).run();
}

}  // namespace p2pd::bench
