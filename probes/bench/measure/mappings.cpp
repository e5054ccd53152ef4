// SPDX-License-Identifier: MIT
// Peer memory by the two other mappings, which drivers implement separately from cuCtxEnablePeerAccess: virtual memory
// management (NCCL's cuMem, PyTorch's expandable segments) and memory pools. Each GPU stores into strips of each other
// GPU's memory, whose owner verifies.
#include <optional>

#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/arrivals.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kStrip = 1ULL << 20;  // bytes, for each GPU that writes

/// Pool of one GPU with one block allocated from it; freed with the object.
class PoolBlock {
 public:
  static Result<PoolBlock> create(const Driver& driver, const OpenGpu& owner, u64 bytes) {
    TRY(owner.use());
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = memory_of(owner.device());
    PoolBlock block(driver, owner);
    CU(driver, cuMemPoolCreate(&block.pool_, &properties));
    CU(driver, cuMemAllocFromPoolAsync(&block.address_, bytes, block.pool_, owner.stream()));
    TRY(owner.finish());
    return block;
  }
  PoolBlock(PoolBlock&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        owner_(other.owner_),
        pool_(other.pool_),
        address_(other.address_) {}
  PoolBlock& operator=(PoolBlock&&) = delete;
  ~PoolBlock() {
    if (driver_ == nullptr || !owner_->use()) return;
    if (address_ != 0) (*driver_)->cuMemFreeAsync(address_, owner_->stream());
    (*driver_)->cuStreamSynchronize(owner_->stream());
    if (pool_ != nullptr) (*driver_)->cuMemPoolDestroy(pool_);
  }

  Result<void> grant(CUdevice reader_and_writer) const {
    const CUmemAccessDesc access = access_by(reader_and_writer);
    CU(*driver_, cuMemPoolSetAccess(pool_, &access, 1));
    return {};
  }
  CUdeviceptr address() const { return address_; }

 private:
  PoolBlock(const Driver& driver, const OpenGpu& owner) : driver_(&driver), owner_(&owner) {}
  const Driver* driver_;
  const OpenGpu* owner_;
  CUmemoryPool pool_ = nullptr;
  CUdeviceptr address_ = 0;
};

Result<Mapped> vmm_block(const Bench& bench, const OpenGpu& owner, u64 bytes) {
  if (!device_has(bench.driver, owner.device(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return fail(ErrorCode::invalid, "the GPU has no virtual memory management");
  TRY(owner.use());
  Mapped block = TRY(Mapped::create(bench.driver, owner.device(), bytes));
  TRY(block.grant(owner.device()));
  return block;
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
  const int gpus = bench.count();
  std::vector<Result<Block>> blocks;
  for (const OpenGpu& owner : bench.gpus) blocks.push_back(take(bench, owner, static_cast<u64>(gpus) * kStrip));
  Arrivals arrivals(bench);
  struct Store {
    Transfer transfer;
    CUdeviceptr strip;
  };
  std::vector<Store> stores;
  for (Pair& pair : bench.found.pairs) {
    const Result<Block>& block = blocks[static_cast<std::size_t>(pair.to)];
    std::string why = no_access(pair);
    if (why.empty() && !block) why = block.error().message;
    if (why.empty()) {
      const Result<void> granted = block->grant(bench.gpu(pair.from).device());
      if (!granted) why = granted.error().message;
    }
    if (!why.empty()) {
      pair.not_run[test] = why;
      continue;
    }
    const CUdeviceptr strip = block->address() + static_cast<u64>(pair.from) * kStrip;
    stores.push_back({TRY(arrivals.expect(test, pair.from, pair.to, strip, kStrip)), strip});
  }
  TRY(bench.finish());
  for (const Store& store : stores) {
    const Transfer& transfer = store.transfer;
    const auto run = [&](const Ordered&) {
      return store_strip(bench.gpu(transfer.from), store.strip, transfer.slots, transfer.key);
    };
    TRY(bench.each(test, {{transfer.from, transfer.to}}, run));
  }
  return arrivals.verify();
}

}  // namespace

Result<void> prove_mappings(Bench& bench) {
  TRY_IN("vmm", prove(bench, "vmm", vmm_block));
  TRY_IN("pool", prove(bench, "pool", pool_block));
  return {};
}

}  // namespace p2pd::bench
