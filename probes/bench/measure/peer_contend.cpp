// SPDX-License-Identifier: MIT
// Atomics of two GPUs on the same words, both sides of the test: no addition may be lost (the sum), no ticket issued
// twice. On a path without atomics this may end in a fault that ends the process, so it runs in the second process.
#include <fmt/format.h>

#include <algorithm>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_process.hpp"

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr char kNoAtomics[] = "not supported (NS): the driver offers none over this path";
constexpr u64 kTicketsEach = u64{kContendBlocks} * kContendThreads * kContendEach;  // tickets of one GPU
constexpr u64 kTicketAt = 128;  // in the owner's scratch memory, on another line than the sum
constexpr u64 kTicketsAt = 4096;
static_assert(kTicketsAt + kTicketsEach * 8 <= OpenGpu::kScratch);

Result<void> start(const OpenGpu& gpu, const OpenGpu& owner) {
  return gpu.launch(Kernel::contend, {kContendBlocks, 1, kContendThreads}, gpu.stream(), owner.scratch(),
                    owner.scratch() + kTicketAt, gpu.scratch() + kTicketsAt, kContendEach);
}

}  // namespace

std::string contention_problem(u64 sum, u64 next_ticket, std::vector<u64> tickets) {
  const u64 threads = 2ULL * kContendBlocks * kContendThreads;
  const u64 wanted = threads * kContendEach * (kContendEach + 1) / 2;
  const u64 all = threads * kContendEach;
  if (sum != wanted) return fmt::format("the sum is {}, not {}", sum, wanted);
  if (next_ticket != all) return fmt::format("{} tickets were drawn and {} counted", all, next_ticket);
  std::ranges::sort(tickets);
  for (u64 i = 0; i < tickets.size(); ++i) {
    if (tickets[i] == i) continue;
    return tickets[i] < i ? fmt::format("ticket {} was given out twice", tickets[i])
                          : fmt::format("ticket {} was not given out", i);
  }
  return {};
}

Result<Answer> contend(const Second& second, const Request& request) {
  TRY(second.usable(request.from, request.to));
  TRY(second.reaches(request.from, request.to));
  const Driver& driver = second.driver();
  const OpenGpu& peer = second.gpu(request.from);
  const OpenGpu& owner = second.gpu(request.to);
  for (const OpenGpu* gpu : {&peer, &owner}) {
    TRY(gpu->set(gpu->scratch(), kTicketsAt + kTicketsEach * 8, 0));
    TRY(gpu->finish());
  }
  TRY(start(peer, owner));
  TRY(start(owner, owner));
  TRY(peer.finish());
  TRY(owner.finish());
  u64 sum = 0;
  u64 next = 0;
  std::vector<u64> tickets(2 * kTicketsEach);
  CU(driver, cuMemcpyDtoH(&sum, owner.scratch(), sizeof sum));
  CU(driver, cuMemcpyDtoH(&next, owner.scratch() + kTicketAt, sizeof next));
  CU(driver, cuMemcpyDtoH(tickets.data(), owner.scratch() + kTicketsAt, kTicketsEach * 8));
  TRY(peer.use());
  CU(driver, cuMemcpyDtoH(tickets.data() + kTicketsEach, peer.scratch() + kTicketsAt, kTicketsEach * 8));
  return answer_of(Answer::Kind::done, contention_problem(sum, next, std::move(tickets)));
}

Result<void> PeerProcess::contend(Bench& bench) {
  for (Pair& pair : bench.found.pairs) {
    Result<Answer> answer = fail(ErrorCode::busy, kNoAtomics);
    if (const Result<void> reached = can_send(pair); !reached)
      answer = Failure(reached.error());
    else if (pair.native_atomics)
      answer = ask_about(bench, pair, {.task = Task::contend});
    if (!answer && answer.error().code == ErrorCode::busy) {
      pair.not_run["atomics"] = answer.error().message;
      continue;
    }
    const std::string problem = answer ? answer->text.data() : answer.error().message;
    bench.found.atomics.push_back({pair.from, pair.to, problem.empty(), problem});
  }
  return {};
}

}  // namespace p2pd::bench
