// SPDX-License-Identifier: MIT
// Managed memory (cudaMallocManaged) of two GPUs, both sides of the test: pages on one GPU are loaded by the other,
// which is advised for them, then migrate there. On some drivers a migration raises Xid 31 and then Xid 154 on all GPUs
// until a reboot. Therefore it is tested only on request, last, and in the second process. Reference: NVIDIA's open
// kernel modules, kernel-open/nvidia-uvm, whose peers over BAR1 are new in 590.
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

constexpr u64 kManagedBytes = 4ULL << 20;  // two blocks of the driver
constexpr const char* kLooks[] = {"loaded from where they lie", "loaded after they migrated"};

// ---- second process -------------------------------------------------------------------------------------------------

/// Managed memory; freed with the object.
class ManagedPages {
 public:
  /// Makes pages with the preferred location `home` that `reader` maps there.
  static Result<ManagedPages> create(const Driver& driver, const OpenGpu& home, const OpenGpu& reader) {
    TRY(home.use());
    CUdeviceptr address = 0;
    CU(driver, cuMemAllocManaged(&address, kManagedBytes, CU_MEM_ATTACH_GLOBAL));
    ManagedPages pages(driver, address);
    CU(driver, cuMemAdvise(address, kManagedBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, home.device()));
    CU(driver, cuMemAdvise(address, kManagedBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, reader.device()));
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
  TRY(reader.launch(Kernel::verify, reader.wide(), reader.stream(), pages, whole(kManagedBytes), key, u64{0},
                    u32{kPlain}, reader.scratch()));
  TRY(reader.finish());
  Seen seen{};
  CU(driver, cuMemcpyDtoH(&seen, reader.scratch(), sizeof seen));
  return json_of(seen);
}

/// Waits for the migration, so that a fault is attributed to it.
Result<void> migrate(const Driver& driver, const OpenGpu& reader, CUdeviceptr pages) {
  TRY(reader.use());
  CU(driver, cuMemPrefetchAsync(pages, kManagedBytes, reader.device(), reader.stream()));
  return reader.finish();
}

/// Reason why the second process cannot share managed memory of these two; empty: it can.
std::string not_managed(const Second& second, CUdevice from, CUdevice to) {
  std::string why = second.problem(from, to);
  if (why.empty()) why = second.refused(to, from);
  if (why.empty()) why = second.refused(from, to);
  for (const CUdevice device : {from, to})
    if (why.empty() && !device_has(second.driver(), device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS))
      why = "not supported: a GPU has no managed memory that others may use at the same time";
  return why;
}

// ---- requesting process ---------------------------------------------------------------------------------------------

/// Records the results of a transfer's pages. Returns the reason why they are no valid test; empty: they are.
std::string note_looks(Bench& bench, const Transfer& transfer, const nlohmann::json& looks) {
  for (std::size_t i = 0; i < std::size(kLooks); ++i) {
    const Seen seen = seen_of(looks.at(i));
    if (seen.wrong == 0 && seen.right != kManagedBytes) return fmt::format("only {} bytes were looked at", seen.right);
    bench.pair(transfer.from, transfer.to).verified_bytes[kManaged] += seen.right;
    if (seen.wrong == 0) continue;
    Wrong wrong = explain(transfer, seen, bench.keys.known());
    wrong.detail = kLooks[i] + (wrong.detail.empty() ? "" : ": " + wrong.detail);
    bench.found.wrong.push_back(wrong);
  }
  return {};
}

}  // namespace

Result<nlohmann::json> share_managed(const Second& second, CUdevice from, CUdevice to, u64 key) {
  if (const std::string why = not_managed(second, from, to); !why.empty()) return nlohmann::json{{"not_run", why}};
  const Driver& driver = second.driver();
  const OpenGpu& home = second.find(from)->gpu;
  const OpenGpu& reader = second.find(to)->gpu;
  const Result<ManagedPages> pages = ManagedPages::create(driver, home, reader);
  if (!pages && !driver.faulted()) return nlohmann::json{{"not_run", pages.error().message}};
  if (!pages) return Failure(pages.error());
  TRY(home.launch(Kernel::fill, home.wide(), home.stream(), pages->address(), kManagedBytes / 8, key));
  TRY(home.finish());
  nlohmann::json looks = nlohmann::json::array();
  looks.push_back(TRY_IN(kLooks[0], look(driver, reader, pages->address(), key)));
  TRY_IN("migration", migrate(driver, reader, pages->address()));
  looks.push_back(TRY_IN(kLooks[1], look(driver, reader, pages->address(), key)));
  return nlohmann::json{{"looks", looks}};
}

std::string no_managed(const Asked& asked) {
  if (!asked.managed) return "only where it is asked for: on some drivers it takes all GPUs down until a reboot";
  if (!asked.full) return "only --full tests it";
  return asked.alone ? "a GPU faulted or hung before" : "";
}

Result<void> PeerProcess::prove_managed(Bench& bench) {
  if (!no_managed(bench.asked).empty()) return {};
  bench.phases.begin("managed memory");
  for (Pair& pair : bench.found.pairs) {
    std::string why = no_access(pair);
    if (why.empty()) why = gone_;
    if (why.empty()) {
      const Transfer transfer = bench.keys.next(kManaged, pair.from, pair.to, whole(kManagedBytes));
      const auto answer = try_pair(bench, pair, kManaged, kManagedBytes,
                                   {{"do", "managed"},
                                    {"from", bench.gpu(pair.from).device()},
                                    {"to", bench.gpu(pair.to).device()},
                                    {"key", transfer.key}});
      if (!answer) continue;
      why = answer->value("not_run", "");
      if (why.empty()) why = note_looks(bench, transfer, answer->at("looks"));
    }
    if (!why.empty()) pair.not_run[kManaged] = why;
  }
  return still_working(bench);
}

}  // namespace p2pd::bench
