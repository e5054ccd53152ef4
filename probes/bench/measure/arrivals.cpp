// SPDX-License-Identifier: MIT
#include "probes/bench/measure/arrivals.hpp"

#include <fmt/format.h>

namespace p2pd::bench {

Slots one_slot(u64 strip_bytes) {
  constexpr u32 kGuard = 256;  // bytes
  Slots slots{};
  slots.count = 1;
  slots.guard = kGuard;
  slots.slot[0] = {kGuard, strip_bytes - u64{2} * kGuard};
  return slots;
}

Slots whole(u64 bytes) {
  Slots slots{1, 0, {}};
  slots.slot[0] = {0, bytes};
  return slots;
}

Result<void> store_strip(const OpenGpu& from, cuda::CUdeviceptr strip, const Slots& slots, u64 key) {
  constexpr StoreFault kNone = {~0ULL, ~0ULL};
  return from.launch(Kernel::store, from.wide(slots.count), from.stream(), strip, slots, key, 16U, kNone);
}

Result<Seen> look(OpenGpu& gpu, cuda::CUdeviceptr address, const Slots& slots, u64 key, u64 poison, u32 how) {
  const u32 place = TRY(gpu.new_seen());
  TRY(gpu.launch(Kernel::verify, gpu.wide(slots.count), gpu.stream(), address, slots, key, poison, how,
                 gpu.seen_at(place)));
  TRY(gpu.finish());
  return TRY(gpu.seen())[place];
}

std::string no_access(const Pair& pair) {
  if (!pair.access) return "no peer access";
  return pair.refused.empty() ? "" : "peer access was refused: " + pair.refused;
}

Result<Transfer> Arrivals::expect(std::string_view test, int from, int to, cuda::CUdeviceptr strip, u64 strip_bytes) {
  const Transfer transfer = bench_->keys.next(test, from, to, one_slot(strip_bytes));
  const OpenGpu& owner = bench_->gpu(to);
  TRY(owner.use());
  const auto poison = static_cast<u32>(transfer.poison);  // both halves of a poison are equal
  CU(bench_->driver, cuMemsetD32Async(strip, poison, strip_bytes / 4, owner.stream()));
  expected_.push_back({transfer, strip});
  return transfer;
}

Result<void> Arrivals::verify() {
  TRY(bench_->finish());
  for (OpenGpu& gpu : bench_->gpus) TRY(gpu.forget());
  std::erase_if(expected_, [&](const Expected& one) {
    return bench_->pair(one.transfer.from, one.transfer.to).not_run.contains(std::string(one.transfer.test));
  });
  for (Expected& one : expected_) {
    OpenGpu& owner = bench_->gpu(one.transfer.to);
    const Slots& slots = one.transfer.slots;
    one.seen = TRY(owner.new_seen());
    TRY(owner.launch(Kernel::verify, owner.wide(slots.count), owner.stream(), one.strip, slots, one.transfer.key,
                     one.transfer.poison, u32{kRelaxedSystem}, owner.seen_at(one.seen)));
  }
  TRY(bench_->finish());
  std::vector<std::vector<Seen>> seen;
  for (const OpenGpu& gpu : bench_->gpus) seen.push_back(TRY(gpu.seen()));
  for (const Expected& one : expected_) {
    const Transfer& transfer = one.transfer;
    const Seen& here = seen[static_cast<std::size_t>(transfer.to)][one.seen];
    if (here.wrong == 0 && here.right != payload_bytes(transfer.slots))
      return fail(ErrorCode::io, fmt::format("{}: only {} bytes were looked at", transfer.test, here.right));
    bench_->pair(transfer.from, transfer.to).verified_bytes[std::string(transfer.test)] += here.right;
    if (here.wrong > 0) bench_->found.wrong.push_back(explain(transfer, here, bench_->keys.known()));
  }
  expected_.clear();
  return {};
}

Result<void> canaries(Bench& bench, bool write) {
  const Slots slots = whole(OpenGpu::kCanary);
  for (int i = 0; i < bench.count(); ++i) {
    OpenGpu& gpu = bench.gpu(i);
    const u64 key = mix64(bench.keys.nonce() ^ static_cast<u64>(i) << 48);
    if (write) {
      TRY(gpu.launch(Kernel::fill, gpu.wide(), gpu.stream(), gpu.canary(), OpenGpu::kCanary / 8, key));
      continue;
    }
    const Seen seen = TRY(look(gpu, gpu.canary(), slots, key, 0, kPlain));
    if (seen.wrong == 0) continue;
    Transfer transfer{"canary", i, i, key, 0, slots};
    bench.found.wrong.push_back(explain(transfer, seen, bench.keys.known()));
  }
  return {};
}

}  // namespace p2pd::bench
