// SPDX-License-Identifier: MIT
// Memory that programs ask the driver for by name, both sides of the tests. Each is tested only on request, last, and
// in the second process: patched drivers may fault, or worse.
// - Compressible memory: loaded from a peer, then stored to there. Some drivers reach host memory instead, from 1 TiB
//   on: nothing is stored before the loads were right.
// - Managed memory (cudaMallocManaged): pages on one GPU are loaded by the other, which maps them (cuMemAdvise),
//   then migrate there. On some drivers a migration raises Xid 31 and then Xid 154 on all GPUs until a reboot.
// Reference: NVIDIA's open kernel modules, kernel-open/nvidia-uvm, whose peers over BAR1 are new in 590; CUDA
// Programming Guide, "Virtual Memory Management", compressible memory.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_process.hpp"
#include "probes/bench/measure/peer_serve.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kBytes = 4ULL << 20;  // two blocks of the driver

/// Kind of memory, and what `to` sees of pages that `from` filled, in two ways.
struct Memory {
  const char* test;
  const char* phase;
  bool Asked::*asked;
  const char* danger;
  const char* looks[2];
};
constexpr Memory kMemories[] = {
    {kCompressible,
     "compressible memory",
     &Asked::compressible,
     "on some drivers it reaches host memory instead",
     {"loaded from a peer", "stored to a peer"}},
    {kManaged,
     "managed memory",
     &Asked::managed,
     "on some drivers it takes all GPUs down until a reboot",
     {"loaded from where they lie", "loaded after they migrated"}},  // last: it may take the machine down
};

const Memory& memory_of_test(std::string_view test) {
  return *std::ranges::find(kMemories, test, [](const Memory& one) { return std::string_view(one.test); });
}

// ---- second process -------------------------------------------------------------------------------------------------

/// Managed memory; freed with the object.
class ManagedPages {
 public:
  /// Makes pages with the preferred location `home` that `reader` maps there.
  static Result<ManagedPages> create(const Driver& driver, const OpenGpu& home, const OpenGpu& reader) {
    TRY(home.use());
    CUdeviceptr address = 0;
    CU(driver, cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL));
    ManagedPages pages(driver, address);
    CU(driver, cuMemAdvise(address, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, home.device()));
    CU(driver, cuMemAdvise(address, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, reader.device()));
    return pages;
  }
  ManagedPages(ManagedPages&& other) noexcept : driver_(other.driver_), address_(std::exchange(other.address_, 0)) {}
  ManagedPages& operator=(ManagedPages&&) = delete;
  ~ManagedPages() {
    if (address_ != 0) (*driver_)->cuMemFree(address_);
  }

  CUdeviceptr address() const { return address_; }

 private:
  ManagedPages(const Driver& driver, CUdeviceptr address) : driver_(&driver), address_(address) {}

  const Driver* driver_;
  CUdeviceptr address_;  ///< 0: moved from
};

/// Result of reading the pages on `reader`, whose context stays current.
Result<nlohmann::json> look(const Driver& driver, const OpenGpu& reader, CUdeviceptr pages, u64 key) {
  TRY(reader.use());
  CU(driver, cuMemsetD32Async(reader.scratch(), 0, sizeof(Seen) / 4, reader.stream()));
  TRY(reader.launch(Kernel::verify, reader.wide(), reader.stream(), pages, whole(kBytes), key, u64{0}, u32{kPlain},
                    reader.scratch()));
  TRY(reader.finish());
  Seen seen{};
  CU(driver, cuMemcpyDtoH(&seen, reader.scratch(), sizeof seen));
  return json_of(seen);
}

/// Waits for the migration, so that a fault is attributed to it.
Result<void> migrate(const Driver& driver, const OpenGpu& reader, CUdeviceptr pages) {
  TRY(reader.use());
  CU(driver, cuMemPrefetchAsync(pages, kBytes, reader.device(), reader.stream()));
  return reader.finish();
}

/// Reason why the second process cannot share memory of these two; empty: it can.
std::string not_shared(const Second& second, const std::string& test, CUdevice from, CUdevice to) {
  std::string why = second.problem(from, to);
  if (why.empty()) why = second.refused(to, from);
  if (why.empty()) why = second.refused(from, to);
  const bool managed = test == kManaged;
  const CUdevice_attribute needed =
      managed ? CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS : CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED;
  for (const CUdevice device : {from, to})
    if (why.empty() && !device_has(second.driver(), device, needed))
      why = managed ? "not supported: a GPU has no managed memory that others may use at the same time"
                    : "not supported: a GPU has no compressible memory";
  return why;
}

Result<void> fill(const OpenGpu& gpu, CUdeviceptr pages, u64 key) {
  TRY(gpu.use());
  TRY(gpu.launch(Kernel::fill, gpu.wide(), gpu.stream(), pages, kBytes / 8, key));
  return gpu.finish();
}

/// Results of both reads; an Error other than a fault of a GPU: the test could not be tried.
Result<nlohmann::json> share_managed(const Driver& driver, const OpenGpu& home, const OpenGpu& reader, u64 key) {
  const auto& looks = memory_of_test(kManaged).looks;
  const ManagedPages pages = TRY(ManagedPages::create(driver, home, reader));
  TRY(fill(home, pages.address(), key));
  const nlohmann::json before = TRY_IN(looks[0], look(driver, reader, pages.address(), key));
  TRY_IN("migration", migrate(driver, reader, pages.address()));
  const nlohmann::json after = TRY_IN(looks[1], look(driver, reader, pages.address(), key));
  return nlohmann::json::array({before, after});
}

/// Compressible memory of `home` that both may access.
Result<Mapped> compressible_on(const Driver& driver, const OpenGpu& home, const OpenGpu& other) {
  TRY(home.use());
  Mapped memory = TRY(Mapped::create(driver, memory_of(home.device()), kBytes, Mapped::Kind::compressible));
  TRY(memory.grant(home.device()));
  TRY(memory.grant(other.device()));
  return memory;
}

Result<nlohmann::json> share_compressible(const Driver& driver, const OpenGpu& from, const OpenGpu& to, u64 key) {
  const auto& looks = memory_of_test(kCompressible).looks;
  const Mapped source = TRY(compressible_on(driver, from, to));
  const Mapped target = TRY(compressible_on(driver, to, from));
  TRY(fill(from, source.address(), key));
  const nlohmann::json loaded = TRY_IN(looks[0], look(driver, to, source.address(), key));
  nlohmann::json seen = nlohmann::json::array({loaded});
  if (seen_of(loaded).wrong != 0) return seen;
  TRY_IN(looks[1], fill(from, target.address(), key));
  seen.push_back(TRY_IN(looks[1], look(driver, to, target.address(), key)));
  return seen;
}

// ---- requesting process ---------------------------------------------------------------------------------------------

/// Records the results of a transfer's pages. Returns the reason why they are no valid test; empty: they are.
std::string note_looks(Bench& bench, const Transfer& transfer, const Memory& memory, const nlohmann::json& looks) {
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const Seen seen = seen_of(looks[i]);
    if (seen.wrong == 0 && seen.right != kBytes) return fmt::format("only {} bytes were looked at", seen.right);
    bench.pair(transfer.from, transfer.to).verified_bytes[memory.test] += seen.right;
    if (seen.wrong == 0) continue;
    Wrong wrong = explain(transfer, seen, bench.keys.known());
    wrong.detail = memory.looks[i] + (wrong.detail.empty() ? "" : ": " + wrong.detail);
    bench.found.wrong.push_back(wrong);
  }
  return {};
}

std::string untested(const Asked& asked, const Memory& memory) {
  if (!(asked.*memory.asked)) return fmt::format("only where it is asked for: {}", memory.danger);
  if (!asked.full) return "only --full tests it";
  return asked.alone ? "a GPU faulted or hung before" : "";
}

}  // namespace

Result<nlohmann::json> share_memory(const Second& second, const std::string& test, CUdevice from, CUdevice to,
                                    u64 key) {
  if (const std::string why = not_shared(second, test, from, to); !why.empty()) return nlohmann::json{{"not_run", why}};
  const Driver& driver = second.driver();
  const auto share = test == kManaged ? share_managed : share_compressible;
  Result<nlohmann::json> looks = share(driver, second.find(from)->gpu, second.find(to)->gpu, key);
  if (looks) return nlohmann::json{{"looks", *std::move(looks)}};
  if (driver.faulted()) return Failure(looks.error());
  return nlohmann::json{{"not_run", looks.error().message}};
}

std::map<std::string, std::string> untested_memory(const Asked& asked) {
  std::map<std::string, std::string> reasons;
  for (const Memory& memory : kMemories)
    if (std::string why = untested(asked, memory); !why.empty()) reasons[memory.test] = std::move(why);
  return reasons;
}

Result<void> PeerProcess::prove_memory(Bench& bench) {
  for (const Memory& memory : kMemories) {
    if (!untested(bench.asked, memory).empty()) continue;
    bench.phases.begin(memory.phase);
    for (Pair& pair : bench.found.pairs) {
      std::string why = no_access(pair);
      if (why.empty()) why = gone_;
      if (why.empty()) {
        const Transfer transfer = bench.keys.next(memory.test, pair.from, pair.to, whole(kBytes));
        const auto answer = try_pair(bench, pair, memory.test, kBytes,
                                     {{"do", "share"},
                                      {"test", memory.test},
                                      {"from", bench.gpu(pair.from).device()},
                                      {"to", bench.gpu(pair.to).device()},
                                      {"key", transfer.key}});
        if (!answer) continue;
        why = answer->value("not_run", "");
        if (why.empty()) why = note_looks(bench, transfer, memory, answer->at("looks"));
      }
      if (!why.empty()) pair.not_run[memory.test] = why;
    }
    TRY(still_working(bench));
  }
  return {};
}

}  // namespace p2pd::bench
