// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>

#include "base/descriptor.hpp"
#include "base/signatures.hpp"
#include "probes/bench/collectives/collectives.hpp"
#include "probes/bench/collectives/nccl.hpp"
#include "probes/bench/device/driver.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {

using namespace cuda;
using namespace nccl;

namespace {

constexpr unsigned kPoison = 0x7fc0dead;  // NaN, so never a sum
constexpr int kWarmUps = 2;               // NCCL connects in the first
constexpr int kTimedRuns = 7;
constexpr double kRepetitionNs = 5e6;  // time that the iterations fill, so that launches and the clock do not count
constexpr double kMostIterations = 50;

/// Debug output of NCCL, in memory: a file that NCCL opens by name.
class DebugLog {
 public:
  DebugLog() : file_(::memfd_create("nccl-debug", MFD_CLOEXEC)) {}
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }
  std::string text() const {
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = ::pread(file_.get(), part, sizeof part, static_cast<off_t>(text.size()))) > 0;)
      text.append(part, static_cast<std::size_t>(got));
    return text;
  }

 private:
  Descriptor file_;
};

/// GPUs as ranks of one communicator, each with a stream and two buffers.
class Team {
 public:
  Team(const Driver& driver, const nccl::Functions& nccl) : driver_(driver), nccl_(nccl) {}

  Result<void> open(int gpus) {
    ranks_.resize(static_cast<std::size_t>(gpus));
    std::vector<ncclComm_t> comms(ranks_.size());
    for (int number = 0; Rank & rank : ranks_) {
      rank.data = rank_data(number);
      CU(driver_, cuDeviceGet(&rank.device, number++));
      CU(driver_, cuDevicePrimaryCtxRetain(&rank.context, rank.device));  // the context that NCCL's CUDA runtime uses
      CU(driver_, cuCtxSetCurrent(rank.context));
      CU(driver_, cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING));
    }
    TRY(check(nccl_.ncclCommInitAll(comms.data(), gpus, nullptr), "ncclCommInitAll"));
    for (std::size_t i = 0; i < comms.size(); ++i) ranks_[i].comm = comms[i];
    return {};
  }

  /// Largest size of each of a rank's two buffers. NCCL takes some of the other half when it connects.
  Result<std::uint64_t> most_bytes() const {
    std::size_t least = ~std::size_t{0};
    for (const Rank& rank : ranks_) {
      std::size_t free = 0, total = 0;
      CU(driver_, cuCtxSetCurrent(rank.context));
      CU(driver_, cuMemGetInfo(&free, &total));
      least = std::min(least, free);
    }
    return std::bit_floor(least / 4);
  }

  /// Allocates the buffers and fills the one that is sent.
  Result<void> take_memory(std::uint64_t bytes) {
    constexpr std::uint64_t kPart = kPeriod * sizeof(float);
    for (Rank& rank : ranks_) {
      CU(driver_, cuCtxSetCurrent(rank.context));
      CU(driver_, cuMemAlloc(&rank.out, bytes));
      CU(driver_, cuMemAlloc(&rank.in, bytes));
      for (std::uint64_t at = 0; at < bytes; at += kPart)
        CU(driver_, cuMemcpyHtoD(rank.out + at, rank.data.data(), std::min(kPart, bytes - at)));
      CU(driver_, cuCtxSynchronize());  // a copy from pageable memory returns before the data has arrived
    }
    return {};
  }

  /// Times `name` over `bytes` per rank, rounded down to equal shares, and counts wrong elements of the timed results.
  Result<Collective> measure(std::string_view name, std::uint64_t bytes) const {
    const std::size_t share = bytes / sizeof(float) / ranks_.size();
    const std::size_t elements = share * ranks_.size();
    Collective result = {.name = std::string(name), .bytes = elements * sizeof(float)};
    for (int i = 0; i < kWarmUps; ++i) TRY(iteration_ns(name, share, 1));
    TRY(poison(elements));
    const double once = TRY(iteration_ns(name, share, 1));
    const int iterations = static_cast<int>(std::clamp(kRepetitionNs / once, 1.0, kMostIterations));
    std::vector<double> times, rates;
    for (int i = 0; i < kTimedRuns; ++i) {
      times.push_back(TRY(iteration_ns(name, share, iterations)));
      rates.push_back(bus_factor(name, static_cast<int>(ranks_.size())) * static_cast<double>(result.bytes) /
                      times.back());  // bytes per nanosecond are GB/s
    }
    result.time_ns = figure(std::move(times));
    result.bus_gb_s = figure(std::move(rates));
    result.wrong = TRY(wrong(name, share));
    return result;
  }

  /// Frees everything. Not called after an error, as NCCL may wait endlessly for a broken communicator: the process
  /// exits.
  void close() {
    for (const Rank& rank : ranks_) {
      driver_->cuCtxSetCurrent(rank.context);
      nccl_.ncclCommDestroy(rank.comm);
      driver_->cuMemFree(rank.out);
      driver_->cuMemFree(rank.in);
      driver_->cuStreamDestroy(rank.stream);
      driver_->cuDevicePrimaryCtxRelease(rank.device);
    }
    ranks_.clear();
  }

 private:
  struct Rank {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr out = 0;
    CUdeviceptr in = 0;
    ncclComm_t comm = nullptr;
    std::vector<float> data;  ///< data that it sends repeatedly
  };

  static void* place(CUdeviceptr buffer, std::size_t element) {
    return reinterpret_cast<void*>(buffer + element * sizeof(float));
  }

  Result<void> check(ncclResult_t result, std::string_view call) const {
    if (result == ncclSuccess) return {};
    return fail(ErrorCode::io, fmt::format("{}: {}", call, nccl_.ncclGetErrorString(result)));
  }

  Result<void> poison(std::size_t elements) const {
    for (const Rank& rank : ranks_) {
      CU(driver_, cuCtxSetCurrent(rank.context));
      CU(driver_, cuMemsetD32Async(rank.in, kPoison, elements, rank.stream));
    }
    return finish();
  }

  Result<void> finish() const {
    for (const Rank& rank : ranks_) {
      CU(driver_, cuCtxSetCurrent(rank.context));
      CU(driver_, cuStreamSynchronize(rank.stream));
    }
    return {};
  }

  Result<void> enqueue(std::string_view name, std::size_t share) const {
    TRY(check(nccl_.ncclGroupStart(), "ncclGroupStart"));
    for (const Rank& rank : ranks_) {
      CU(driver_, cuCtxSetCurrent(rank.context));
      if (name == kAllReduce) {
        TRY(check(nccl_.ncclAllReduce(place(rank.out, 0), place(rank.in, 0), share * ranks_.size(), ncclFloat32,
                                      ncclSum, rank.comm, rank.stream),
                  "ncclAllReduce"));
        continue;
      }
      for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
        const int number = static_cast<int>(peer);
        TRY(check(nccl_.ncclSend(place(rank.out, peer * share), share, ncclFloat32, number, rank.comm, rank.stream),
                  "ncclSend"));
        TRY(check(nccl_.ncclRecv(place(rank.in, peer * share), share, ncclFloat32, number, rank.comm, rank.stream),
                  "ncclRecv"));
      }
    }
    return check(nccl_.ncclGroupEnd(), "ncclGroupEnd");
  }

  Result<double> iteration_ns(std::string_view name, std::size_t share, int iterations) const {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < iterations; ++i) TRY(enqueue(name, share));
    TRY(finish());
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / iterations;
  }

  /// Number of elements of `part` that differ from the repeated `data`, from `start` on.
  Result<std::uint64_t> wrong_part(CUdeviceptr part, std::size_t count, const std::vector<float>& data,
                                   std::size_t start) const {
    std::vector<float> seen(std::min(count, kPeriod));
    std::uint64_t wrong = 0;
    for (std::size_t at = 0; at < count; at += seen.size()) {
      seen.resize(std::min(seen.size(), count - at));
      CU(driver_, cuMemcpyDtoH(seen.data(), part + at * sizeof(float), seen.size() * sizeof(float)));
      wrong += wrong_elements(seen, data, start + at);
    }
    return wrong;
  }

  Result<std::uint64_t> wrong(std::string_view name, std::size_t share) const {
    std::uint64_t wrong = 0;
    std::vector<float> sum(kPeriod);
    for (const Rank& rank : ranks_) std::ranges::transform(sum, rank.data, sum.begin(), std::plus{});
    for (std::size_t to = 0; to < ranks_.size(); ++to) {
      CU(driver_, cuCtxSetCurrent(ranks_[to].context));
      if (name == kAllReduce) {
        wrong += TRY(wrong_part(ranks_[to].in, share * ranks_.size(), sum, 0));
        continue;
      }
      for (std::size_t from = 0; from < ranks_.size(); ++from)
        wrong += TRY(wrong_part(ranks_[to].in + from * share * sizeof(float), share, ranks_[from].data, to * share));
    }
    return wrong;
  }

  const Driver& driver_;
  const nccl::Functions& nccl_;
  std::vector<Rank> ranks_;
};

void set_environment(bool p2p, const DebugLog& log) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
  set("NCCL_P2P_DISABLE", p2p ? "0" : "1");  // set in both cases, as nccl.conf sets missing variables
  set("NCCL_DEBUG", "INFO");
  set("NCCL_DEBUG_SUBSYS", "INIT,P2P,SHM,NET");
  set("NCCL_DEBUG_FILE", log.path());
}

Result<std::vector<Collective>> measure_all(Team& team, bool p2p) {
  const std::uint64_t most = TRY(team.most_bytes());
  std::set<std::uint64_t> sizes;  // ascending; reduced sizes once
  for (const std::uint64_t bytes : kCollectiveBytes) sizes.insert(std::min(bytes, most));
  TRY(team.take_memory(*sizes.rbegin()));
  std::vector<Collective> results;
  for (const std::uint64_t bytes : sizes) results.push_back(TRY(team.measure(kAllReduce, bytes)));
  results.push_back(TRY(team.measure(kAllToAll, *sizes.rbegin())));
  for (Collective& result : results) result.p2p = p2p;
  return results;
}

/// Measures in this process, which must not have loaded NCCL yet: it keeps its settings until it exits. If the library
/// does not load, or with one GPU, sets Collectives::not_run; a later failure is an Error with NCCL's last warning.
Result<Collectives> run_collectives(const std::string& path, bool p2p) {
  const DebugLog log;
  set_environment(p2p, log);
  const auto library = nccl::load(path);
  if (!library) return Collectives{.not_run = library.error().message};
  const Driver driver = TRY(Driver::load());
  int gpus = 0, version = 0;
  CU(driver, cuDeviceGetCount(&gpus));
  if (gpus < 2) return Collectives{.not_run = "NCCL needs two GPUs"};
  library->ncclGetVersion(&version);
  Team team(driver, *library);
  const auto opened = team.open(gpus);
  auto results = opened ? measure_all(team, p2p) : Failure(opened.error());
  if (!results) {
    const std::string warning = nccl_warning(log.text());
    const auto known = program_failure(log.text());  // of NCCL's INFO lines, too
    return fail(results.error().code, results.error().message + (warning.empty() ? "" : ": " + warning) +
                                          (known ? fmt::format(": {}. {}", known->cause, known->fix) : ""));
  }
  team.close();
  const char* level = std::getenv("NCCL_P2P_LEVEL");  // now with the value from nccl.conf
  return Collectives{.version = nccl_version(version),
                     .transports = nccl_transports(log.text()),
                     .pairs = nccl_pairs(log.text()),
                     .p2p_level = plain(level != nullptr ? level : ""),
                     .results = std::move(results).take()};
}

}  // namespace

int collective_worker(std::string_view p2p, const std::string& library) {
  const auto found = run_collectives(library, p2p == "on");
  if (!found) {
    fmt::print(stderr, "{}\n", plain(found.error().message));
    return 1;
  }
  fmt::print("{}\n", json_of(*found).dump());
  return 0;
}

}  // namespace p2pd::bench
