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
#include <utility>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_process.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kBytes = 4ULL << 20;  // two blocks of the driver

// What `to` sees of pages that `from` filled, in two ways.
constexpr const char* kManagedLooks[2] = {"loaded from where they lie", "loaded after they migrated"};
constexpr const char* kCompressibleLooks[2] = {"loaded from a peer", "stored to a peer"};

// ---- second process -------------------------------------------------------------------------------------------------

/// Adds to the answer what `reader` sees in the pages. Its context stays current.
Result<void> look(const Driver& driver, const OpenGpu& reader, CUdeviceptr pages, u64 key, Answer& answer) {
  TRY(reader.set(reader.scratch(), sizeof(Seen), 0));
  TRY(reader.launch(Kernel::verify, reader.wide(), reader.stream(), pages, whole(kBytes), key, u64{0}, u32{kPlain},
                    reader.scratch()));
  TRY(reader.finish());
  Seen& seen = answer.sides.at(answer.looks++).seen;
  CU(driver, cuMemcpyDtoH(&seen, reader.scratch(), sizeof seen));
  return {};
}

/// Waits for the migration, so that a fault is attributed to it.
Result<void> migrate(const Driver& driver, const OpenGpu& reader, CUdeviceptr pages) {
  TRY(reader.use());
  CU(driver, cuMemPrefetchAsync(pages, kBytes, reader.device(), reader.stream()));
  return reader.finish();
}

Result<void> fill(const OpenGpu& gpu, CUdeviceptr pages, u64 key) {
  TRY(gpu.fill(pages, kBytes, key));
  return gpu.finish();
}

/// Both reads, of pages with the preferred location `home`, where `reader` maps them. An Error other than a fault of a
/// GPU: the test could not be tried.
Result<Answer> share_managed(const Driver& driver, const OpenGpu& home, const OpenGpu& reader, u64 key) {
  TRY(home.use());
  CUdeviceptr pages = 0;
  CU(driver, cuMemAllocManaged(&pages, kBytes, CU_MEM_ATTACH_GLOBAL));
  const Cleanup free([&driver, pages] { driver->cuMemFree(pages); });
  CU(driver, cuMemAdvise(pages, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, home.device()));
  CU(driver, cuMemAdvise(pages, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, reader.device()));
  TRY(fill(home, pages, key));
  Answer answer;
  TRY_IN(kManagedLooks[0], look(driver, reader, pages, key, answer));
  TRY_IN("migration", migrate(driver, reader, pages));
  TRY_IN(kManagedLooks[1], look(driver, reader, pages, key, answer));
  return answer;
}

/// Compressible memory of `home` that both may access.
Result<Mapped> compressible_on(const Driver& driver, const OpenGpu& home, const OpenGpu& other) {
  TRY(home.use());
  return Mapped::create(driver, memory_of(home.device()), kBytes, {home.device(), other.device()},
                        Mapped::Kind::compressible);
}

Result<Answer> share_compressible(const Driver& driver, const OpenGpu& from, const OpenGpu& to, u64 key) {
  const Mapped source = TRY(compressible_on(driver, from, to));
  const Mapped target = TRY(compressible_on(driver, to, from));
  TRY(fill(from, source.address(), key));
  Answer answer;
  TRY_IN(kCompressibleLooks[0], look(driver, to, source.address(), key, answer));
  if (answer.sides[0].seen.wrong != 0) return answer;
  TRY_IN(kCompressibleLooks[1], fill(from, target.address(), key));
  TRY_IN(kCompressibleLooks[1], look(driver, to, target.address(), key, answer));
  return answer;
}

/// Kind of memory.
struct Memory {
  Task task;
  const char* test;
  const char* phase;
  bool Asked::*asked;
  const char* danger;
  CUdevice_attribute needed;
  const char* lacking;
  Result<Answer> (*share)(const Driver& driver, const OpenGpu& from, const OpenGpu& to, u64 key);
  const char* const* looks;
};
constexpr Memory kMemories[] = {
    {Task::compressible, kCompressible, "compressible memory", &Asked::compressible,
     "on some drivers it reaches host memory instead", CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
     "not supported: a GPU has no compressible memory", share_compressible, kCompressibleLooks},
    {Task::managed, kManaged, "managed memory", &Asked::managed,
     "on some drivers it takes all GPUs down until a reboot", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
     "not supported: a GPU has no managed memory that others may use at the same time", share_managed,
     kManagedLooks},  // last: it may take the machine down
};

// ---- requesting process ---------------------------------------------------------------------------------------------

/// Records the results of a transfer's pages. Returns the reason why they are no valid test; empty: they are.
std::string note_looks(Bench& bench, const Transfer& transfer, const Memory& memory, const Answer& answer) {
  for (std::size_t i = 0; i < std::min<std::size_t>(answer.looks, answer.sides.size()); ++i) {
    const Seen& seen = answer.sides[i].seen;
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
  if (!asked.wants(memory.test)) return "not requested";
  if (!(asked.*memory.asked)) return fmt::format("only where it is asked for: {}", memory.danger);
  if (!asked.full) return "only --full tests it";
  return asked.alone ? "a GPU faulted or hung before" : "";
}

}  // namespace

Result<Answer> share_memory(const Second& second, const Request& request) {
  TRY(second.usable(request.from, request.to));
  TRY(second.reaches(request.to, request.from));
  TRY(second.reaches(request.from, request.to));
  const Driver& driver = second.driver();
  const OpenGpu& from = second.gpu(request.from);
  const OpenGpu& to = second.gpu(request.to);
  const Memory& memory = *std::ranges::find(kMemories, request.task, &Memory::task);
  for (const OpenGpu* gpu : {&from, &to})
    if (!device_has(driver, gpu->device(), memory.needed)) return fail(ErrorCode::busy, memory.lacking);
  Result<Answer> answer = memory.share(driver, from, to, request.keys[0]);
  if (!answer && !driver.faulted()) return answer_of(Answer::Kind::not_run, answer.error().message);
  return answer;
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
      const Transfer transfer = bench.keys.next(memory.test, pair.from, pair.to, whole(kBytes));
      const Result<Answer> answer =
          try_pair(bench, pair, memory.test, {.task = memory.task, .bytes = kBytes, .keys = {transfer.key, 0}});
      std::string why;
      if (answer) why = note_looks(bench, transfer, memory, *answer);
      if (!answer && answer.error().code == ErrorCode::busy) why = answer.error().message;
      if (!why.empty()) pair.not_run[memory.test] = why;
    }
    TRY(still_working(bench));
  }
  return {};
}

}  // namespace p2pd::bench
