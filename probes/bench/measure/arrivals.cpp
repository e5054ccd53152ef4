// SPDX-License-Identifier: MIT
#include "probes/bench/measure/arrivals.hpp"

#include <fmt/format.h>

namespace p2pd::bench {

Slots one_slot(u64 strip_bytes) {
  constexpr u32 kGuard = 256;  // bytes
  Slots slots{1, kGuard, {}};
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

Result<Seen> look(OpenGpu& gpu, cuda::CUdeviceptr address, const Slots& slots, u64 key, u64 poison, Load how) {
  const u32 place = TRY(gpu.verify(address, slots, key, poison, how));
  TRY(gpu.finish());
  return TRY(gpu.seen())[place];
}

Result<void> can_send(const Pair& pair) {
  if (!pair.access) return fail(ErrorCode::busy, "no peer access");
  if (!pair.refused.empty()) return fail(ErrorCode::busy, "peer access was refused: " + pair.refused);
  return {};
}

Result<void> Arrivals::expect(std::string_view test, Pair& pair, const Result<cuda::CUdeviceptr>& strip,
                              u64 strip_bytes) {
  if (!strip) {
    pair.not_run[std::string(test)] = strip.error().message;
    return {};
  }
  const Transfer transfer = bench_->keys.next(test, pair.from, pair.to, one_slot(strip_bytes));
  expected_.push_back({transfer, *strip});
  return bench_->gpu(pair.to).set(*strip, strip_bytes, transfer.poison);
}

Result<void> Arrivals::verify() {
  TRY(bench_->finish());
  TRY(bench_->forget());
  std::erase_if(expected_, [&](const Expected& one) {
    return bench_->pair(one.transfer.from, one.transfer.to).not_run.contains(std::string(one.transfer.test));
  });
  std::vector<u32> places;
  for (const auto& [sent, strip] : expected_)
    places.push_back(TRY(bench_->gpu(sent.to).verify(strip, sent.slots, sent.key, sent.poison, kRelaxedSystem)));
  const auto seen = TRY(bench_->seen());
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const Transfer& sent = expected_[i].transfer;
    const Seen& here = seen[static_cast<std::size_t>(sent.to)][places[i]];
    if (here.wrong == 0 && here.right != payload_bytes(sent.slots))
      return fail(ErrorCode::io, fmt::format("{}: only {} bytes were looked at", sent.test, here.right));
    bench_->pair(sent.from, sent.to).verified_bytes[std::string(sent.test)] += here.right;
    if (here.wrong > 0) bench_->found.wrong.push_back(explain(sent, here, bench_->keys.known()));
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
      TRY(gpu.fill(gpu.canary(), OpenGpu::kCanary, key));
      continue;
    }
    const Seen seen = TRY(look(gpu, gpu.canary(), slots, key, 0, kPlain));
    if (seen.wrong > 0) bench.found.wrong.push_back(explain({"canary", i, i, key, 0, slots}, seen, bench.keys.known()));
  }
  return {};
}

}  // namespace p2pd::bench
