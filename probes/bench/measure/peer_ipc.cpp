// SPDX-License-Identifier: MIT
// CUDA IPC, both sides of the tests: the second process opens memory of the first, by handle or descriptor, for each
// GPU that writes into it. Each write is waited for, so that a fault is attributed to its write; the owners verify all.
#include <fmt/format.h>

#include <algorithm>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_process.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

// ---- second process -------------------------------------------------------------------------------------------------

/// Address, for GPU `from`, of the strip to write.
Result<CUdeviceptr> target(const Second& second, IpcMemory& memory, const Request& request) {
  TRY(second.usable(request.from, request.to));
  const Driver& driver = second.driver();
  const OpenGpu& from = second.gpu(request.from);
  if (from.half() < second.count() * request.bytes)
    return fail(ErrorCode::busy, "too little free memory for a second process");
  TRY(from.use());
  if (request.task == Task::ipc_vmm) {
    const Result<Mapped>& shared = memory.shared.at(request.to);
    if (!shared) return Failure(shared.error());
    TRY(shared->grant(from.device()));
    return shared->address() + request.at;
  }
  const auto pair = std::pair(request.from, request.to);
  if (!memory.opened.contains(pair)) {  // a context opens a handle once
    CUdeviceptr address = 0;
    CU(driver, cuIpcOpenMemHandle(&address, request.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    memory.opened[pair] = {address, Cleanup([&driver, &from, address] {
                             if (from.use()) driver->cuIpcCloseMemHandle(address);
                           })};
  }
  return memory.opened[pair].address + request.at;
}

Result<void> enqueue(const Second& second, const Request& request, CUdeviceptr strip) {
  const OpenGpu& from = second.gpu(request.from);
  const Slots slots = one_slot(request.bytes);
  if (request.task != Task::ipc_copy) return store_strip(from, strip, slots, request.keys[0]);
  const CUdeviceptr source = from.out() + static_cast<u64>(request.to) * request.bytes;
  TRY(from.launch(Kernel::fill, from.wide(), from.side(), source, request.bytes / 8, request.keys[0]));
  const Slot slot = slots.slot[0];
  CU(second.driver(), cuMemcpyAsync(strip + slot.begin, source + slot.begin, slot.bytes, from.side()));
  return {};
}

// ---- requesting process ---------------------------------------------------------------------------------------------

constexpr u64 kMostStrip = 1ULL << 20;  // bytes, for each pair and test
constexpr char kFaultedBefore[] = "the second process faulted before";

struct IpcTest {
  std::string_view name;
  Task task;
};
constexpr IpcTest kIpcTests[] = {
    {"ipc-store", Task::ipc_store}, {"ipc-copy", Task::ipc_copy}, {"ipc-vmm", Task::ipc_vmm}};

struct Shared {
  Mapped memory;
  Descriptor descriptor;
};

/// Memory of a GPU for writes by the other process, or the reason why there is none.
struct Offer {
  Result<CUipcMemHandle> legacy;
  Result<Shared> shared;
};

Result<CUipcMemHandle> legacy_handle(const Bench& bench, const OpenGpu& gpu) {
  TRY(gpu.use());
  CUipcMemHandle handle{};
  CU(bench.driver, cuIpcGetMemHandle(&handle, gpu.arena()));
  return handle;
}

Result<Shared> shared_memory(const Bench& bench, const OpenGpu& gpu, u64 bytes) {
  if (!device_has(bench.driver, gpu.device(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !device_has(bench.driver, gpu.device(), CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return fail(ErrorCode::invalid, "the GPU has no memory that goes by file descriptor");
  TRY(gpu.use());
  Mapped memory =
      TRY(Mapped::create(bench.driver, memory_of(gpu.device()), bytes, {gpu.device()}, Mapped::Kind::shareable));
  Descriptor descriptor = TRY(memory.share());
  return Shared{std::move(memory), std::move(descriptor)};
}

/// Completes the request of a write: the memory, and where in it. Returns the address of its strip in this process.
Result<CUdeviceptr> place(const Bench& bench, const Offer& offer, const Pair& pair, Request& request) {
  TRY(can_send(pair));
  const auto writer = static_cast<u64>(pair.from);
  if (request.task == Task::ipc_vmm) {
    if (!offer.shared) return Failure(offer.shared.error());
    request.at = writer * request.bytes;
    return offer.shared->memory.address() + request.at;
  }
  if (!offer.legacy) return Failure(offer.legacy.error());
  const OpenGpu& owner = bench.gpu(pair.to);
  const u64 before = request.task == Task::ipc_copy ? static_cast<u64>(bench.count()) : 0;  // strips of the other test
  request.handle = *offer.legacy;
  request.at = owner.in() - owner.arena() + (before + writer) * request.bytes;
  return owner.arena() + request.at;
}

}  // namespace

Result<Answer> write_memory(const Second& second, IpcMemory& memory, const Request& request) {
  const Result<CUdeviceptr> strip = target(second, memory, request);
  if (!strip) return answer_of(Answer::Kind::not_run, strip.error().message);
  Result<void> done = enqueue(second, request, *strip);
  if (done) done = second.gpu(request.from).finish();
  if (!done && second.driver().faulted()) return answer_of(Answer::Kind::faulted, done.error().message);
  TRY(std::move(done));
  return Answer{};
}

Result<void> PeerProcess::prove_ipc(Bench& bench) {
  const auto gpus = static_cast<u64>(bench.count());
  u64 strip_bytes = kMostStrip;
  for (const OpenGpu& gpu : bench.gpus) strip_bytes = std::min(strip_bytes, gpu.half() / (2 * gpus) & ~4095ULL);
  std::vector<Offer> offers;
  for (const OpenGpu& gpu : bench.gpus)
    offers.push_back({legacy_handle(bench, gpu), shared_memory(bench, gpu, gpus * strip_bytes)});
  Arrivals arrivals(bench);
  std::vector<Request> writes;  // of what arrives, in its order
  for (Pair& pair : bench.found.pairs)
    for (const auto& [name, task] : kIpcTests) {
      if (!bench.asked.wants(name)) continue;
      Request request{.task = task, .from = pair.from, .to = pair.to, .bytes = strip_bytes};
      const auto strip = place(bench, offers[static_cast<std::size_t>(pair.to)], pair, request);
      TRY(arrivals.expect(name, pair, strip, strip_bytes));
      if (!strip) continue;
      request.keys[0] = arrivals.expected().back().transfer.key;
      writes.push_back(request);
    }
  TRY(bench.finish());  // the poison is there before any write

  std::string lost;  // reason why there are no results at all
  for (int owner = 0; owner < bench.count() && lost.empty(); ++owner) {
    const Result<Shared>& shared = offers[static_cast<std::size_t>(owner)].shared;
    if (!shared) continue;
    const Request taken{.task = Task::memory, .to = owner, .bytes = shared->memory.bytes()};
    if (const auto answer = ask(taken, shared->descriptor.get()); !answer) lost = answer.error().message;
  }
  const auto skip = [&](const Transfer& transfer, const std::string& why) {
    bench.pair(transfer.from, transfer.to).not_run[std::string(transfer.test)] = why;
  };
  bool faulted = false;
  for (std::size_t i = 0; i < writes.size() && lost.empty(); ++i) {
    const Transfer& sent = arrivals.expected()[i].transfer;
    const Result<Answer> answer = faulted ? fail(ErrorCode::busy, kFaultedBefore) : ask(writes[i]);
    if (answer && answer->kind == Answer::Kind::faulted) {
      faulted = true;
      bench.found.wrong.push_back(wrong_of(sent.test, sent.from, sent.to, strip_bytes, WrongKind::faulted,
                                           fmt::format("the second process: {}", answer->text.data())));
      skip(sent, kFaultedBefore);
    } else if (!answer && answer.error().code == ErrorCode::busy) {
      skip(sent, answer.error().message);
    } else if (!answer) {
      lost = answer.error().message;
    }
    bench.phases.go_on();  // each write has a limit of its own
  }
  if (!lost.empty()) {
    for (const Arrivals::Expected& one : arrivals.expected()) skip(one.transfer, lost);
    return {};
  }
  tell(Task::close);  // it closes while this process verifies
  return arrivals.verify();
}

}  // namespace p2pd::bench
