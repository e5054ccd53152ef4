// SPDX-License-Identifier: MIT
// A libnccl.so.2 for machines without GPUs, beside the simulated CUDA driver of ../libcuda, where a device pointer is a
// host address: collectives run on the host when a group ends, and the debug output names a transport as NCCL does. Its
// GPUs sit under different host bridges, so NCCL's own choice is no P2P until NCCL_P2P_LEVEL is PHB or SYS; without P2P
// everything takes three times as long. Collectives of a group are of one kind, as p2p-bench has them. P2PD_SIM_NCCL
// seeds a fault: "wrong" (one element of every result), "hang", "die", "refuse" (no communicator); with "-p2p" behind
// it, only if P2P is allowed.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "probes/bench/collectives/nccl.hpp"

using namespace p2pd::bench;

struct p2pd::bench::nccl::ncclComm {
  int rank;
};

namespace p2pd::bench::nccl {

#define F(result, name, ...) extern "C" result name(__VA_ARGS__);
P2PD_NCCL_FUNCTIONS(F)
#undef F

namespace {

struct Call {
  enum Kind { reduce, send, receive } kind;
  const float* from;
  float* to;
  std::size_t count;
  int rank;
  int peer;
  cudaStream_t stream;
};

std::vector<Call> group;
int depth = 0;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

template <class Function>
Function driver(const char* name) {
  static const auto find = reinterpret_cast<cuda::CuGetProcAddress>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2"));
  void* function = nullptr;
  find(name, &function, cuda::kApiVersion, 0, nullptr);
  return reinterpret_cast<Function>(function);
}
#define DRIVER(name) driver<decltype(cuda::Functions::name)>(#name)

bool peers(int from, int to) {
  const std::string level = setting("NCCL_P2P_LEVEL");
  if (setting("NCCL_P2P_DISABLE") == "1" || (level != "PHB" && level != "SYS")) return false;
  int can = 0;
  return DRIVER(cuDeviceCanAccessPeer)(&can, from, to) == cuda::CUDA_SUCCESS && can != 0;
}

bool has_fault(const std::string& name) {
  const std::string seeded = setting("P2PD_SIM_NCCL");
  return seeded == name || (seeded == name + "-p2p" && setting("NCCL_P2P_DISABLE") != "1");
}

void tell(const std::string& line) {
  if (setting("NCCL_DEBUG") != "INFO") return;
  static std::FILE* const log =
      setting("NCCL_DEBUG_FILE").empty() ? stdout : std::fopen(setting("NCCL_DEBUG_FILE").c_str(), "w");
  std::fputs(line.c_str(), log);
  std::fflush(log);
}

void tell_connection(const std::string& channel, const std::string& kind, int from, int to) {
  const std::string process = std::to_string(::getpid()), sender = std::to_string(from), receiver = std::to_string(to);
  const bool direct = peers(from, to);
  tell("sim:" + process + ":" + process + " [" + sender + "] NCCL INFO Channel " + channel + (direct ? kind : "") +
       " : " + sender + "[" + sender + "] -> " + receiver + "[" + receiver + "] via " +
       (direct ? "P2P/CUMEM" : "SHM/direct/direct") + "\n");
}

/// The first rank computes the sums; the others copy its result.
void all_reduce(const Call& call) {
  const Call& first = group.front();
  std::memcpy(call.to, &call == &first ? first.from : first.to, call.count * sizeof(float));
  if (&call != &first) return;
  for (const Call& other : std::span(group).subspan(1)) {
    for (std::size_t i = 0; i < call.count; ++i) call.to[i] += other.from[i];
  }
}

void receive(const Call& call) {
  for (const Call& other : group) {
    if (other.kind == Call::send && other.rank == call.peer && other.peer == call.rank)
      std::memcpy(call.to, other.from, call.count * sizeof(float));
  }
}

ncclResult_t add(const Call& call) {
  if (depth == 0) return ncclInvalidArgument;
  group.push_back(call);
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidArgument ? "invalid argument" : "unhandled system error";
}

ncclResult_t ncclCommInitAll(ncclComm_t* ranks, int count, const int*) {
  tell("NCCL version 2.28.3+cuda13.0\n");
  if (has_fault("refuse")) {
    tell("\n[2025-09-01 12:00:00] sim:1:1 [0] init.cc:100 NCCL WARN simulated \033[31mrefusal\n");
    return ncclSystemError;
  }
  for (int rank = 0; rank < count; ++rank) ranks[rank] = new ncclComm{rank};
  for (const char* channel : {"00", "01"})  // a ring; sends connect other pairs when they come
    for (int rank = 0; rank < count; ++rank) tell_connection(channel, "/0", rank, (rank + 1) % count);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t rank) {
  delete rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  if (has_fault("hang")) ::pause();
  if (has_fault("die")) std::abort();
  static bool connected = false;
  for (const Call& call : group)
    if (!connected && call.kind == Call::send && call.rank != call.peer)
      tell_connection("00", "/1", call.rank, call.peer);
  connected |= group.front().kind == Call::send;
  const auto start = std::chrono::steady_clock::now();
  for (const Call& call : group) DRIVER(cuStreamSynchronize)(call.stream);
  for (const Call& call : group) {
    if (call.kind == Call::send) continue;
    call.kind == Call::reduce ? all_reduce(call) : receive(call);
    if (has_fault("wrong")) call.to[call.count / 2] += 1;
  }
  group.clear();
  if (!peers(0, 1)) std::this_thread::sleep_for(2 * (std::chrono::steady_clock::now() - start));
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t rank,
                           cudaStream_t stream) {
  return add({Call::reduce, static_cast<const float*>(from), static_cast<float*>(to), count, rank->rank, 0, stream});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t rank,
                      cudaStream_t stream) {
  return add({Call::send, static_cast<const float*>(from), nullptr, count, rank->rank, peer, stream});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t rank, cudaStream_t stream) {
  return add({Call::receive, nullptr, static_cast<float*>(to), count, rank->rank, peer, stream});
}

}  // namespace p2pd::bench::nccl
