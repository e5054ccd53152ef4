// SPDX-License-Identifier: MIT
// Peer memory by the two other mappings, which drivers implement separately from cuCtxEnablePeerAccess: virtual memory
// management (NCCL's cuMem, PyTorch's expandable segments) and memory pools. Each GPU stores into strips of each other
// GPU's memory, whose owner verifies. With them, host memory as NCCL allocates it for its path through shared memory.
#include <algorithm>
#include <optional>
#include <set>

#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/arrivals.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kStrip = 1ULL << 20;  // bytes, for each GPU that writes
constexpr u64 kHostChunk = 512ULL << 20;
constexpr u64 kHostBytes = 9 * kHostChunk;  // beyond 4 GiB, to which a driver may confine host memory
constexpr u64 kHostLeast = 64ULL << 20;     // unless four times kHostBytes per node is available

/// Pool of one GPU with one block allocated from it; freed with the object.
class PoolBlock {
 public:
  static Result<PoolBlock> create(const Driver& driver, const OpenGpu& owner, u64 bytes) {
    TRY(owner.use());
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = memory_of(owner.device());
    PoolBlock block(driver);
    CU(driver, cuMemPoolCreate(&block.pool_, &properties));
    block.destroy_ = Cleanup([&driver, &owner, pool = block.pool_] {
      if (!owner.use()) return;
      driver->cuStreamSynchronize(owner.stream());
      driver->cuMemPoolDestroy(pool);
    });
    CU(driver, cuMemAllocFromPoolAsync(&block.address_, bytes, block.pool_, owner.stream()));
    block.free_ = Cleanup([&driver, &owner, address = block.address_] {
      if (owner.use()) driver->cuMemFreeAsync(address, owner.stream());
    });
    TRY(owner.finish());
    return block;
  }

  Result<void> grant(CUdevice reader_and_writer) const {
    const CUmemAccessDesc access = access_by(reader_and_writer);
    CU(*driver_, cuMemPoolSetAccess(pool_, &access, 1));
    return {};
  }
  CUdeviceptr address() const { return address_; }

 private:
  explicit PoolBlock(const Driver& driver) : driver_(&driver) {}
  const Driver* driver_;
  CUmemoryPool pool_ = nullptr;
  CUdeviceptr address_ = 0;
  Cleanup destroy_;  // the last one is called first
  Cleanup free_;
};

Result<Mapped> vmm_block(const Bench& bench, const OpenGpu& owner, u64 bytes) {
  if (!device_has(bench.driver, owner.device(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return fail(ErrorCode::invalid, "the GPU has no virtual memory management");
  TRY(owner.use());
  return Mapped::create(bench.driver, memory_of(owner.device()), bytes, {owner.device()});
}

Result<PoolBlock> pool_block(const Bench& bench, const OpenGpu& owner, u64 bytes) {
  if (!device_has(bench.driver, owner.device(), CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
    return fail(ErrorCode::invalid, "the GPU has no memory pools");
  return PoolBlock::create(bench.driver, owner, bytes);
}

/// Stores from every other GPU into a strip of the block that `take` makes on each; a refusal becomes a pair's
/// Pair::not_run.
template <class Block>
Result<void> prove(Bench& bench, const char* test,
                   Result<Block> (*take)(const Bench& bench, const OpenGpu& owner, u64 bytes)) {
  const u64 bytes = static_cast<u64>(bench.count()) * kStrip;
  std::vector<Result<Block>> blocks;
  for (const OpenGpu& owner : bench.gpus) blocks.push_back(take(bench, owner, bytes));
  const auto strip_of = [&](const Pair& pair) -> Result<CUdeviceptr> {
    TRY(can_send(pair));
    const Result<Block>& block = blocks[static_cast<std::size_t>(pair.to)];
    if (!block) return Failure(block.error());
    TRY(block->grant(bench.gpu(pair.from).device()));
    return block->address() + static_cast<u64>(pair.from) * kStrip;
  };
  Arrivals arrivals(bench);
  for (Pair& pair : bench.found.pairs) TRY(arrivals.expect(test, pair, strip_of(pair), kStrip));
  TRY(bench.finish());
  for (const Arrivals::Expected& one : arrivals.expected()) {
    const Transfer& sent = one.transfer;
    const auto run = [&](const Ordered&) { return store_strip(bench.gpu(sent.from), one.strip, sent.slots, sent.key); };
    TRY(bench.each(test, {{sent.from, sent.to}}, run));
  }
  return arrivals.verify();
}

/// Bytes that allocations can have without swapping.
u64 available_bytes(const Host& host) {
  constexpr std::string_view kField = "MemAvailable:";
  const std::string text = host.files().read("/proc/meminfo").value_or("");
  const std::size_t at = text.find(kField);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + kField.size(), nullptr, 10) << 10;
}

/// NUMA nodes from which the driver allocates host memory near the GPUs.
Result<std::set<int>> host_nodes(const Bench& bench) {
  std::set<int> nodes;
  for (const OpenGpu& gpu : bench.gpus) {
    int node = -1;
    if (!device_has(bench.driver, gpu.device(), CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
      continue;
    CU(bench.driver, cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, gpu.device()));
    if (node >= 0) nodes.insert(node);
  }
  return nodes;
}

/// Allocates until `memory` has the wanted size, or an allocation fails.
std::vector<Mapped> allocate(const Bench& bench, HostMemory& memory) {
  std::vector<CUdevice> users;
  for (const OpenGpu& gpu : bench.gpus) users.push_back(gpu.device());
  std::vector<Mapped> chunks;
  while (memory.bytes < memory.wanted_bytes) {
    const u64 bytes = std::min<u64>(kHostChunk, memory.wanted_bytes - memory.bytes);
    Result<Mapped> chunk =
        Mapped::create(bench.driver, host_memory_of(memory.node), bytes, users, Mapped::Kind::shareable);
    if (!chunk) {
      memory.problem = chunk.error().message;
      break;
    }
    memory.bytes += chunk->bytes();
    chunks.push_back(*std::move(chunk));
  }
  return chunks;
}

/// One GPU stores into the end of each chunk, and the next verifies once all have stored.
Result<void> move_through(Bench& bench, HostMemory& memory) {
  const std::vector<Mapped> chunks = allocate(bench, memory);
  std::vector<Transfer> transfers;
  const auto strip = [&](std::size_t i) { return chunks[i].address() + chunks[i].bytes() - kStrip; };
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int from = static_cast<int>(i) % bench.count(), to = (from + 1) % bench.count();
    const Transfer& transfer = transfers.emplace_back(bench.keys.next(kHostMemory, from, to, one_slot(kStrip)));
    const OpenGpu& gpu = bench.gpu(from);
    TRY(gpu.set(strip(i), kStrip, transfer.poison));
    TRY(store_strip(gpu, strip(i), transfer.slots, transfer.key));
  }
  TRY(bench.finish());
  TRY(bench.forget());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& sent = transfers[i];
    const Seen seen = TRY(look(bench.gpu(sent.to), strip(i), sent.slots, sent.key, sent.poison, kRelaxedSystem));
    memory.verified_bytes += seen.right;
    memory.wrong += seen.wrong;
  }
  return {};
}

}  // namespace

Result<void> prove_host_memory(Bench& bench, const Host& host) {
  const std::set<int> nodes = TRY(host_nodes(bench));
  for (const int node : nodes) {
    HostMemory memory;
    memory.node = node;
    memory.wanted_bytes = available_bytes(host) >= 4 * nodes.size() * kHostBytes ? kHostBytes : kHostLeast;
    TRY(move_through(bench, memory));
    bench.found.host_memory.push_back(std::move(memory));
  }
  return {};
}

Result<void> prove_mappings(Bench& bench) {
  if (bench.asked.wants("vmm")) TRY_IN("vmm", prove(bench, "vmm", vmm_block));
  if (bench.asked.wants("pool")) TRY_IN("pool", prove(bench, "pool", pool_block));
  return {};
}

}  // namespace p2pd::bench
