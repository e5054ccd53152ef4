// SPDX-License-Identifier: MIT
// Helpers for the tests of the simulated CUDA driver. Each case runs in a process of its own, because a driver starts
// once in a process and keeps its errors.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "probes/bench/device/cuda.hpp"
#include "probes/bench/device/pattern.hpp"
#include "temporary.hpp"

#ifndef P2PD_SIM_LIBCUDA
#define P2PD_SIM_LIBCUDA ""
#endif

namespace p2pd::test::sim {

using namespace p2pd::bench;
using namespace p2pd::bench::cuda;
using nlohmann::json;

inline bool in_forked_process = false;  ///< LeakSanitizer reads it (sim_cuda_test.cpp)

inline constexpr u64 kMiB = 1ULL << 20;
inline constexpr u64 kKey = 0x1234'5678'9abc'def0;
inline constexpr u64 kPoison = 0xa5a5'a5a5'5a5a'5a5a;
inline constexpr u64 kLimitNs = 100'000'000;

/// Exception of a case whose expectation fails.
struct Wrong {
  std::string text;
};

inline void need(bool condition, const std::string& what) {
  if (!condition) throw Wrong{what};
}

template <class Value, class Other>
inline void same(const Value& seen, const Other& wanted, const std::string& what) {
  if (seen == static_cast<Value>(wanted)) return;
  std::ostringstream text;
  text << what << ": " << seen << " instead of " << wanted;
  throw Wrong{text.str()};
}

inline std::string kernels_ptx() {
  std::ifstream file(std::filesystem::path(P2PD_SOURCE_DIR) / "probes/bench/device/kernels.ptx");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json machine_of(int devices) {
  json machine = {{"driver_version", 12080},
                  {"link", {{"gb_s", 25}, {"both_gb_s", 40}, {"latency_ns", 1200}, {"staged_gb_s", 12}}},
                  {"devices", json::array()}};
  for (int i = 0; i < devices; ++i) {
    machine["devices"].push_back({{"name", fmt::format("GPU {}", i)},
                                  {"uuid", fmt::format("{:032x}", 0xab00 + i)},
                                  {"address", fmt::format("0000:{:02x}:00.0", i + 1)},
                                  {"memory_mib", 64},
                                  {"free_mib", 48},
                                  {"sm", {8, 9}},
                                  {"multiprocessors", 128}});
  }
  return machine;
}

inline json with_fault(json fault, int devices = 3) {
  json machine = machine_of(devices);
  machine["faults"] = json::array({std::move(fault)});
  return machine;
}

/// The library, opened in this process.
struct Cuda : Functions {
  Cuda() {
    const char* set = std::getenv("P2PD_SIM_LIBCUDA");
    void* library = ::dlopen(set != nullptr ? set : P2PD_SIM_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    need(library != nullptr, "no simulated driver at P2PD_SIM_LIBCUDA");
    find = reinterpret_cast<CuGetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
    need(find != nullptr, "cuGetProcAddress_v2 is not exported");
#define F(name, ...) same(find(#name, reinterpret_cast<void**>(&name), kApiVersion, 0, nullptr), CUDA_SUCCESS, #name);
    P2PD_CUDA_FUNCTIONS(F)
#undef F
  }
  CuGetProcAddress find = nullptr;
};

inline void ok(CUresult result) { same(result, CUDA_SUCCESS, "result"); }

/// One GPU of the started driver, with a stream and 8 MiB.
struct Gpu {
  const Cuda& cuda;
  int number;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  static constexpr u64 kBytes = 8 * kMiB;

  Gpu(const Cuda& driver, int ordinal) : cuda(driver), number(ordinal) {
    ok(cuda.cuDevicePrimaryCtxRetain(&context, number));
    use();
    ok(cuda.cuModuleLoadData(&module, kernels_ptx().c_str()));
    ok(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuda.cuMemAlloc(&memory, kBytes));
    ok(cuda.cuMemsetD32Async(memory, 0, kBytes / 4, stream));
    sync();
  }
  void use() const { ok(cuda.cuCtxSetCurrent(context)); }
  void sync() const {
    use();
    ok(cuda.cuStreamSynchronize(stream));
  }
  void enable(const Gpu& peer) const {
    use();
    ok(cuda.cuCtxEnablePeerAccess(peer.context, 0));
  }
  template <class... Arguments>
  void launch(const char* name, unsigned blocks, unsigned rows, Arguments... arguments) const {
    use();
    CUfunction function = nullptr;
    ok(cuda.cuModuleGetFunction(&function, module, name));
    void* parameters[] = {&arguments...};
    ok(cuda.cuLaunchKernel(function, blocks, rows, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  }
  template <class Value>
  Value read(u64 at) const {
    use();
    Value value{};
    ok(cuda.cuMemcpyDtoH(&value, memory + at, sizeof(value)));
    return value;
  }
};

/// Offsets in the 8 MiB: two strips, and the reports of kernels.
inline constexpr u64 kIn = 0;
inline constexpr u64 kOut = 2 * kMiB;
inline constexpr u64 kMail = 4 * kMiB;
inline constexpr u64 kSeenAt = 5 * kMiB;
inline constexpr u64 kTimingAt = kSeenAt + 4096;
inline constexpr u64 kRing = 6 * kMiB;
inline constexpr Slots kStrip = {2, 64, {{64, 4096}, {8192, 512 * 1024}}};

inline void poison(const Gpu& gpu, u64 at) {
  const std::vector<u64> words(kMiB / 8, kPoison);
  gpu.use();
  ok(gpu.cuda.cuMemcpyHtoD(gpu.memory + at, words.data(), kMiB));
}

/// Lets `gpu` verify a strip that is anywhere; an empty text is right.
inline Seen verify(const Gpu& gpu, CUdeviceptr strip, u64 key = kKey) {
  gpu.use();
  ok(gpu.cuda.cuMemsetD32Async(gpu.memory + kSeenAt, 0, sizeof(Seen) / 4, gpu.stream));
  gpu.launch("verify", 4, kStrip.count, strip, kStrip, key, kPoison, u32{kRelaxedSystem}, gpu.memory + kSeenAt);
  gpu.sync();
  return gpu.read<Seen>(kSeenAt);
}

inline void store(const Gpu& from, const Gpu& to, u32 width = 16, u64 key = kKey) {
  from.launch("store", 4, kStrip.count, to.memory + kIn, kStrip, key, width, StoreFault{~0ULL, ~0ULL});
  from.sync();
}

/// A strip from `from` into the memory of `to`, by the copy engine of `runs`.
inline void copy(const Gpu& runs, const Gpu& from, const Gpu& to) {
  from.launch("fill", 4, 1, from.memory + kOut, kMiB / 8, kKey);
  from.sync();
  runs.use();
  for (u32 i = 0; i < kStrip.count; ++i) {
    const Slot slot = kStrip.slot[i];
    ok(runs.cuda.cuMemcpyAsync(to.memory + kIn + slot.begin, from.memory + kOut + slot.begin, slot.bytes, runs.stream));
  }
  runs.sync();
}

/// "clean", or the number of wrong words and the kind of the first.
inline std::string word_of(const Seen& seen) {
  if (seen.wrong == 0) return seen.right == 4096 + 512 * 1024 ? "clean" : "incomplete";
  const u64 value = seen.value[0];
  const std::string what = value == kPoison ? "poison" : value == ~0ULL ? "ones" : value == 0 ? "zero" : "other";
  return fmt::format("{} {} at {}", seen.wrong == 1 ? "one" : "many", what, seen.at[0]);
}

/// A process that runs `body` on `machine`.
class Child {
 public:
  Child(const json& machine, const std::function<void()>& body) {
    const std::string path = directory_ / "machine.json";
    std::ofstream(path) << (machine.is_string() ? machine.get<std::string>() : machine.dump());
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      in_forked_process = true;
      ::setenv("P2PD_SIM_CUDA", path.c_str(), 1);
      std::exit(run(body, ends[1]));  // not _exit: the driver must shut down
    }
    ::close(ends[1]);
    said_ = ends[0];
  }
  ~Child() { ::close(said_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// "ok", its failure, or "never ends".
  std::string finish(int limit_ms) const {
    pollfd ready{said_, POLLIN, 0};
    std::string text = "never ends";
    if (::poll(&ready, 1, limit_ms) > 0) {
      std::array<char, 4096> said{};
      const auto length = ::read(said_, said.data(), said.size());
      text.assign(said.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    } else {
      ::kill(process_, SIGKILL);
    }
    int status = 0;
    ::waitpid(process_, &status, 0);
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return well || text == "never ends" ? text : fmt::format("{}, status {}", text, status);
  }

 private:
  static int run(const std::function<void()>& body, int channel) {
    std::string text = "ok";
    try {
      body();
    } catch (const Wrong& wrong) {
      text = wrong.text;
    }
    return ::write(channel, text.data(), text.size()) > 0 ? 0 : 1;
  }

  test::TemporaryDirectory directory_;
  pid_t process_ = -1;
  int said_ = -1;
};

inline std::string in_child(const json& machine, const std::function<void()>& body, int limit_ms = 60'000) {
  return Child(machine, body).finish(limit_ms);
}

/// `body` with a started driver and its GPUs, all of which have enabled each other if that is possible.
inline std::string on_gpus(const json& machine, const std::function<void(const Cuda&, std::vector<Gpu>&)>& body,
                           int limit_ms = 60'000) {
  return in_child(
      machine,
      [&] {
        const Cuda cuda;
        ok(cuda.cuInit(0));
        int count = 0;
        ok(cuda.cuDeviceGetCount(&count));
        std::vector<Gpu> gpus;
        gpus.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) gpus.emplace_back(cuda, i);
        for (const Gpu& one : gpus) {
          for (const Gpu& other : gpus) {
            int can = 0;
            ok(cuda.cuDeviceCanAccessPeer(&can, one.number, other.number));
            if (can != 0) one.enable(other);
          }
        }
        body(cuda, gpus);
      },
      limit_ms);
}

}  // namespace p2pd::test::sim
