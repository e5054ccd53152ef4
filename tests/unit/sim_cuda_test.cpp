// SPDX-License-Identifier: MIT
// The simulated CUDA driver does what its README says: p2p-bench is judged on it. Each case runs in a process of its
// own, because a driver starts once in a process and keeps its errors.
#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "catch.hpp"
#include "probes/bench/device/cuda.hpp"
#include "probes/bench/device/pattern.hpp"
#include "temporary.hpp"

#ifndef P2PD_SIM_LIBCUDA
#define P2PD_SIM_LIBCUDA ""
#endif

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::bench;
using namespace p2pd::bench::cuda;
using nlohmann::json;

namespace {
bool in_forked_process = false;
}

/// LeakSanitizer's hook: it cannot look at a forked process, whose threads it does not know, and ends it with 1 when it
/// reads memory of one that is gone. The other sanitizers still see every error there.
extern "C" int __lsan_is_turned_off() { return in_forked_process ? 1 : 0; }

namespace {

constexpr u64 kMiB = 1ULL << 20;
constexpr u64 kKey = 0x1234'5678'9abc'def0;
constexpr u64 kPoison = 0xa5a5'a5a5'5a5a'5a5a;
constexpr u64 kLimitNs = 100'000'000;

/// What a case throws when something is not as it must be.
struct Wrong {
  std::string text;
};

void need(bool condition, const std::string& what) {
  if (!condition) throw Wrong{what};
}

template <class Value, class Other>
void same(const Value& seen, const Other& wanted, const std::string& what) {
  if (seen == static_cast<Value>(wanted)) return;
  std::ostringstream text;
  text << what << ": " << seen << " instead of " << wanted;
  throw Wrong{text.str()};
}

void near(double seen, double wanted, const std::string& what) {
  need(std::abs(seen - wanted) <= 0.01 * wanted, fmt::format("{}: {} instead of {}", what, seen, wanted));
}

std::string kernels_ptx() {
  std::ifstream file(fs::path(P2PD_SOURCE_DIR) / "probes/bench/device/kernels.ptx");
  return {std::istreambuf_iterator<char>(file), {}};
}

json machine_of(int devices) {
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

json with_fault(json fault, int devices = 3) {
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

void ok(CUresult result) { same(result, CUDA_SUCCESS, "result"); }

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

/// Where things are in the 8 MiB: two strips, and what kernels report.
constexpr u64 kIn = 0;
constexpr u64 kOut = 2 * kMiB;
constexpr u64 kMail = 4 * kMiB;
constexpr u64 kSeenAt = 5 * kMiB;
constexpr u64 kTimingAt = kSeenAt + 4096;
constexpr u64 kRing = 6 * kMiB;
constexpr Slots kStrip = {2, 64, {{64, 4096}, {8192, 512 * 1024}}};

void poison(const Gpu& gpu, u64 at) {
  const std::vector<u64> words(kMiB / 8, kPoison);
  gpu.use();
  ok(gpu.cuda.cuMemcpyHtoD(gpu.memory + at, words.data(), kMiB));
}

/// Lets `gpu` verify a strip that is anywhere; an empty text is right.
Seen verify(const Gpu& gpu, CUdeviceptr strip, u64 key = kKey) {
  gpu.use();
  ok(gpu.cuda.cuMemsetD32Async(gpu.memory + kSeenAt, 0, sizeof(Seen) / 4, gpu.stream));
  gpu.launch("verify", 4, kStrip.count, strip, kStrip, key, kPoison, u32{kRelaxedSystem}, gpu.memory + kSeenAt);
  gpu.sync();
  return gpu.read<Seen>(kSeenAt);
}

void store(const Gpu& from, const Gpu& to, u32 width = 16, u64 key = kKey) {
  from.launch("store", 4, kStrip.count, to.memory + kIn, kStrip, key, width, StoreFault{~0ULL, ~0ULL});
  from.sync();
}

/// A strip from `from` into the memory of `to`, by the copy engine of `runs`.
void copy(const Gpu& runs, const Gpu& from, const Gpu& to) {
  from.launch("fill", 4, 1, from.memory + kOut, kMiB / 8, kKey);
  from.sync();
  runs.use();
  for (u32 i = 0; i < kStrip.count; ++i) {
    const Slot slot = kStrip.slot[i];
    ok(runs.cuda.cuMemcpyAsync(to.memory + kIn + slot.begin, from.memory + kOut + slot.begin, slot.bytes, runs.stream));
  }
  runs.sync();
}

/// "clean", or how many words are wrong and what the first of them is.
std::string word_of(const Seen& seen) {
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
      std::exit(run(body, ends[1]));  // not _exit: the driver must end well
    }
    ::close(ends[1]);
    said_ = ends[0];
  }
  ~Child() { ::close(said_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// "ok", what it failed with, or "never ends".
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

std::string in_child(const json& machine, const std::function<void()>& body, int limit_ms = 60'000) {
  return Child(machine, body).finish(limit_ms);
}

/// `body` with a started driver and its GPUs, all of which have enabled each other where that is possible.
std::string on_gpus(const json& machine, const std::function<void(const Cuda&, std::vector<Gpu>&)>& body,
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

struct Hands {
  Seen sender;
  Seen receiver;
  Timing timing;
};

Hands shake(const Gpu& from, const Gpu& to, Protocol protocol, u64 rounds) {
  for (const Gpu* gpu : {&from, &to}) {
    gpu->use();
    ok(gpu->cuda.cuMemsetD32Async(gpu->memory + kMail, 0, (kTimingAt + 64 - kMail) / 4, gpu->stream));
    gpu->sync();
  }
  const auto start = [&](const Gpu& gpu, const Gpu& peer, u32 sends) {
    gpu.launch("handshake", 1, 1, gpu.memory + kMail, peer.memory + kMail, sends, static_cast<u32>(protocol), rounds,
               kKey, kLimitNs, gpu.memory + kSeenAt, gpu.memory + kTimingAt);
  };
  start(from, to, 1);
  start(to, from, 0);
  from.sync();
  to.sync();
  return {from.read<Seen>(kSeenAt), to.read<Seen>(kSeenAt), from.read<Timing>(kTimingAt)};
}

double rate(const Cuda& cuda, const Gpu& runs, CUdeviceptr to, CUdeviceptr from, const Gpu* back = nullptr) {
  constexpr int kTimes = 50;
  constexpr u64 kCopied = 2 * kMiB;
  std::array<CUevent, 3> events{};
  runs.use();
  for (CUevent& event : events) ok(cuda.cuEventCreate(&event, CU_EVENT_DEFAULT));
  ok(cuda.cuEventRecord(events[0], runs.stream));
  for (int i = 0; i < kTimes; ++i) ok(cuda.cuMemcpyAsync(to, from, kCopied, runs.stream));
  if (back != nullptr) {
    back->use();
    ok(cuda.cuStreamWaitEvent(back->stream, events[0], 0));
    for (int i = 0; i < kTimes; ++i) ok(cuda.cuMemcpyAsync(from + 2 * kMiB, to + 2 * kMiB, kCopied, back->stream));
    ok(cuda.cuEventRecord(events[2], back->stream));
    runs.use();
    ok(cuda.cuStreamWaitEvent(runs.stream, events[2], 0));
  }
  ok(cuda.cuEventRecord(events[1], runs.stream));
  ok(cuda.cuEventSynchronize(events[1]));
  float milliseconds = 0;
  ok(cuda.cuEventElapsedTime(&milliseconds, events[0], events[1]));
  for (CUevent event : events) ok(cuda.cuEventDestroy(event));
  return kTimes * kCopied / 1e6 / static_cast<double>(milliseconds);
}

std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("simulated CUDA: devices are as the machine file says") {
  json machine = machine_of(2);
  machine["devices"][0]["atomics"] = machine["devices"][1]["atomics"] = true;
  CHECK(in_child(machine, [] {
          const Cuda cuda;
          int number = 0;
          same(static_cast<int>(cuda.cuDeviceGetCount(&number)), 3, "before cuInit");
          ok(cuda.cuDriverGetVersion(&number));
          same(number, 12080, "version");
          ok(cuda.cuInit(0));
          std::array<char, 32> text{};
          ok(cuda.cuDeviceGetName(text.data(), 32, 1));
          same(std::string(text.data()), "GPU 1", "name");
          ok(cuda.cuDeviceGetPCIBusId(text.data(), 32, 1));
          same(std::string(text.data()), "0000:02:00.0", "address");
          CUuuid uuid{};
          ok(cuda.cuDeviceGetUuid(&uuid, 1));
          same(static_cast<int>(static_cast<unsigned char>(uuid.bytes[14])), 0xab, "uuid");
          void* none = nullptr;
          int status = 0;
          same(cuda.find("cuLaunchHostFunc", &none, kApiVersion, 0, &status), CUDA_ERROR_NOT_FOUND, "unknown function");
          same(cuda.find("cuInit", &none, 13000, 0, &status), CUDA_ERROR_NOT_FOUND, "a newer ABI");
          same(status, 2, "why a newer ABI is refused");
          ok(cuda.cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
          same(number, 9, "compute capability");
          ok(cuda.cuDeviceGetP2PAttribute(&number, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
          same(number, 1, "atomics");
          const char* name = nullptr;
          ok(cuda.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
          same(std::string(name), "CUDA_ERROR_ILLEGAL_ADDRESS", "error name");
        }) == "ok");
}

TEST_CASE("simulated CUDA: a machine file that is not right fails cuInit") {
  const auto starts = [](const json& machine) {
    return in_child(machine, [] { throw Wrong{std::to_string(Cuda().cuInit(0))}; });
  };
  CHECK(starts(machine_of(16)) == "0");
  CHECK(starts(machine_of(0)) == "100");
  CHECK(starts("{\"devices\": [") == "999");
  CHECK(starts(with_fault({{"kind", "wrong-bite"}})) == "999");
  CHECK(starts(with_fault({{"kind", "alias"}})) == "999");
  CHECK(starts(with_fault({{"kind", "stale"}, {"to", 3}})) == "999");
  json machine = machine_of(2);
  machine["init_error"] = 803;
  CHECK(starts(machine) == "803");
  machine.erase("init_error");
  for (const char* optional : {"free_mib", "sm", "multiprocessors"}) machine["devices"][0].erase(optional);
  CHECK(starts(machine) == "0");
  machine["memory"] = 1;
  CHECK(starts(machine) == "999");
}

TEST_CASE("simulated CUDA: PTX is looked at") {
  json machine = machine_of(1);
  machine["ptx_isa_most"] = "8.4";
  CHECK(
      on_gpus(machine, [](const Cuda& cuda, std::vector<Gpu>& gpus) {
        CUmodule module = nullptr;
        CUfunction function = nullptr;
        same(cuda.cuModuleLoadData(&module, ".version 8.5\n.target sm_75\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
             "8.5");
        same(cuda.cuModuleLoadData(&module, ".version 7.0\n"), CUDA_ERROR_INVALID_PTX, "no target");
        const char ptx[] = ".version 8.4\n.target sm_75\n.visible .entry fill(\n)";
        CUlinkState state = nullptr;
        void* cubin = nullptr;
        std::size_t bytes = 0;
        ok(cuda.cuLinkCreate(0, nullptr, nullptr, &state));
        ok(cuda.cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), sizeof(ptx), "k", 0, nullptr, nullptr));
        ok(cuda.cuLinkComplete(state, &cubin, &bytes));
        const std::string kept(static_cast<const char*>(cubin), bytes);
        ok(cuda.cuLinkDestroy(state));
        ok(cuda.cuModuleLoadData(&module, kept.data()));
        ok(cuda.cuModuleGetFunction(&function, module, "fill"));
        same(cuda.cuModuleGetFunction(&function, module, "verify"), CUDA_ERROR_NOT_FOUND, "verify");
        ok(cuda.cuModuleUnload(module));
        need(gpus.size() == 1, "one GPU");
      }) == "ok");
}

TEST_CASE("simulated CUDA: every engine carries bytes between every two of eight GPUs") {
  CHECK(on_gpus(machine_of(8), [](const Cuda& cuda, std::vector<Gpu>& gpus) {
          for (const Gpu& from : gpus) {
            for (const Gpu& to : gpus) {
              if (from.number == to.number) continue;
              const std::string pair = fmt::format("{} -> {}", from.number, to.number);
              poison(to, kIn);
              store(from, to, 1U << (to.number % 5));
              same(word_of(verify(to, to.memory + kIn)), "clean", pair + " store");
              same(word_of(verify(from, to.memory + kIn)), "clean", pair + " load");
              poison(to, kIn);
              copy(from, from, to);
              same(word_of(verify(to, to.memory + kIn)), "clean", pair + " push");
              poison(to, kIn);
              copy(to, from, to);
              same(word_of(verify(to, to.memory + kIn)), "clean", pair + " pull");
            }
          }
          need(word_of(verify(gpus[0], gpus[0].memory + kIn, kKey + 1)).starts_with("many"), "another key is wrong");
          gpus[0].launch("copy", 8, 1, gpus[1].memory + kRing, gpus[0].memory + kIn, kMiB / 16);
          gpus[0].sync();
          same(word_of(verify(gpus[1], gpus[1].memory + kRing)), "clean", "copy kernel");
          gpus[2].launch("tag", 4, 1, gpus[3].memory + kIn, u64{8}, u64{65536}, kKey);
          gpus[2].sync();
          for (const u64 key : {kKey, kKey ^ 64}) {
            gpus[3].use();
            ok(cuda.cuMemsetD32Async(gpus[3].memory + kSeenAt, 0, sizeof(Seen) / 4, gpus[3].stream));
            gpus[3].launch("check_tags", 4, 1, gpus[3].memory + kIn, u64{8}, u64{65536}, key, gpus[3].memory + kSeenAt);
            gpus[3].sync();
            same(gpus[3].read<Seen>(kSeenAt).right, key == kKey ? 8 * 65536 : 0, "tags");
          }
        }) == "ok");
}

TEST_CASE("simulated CUDA: running kernels talk to each other, and clocks are virtual") {
  CHECK(on_gpus(machine_of(4), [](const Cuda&, std::vector<Gpu>& gpus) {
          for (const Protocol protocol : {kFlag, kPush, kPull, kLl, kLl128}) {
            const Hands hands = shake(gpus[0], gpus[1], protocol, 200);
            same(hands.timing.rounds, 200, "rounds");
            same(hands.timing.end_ns - hands.timing.start_ns, 199 * 2 * 1200, "time");
            same(hands.receiver.right, protocol == kFlag ? 0 : 200 * kMailBytes, "payload");
            same(hands.receiver.wrong + hands.sender.timeouts + hands.receiver.timeouts, 0, "faults");
          }
          const u64 stride = 128;
          const u64 count = 1024;
          const Gpu& owner = gpus[2];
          owner.launch("chain", 4, 1, owner.memory + kRing, stride, count);
          owner.sync();
          gpus[3].launch("chase", 4, 1, owner.memory + kRing, u64{512}, u32{3}, gpus[3].memory + kIn);
          gpus[3].sync();
          same(gpus[3].read<std::array<u64, 4>>(kIn)[3], 512 * 1200, "chase");
          const u64 sum_at = kSeenAt;
          for (const Gpu* gpu : {&gpus[0], &gpus[1]})
            gpu->launch("contend", 2, 1, owner.memory + sum_at, owner.memory + sum_at + 8, gpu->memory + kIn, u64{50});
          gpus[0].sync();
          gpus[1].sync();
          same(owner.read<u64>(sum_at), 2 * 64 * 1275, "sum");
          same(owner.read<u64>(sum_at + 8), 2 * 64 * 50, "tickets");
        }) == "ok");
}

TEST_CASE("simulated CUDA: rates are those of the link model") {
  json machine = machine_of(3);
  machine["links"] = {{{"from", 0}, {"to", 2}, {"gb_s", 50}}};
  machine["faults"] = {{{"kind", "fast"}, {"from", 1}, {"to", 2}}, {{"kind", "slow"}, {"from", 2}, {"to", 1}}};
  CHECK(in_child(machine, [] {
          const Cuda cuda;
          ok(cuda.cuInit(0));
          const Gpu a(cuda, 0);
          const Gpu b(cuda, 1);
          const Gpu c(cuda, 2);
          const auto with_latency = [](double gb_s, double ns) { return 2 * kMiB / (2 * kMiB / gb_s + ns); };
          near(rate(cuda, a, b.memory, a.memory), with_latency(12, 12000), "staged");
          for (const Gpu* one : {&a, &b, &c})
            for (const Gpu* other : {&a, &b, &c})
              if (one != other) one->enable(*other);
          for (int again = 0; again < 3; ++again) {
            near(rate(cuda, a, b.memory, a.memory), with_latency(25, 1200), "push");
            near(rate(cuda, b, b.memory, a.memory), with_latency(25, 1200), "pull");
            near(rate(cuda, a, b.memory, a.memory, &b), with_latency(20, 1200), "both ways");
          }
          near(rate(cuda, a, c.memory, a.memory), with_latency(50, 1200), "another link");
          near(rate(cuda, b, c.memory, b.memory), with_latency(250, 1200), "fast");
          near(rate(cuda, c, b.memory, c.memory), with_latency(7.5, 1200), "slow");
        }) == "ok");
}

TEST_CASE("simulated CUDA: access is asked for, and memory is accounted") {
  json machine = machine_of(11);
  machine["faults"] = {{{"kind", "no-peer"}, {"from", 0}, {"to", 1}},
                       {{"kind", "refuse"}, {"from", 0}, {"to", 2}, {"error", 711}},
                       {{"kind", "busy"}, {"from", 1}, {"at", 40}}};
  CHECK(in_child(machine, [] {
          const Cuda cuda;
          ok(cuda.cuInit(0));
          std::vector<Gpu> gpus;
          gpus.reserve(11);
          for (int i = 0; i < 11; ++i)
            if (i != 1) gpus.emplace_back(cuda, i);
          CUcontext busy = nullptr;
          ok(cuda.cuDevicePrimaryCtxRetain(&busy, 1));
          gpus[0].use();
          same(cuda.cuCtxEnablePeerAccess(busy, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "no peer");
          same(cuda.cuCtxEnablePeerAccess(gpus[1].context, 0), CUDA_ERROR_TOO_MANY_PEERS, "refused");
          ok(cuda.cuCtxEnablePeerAccess(gpus[2].context, 0));
          same(cuda.cuCtxEnablePeerAccess(gpus[2].context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "twice");
          ok(cuda.cuCtxDisablePeerAccess(gpus[2].context));
          gpus[9].use();
          for (std::size_t i = 0; i < 8; ++i) ok(cuda.cuCtxEnablePeerAccess(gpus[i].context, 0));
          same(cuda.cuCtxEnablePeerAccess(gpus[8].context, 0), CUDA_ERROR_TOO_MANY_PEERS, "ninth");
          std::size_t free = 0;
          std::size_t total = 0;
          ok(cuda.cuMemGetInfo(&free, &total));
          same(free, 40 * kMiB, "free");
          same(total, 64 * kMiB, "total");
          CUdeviceptr more = 0;
          same(cuda.cuMemAlloc(&more, 41 * kMiB), CUDA_ERROR_OUT_OF_MEMORY, "too much");
          ok(cuda.cuMemAlloc(&more, 40 * kMiB));
          ok(cuda.cuMemFree(more));
          ok(cuda.cuMemAlloc(&more, 40 * kMiB));
          ok(cuda.cuCtxSetCurrent(busy));
          ok(cuda.cuMemGetInfo(&free, &total));
          same(free, 8 * kMiB, "free of a busy one");

          gpus[4].launch("store", 4, kStrip.count, gpus[5].memory, kStrip, kKey, u32{16}, StoreFault{~0ULL, ~0ULL});
          same(cuda.cuStreamSynchronize(gpus[4].stream), CUDA_ERROR_ILLEGAL_ADDRESS, "without access");
          same(cuda.cuMemAlloc(&more, kMiB), CUDA_ERROR_ILLEGAL_ADDRESS, "sticky");
          same(word_of(verify(gpus[5], gpus[5].memory)), "many zero at 0", "nothing came");
        }) == "ok");
}

TEST_CASE("simulated CUDA: each fault shows as what it is") {
  struct Row {
    json fault;
    std::string push, pull, stored, loaded;  ///< what the owner sees; of a load, the reader
  };
  const std::string kClean = "clean";
  const auto row = [](json fault) {
    fault["from"] = 0;
    fault["to"] = 1;
    return fault;
  };
  const std::vector<Row> rows = {
      {row({{"kind", "wrong-byte"}, {"at", 100}}), "many other at 160", "many other at 160", "one other at 96",
       "one other at 96"},
      {row({{"kind", "wrong-byte"}, {"at", 100}, {"engine", "store"}}), kClean, kClean, "one other at 96", kClean},
      {row({{"kind", "dead-direction"}}), "many poison at 64", "many ones at 64", "many poison at 64",
       "many ones at 0"},
      {row({{"kind", "lost-stores"}}), kClean, kClean, "many poison at 64", kClean},
      {row({{"kind", "private-mirror"}}), kClean, kClean, "many poison at 64", kClean},
      {row({{"kind", "alias"}, {"at", 262144}, {"engine", "copy"}}), "many other at 0", "many other at 0", kClean,
       kClean},
      {row({{"kind", "misroute"}, {"other", 2}}), "many poison at 64", "many poison at 64", "many poison at 64",
       "many zero at 0"},
      {row({{"kind", "stale"}}), "many poison at 8192", "many poison at 8192", kClean, "many zero at 0"},
      {row({{"kind", "dead-direction"}, {"after", 1000}}), kClean, kClean, kClean, kClean},
      {{{"kind", "lost-stores"}, {"from", 1}, {"to", 0}}, kClean, kClean, kClean, kClean},
  };
  for (const Row& expected : rows) {
    INFO(expected.fault.dump());
    CHECK(on_gpus(with_fault(expected.fault), [&](const Cuda&, std::vector<Gpu>& gpus) {
            poison(gpus[1], kIn);
            copy(gpus[0], gpus[0], gpus[1]);
            same(word_of(verify(gpus[1], gpus[1].memory + kIn)), expected.push, "push");
            poison(gpus[1], kIn);
            copy(gpus[1], gpus[0], gpus[1]);
            same(word_of(verify(gpus[1], gpus[1].memory + kIn)), expected.pull, "pull");
            poison(gpus[1], kIn);
            store(gpus[0], gpus[1]);
            same(word_of(verify(gpus[1], gpus[1].memory + kIn)), expected.stored, "store");
            poison(gpus[0], kIn);
            gpus[0].launch("store", 4, kStrip.count, gpus[0].memory + kIn, kStrip, kKey, u32{8},
                           StoreFault{~0ULL, ~0ULL});
            gpus[0].sync();
            same(word_of(verify(gpus[1], gpus[0].memory + kIn)), expected.loaded, "load");
          }) == "ok");
  }
}

TEST_CASE("simulated CUDA: a mirror shows its owner nothing, and what is late comes") {
  CHECK(on_gpus(with_fault({{"kind", "private-mirror"}, {"from", 0}, {"to", 1}}),
                [](const Cuda&, std::vector<Gpu>& gpus) {
                  poison(gpus[1], kIn);
                  store(gpus[0], gpus[1]);
                  same(word_of(verify(gpus[0], gpus[1].memory + kIn)), "clean", "what the writer reads back");
                  same(word_of(verify(gpus[1], gpus[1].memory + kIn)), "many poison at 64", "what the owner sees");
                }) == "ok");
  for (const bool copies : {false, true}) {
    CHECK(on_gpus(with_fault({{"kind", "late"}, {"from", 0}, {"to", 1}}), [&](const Cuda&, std::vector<Gpu>& gpus) {
            poison(gpus[1], kIn);
            copies ? copy(gpus[0], gpus[0], gpus[1]) : store(gpus[0], gpus[1]);
            same(word_of(verify(gpus[1], gpus[1].memory + kIn)), "many poison at 64", "at once");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            same(word_of(verify(gpus[1], gpus[1].memory + kIn)), "clean", "after 10 ms");
          }) == "ok");
  }
}

TEST_CASE("simulated CUDA: a dead direction ends handshakes by the clock") {
  CHECK(on_gpus(with_fault({{"kind", "dead-direction"}, {"from", 1}, {"to", 0}}),
                [](const Cuda&, std::vector<Gpu>& gpus) {
                  const Hands hands = shake(gpus[0], gpus[1], kPush, 100);
                  same(hands.sender.timeouts + hands.receiver.timeouts, 2, "timeouts");
                  same(hands.receiver.right, kMailBytes, "one round came");
                  same(hands.timing.rounds, 0, "none was acknowledged");
                }) == "ok");
}

TEST_CASE("simulated CUDA: atomics lose updates, or end the context") {
  const auto contend = [](const std::vector<Gpu>& gpus) {
    gpus[0].launch("contend", 2, 1, gpus[1].memory + kSeenAt, gpus[1].memory + kSeenAt + 8, gpus[0].memory, u64{50});
  };
  CHECK(on_gpus(with_fault({{"kind", "atomics-wrong"}}), [&](const Cuda&, std::vector<Gpu>& gpus) {
          contend(gpus);
          gpus[0].sync();
          need(gpus[1].read<u64>(kSeenAt) < 64 * 1275, "no update was lost");
        }) == "ok");
  CHECK(on_gpus(with_fault({{"kind", "atomics-fault"}, {"from", 0}}), [&](const Cuda& cuda, std::vector<Gpu>& gpus) {
          contend(gpus);
          same(cuda.cuStreamSynchronize(gpus[0].stream), CUDA_ERROR_ILLEGAL_ADDRESS, "contend");
          gpus[1].sync();
        }) == "ok");
}

TEST_CASE("simulated CUDA: a hang never ends, an Xid is in the kernel log") {
  const auto cross = [](const Cuda&, std::vector<Gpu>& gpus) { store(gpus[0], gpus[1]); };
  CHECK(on_gpus(with_fault({{"kind", "hang"}, {"from", 0}, {"to", 1}}), cross, 2000) == "never ends");
  CHECK(on_gpus(with_fault({{"kind", "hang"}, {"from", 1}, {"to", 0}}), cross) == "ok");
  // a process that ends in spite of it is not held up
  CHECK(on_gpus(with_fault({{"kind", "hang"}, {"from", 0}, {"to", 1}}), [](const Cuda&, std::vector<Gpu>& gpus) {
          gpus[0].launch("store", 1, 1, gpus[1].memory, kStrip, kKey, u32{8}, StoreFault{~0ULL, ~0ULL});
        }) == "ok");
  const test::TemporaryDirectory directory;
  json machine = with_fault({{"kind", "xid"}, {"from", 0}, {"to", 1}});
  machine["kernel_log"] = directory / "kmsg";
  CHECK(on_gpus(machine, [&](const Cuda&, std::vector<Gpu>& gpus) {
          poison(gpus[1], kIn);
          for (int again = 0; again < 2; ++again) store(gpus[0], gpus[1]);
          same(word_of(verify(gpus[1], gpus[1].memory + kIn)), "clean", "data");
        }) == "ok");
  std::ifstream log(directory / "kmsg");
  std::string line;
  std::getline(log, line);
  CHECK(line.find(",-;NVRM: Xid (PCI:0000:01:00): 31, pid=") != std::string::npos);
  CHECK_FALSE(std::getline(log, line));
}

TEST_CASE("simulated CUDA: mapped and pooled memory wants access of its own") {
  CHECK(on_gpus(machine_of(3), [](const Cuda& cuda, std::vector<Gpu>& gpus) {
          CUmemAllocationProp property{};
          property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
          property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
          std::size_t unit = 0;
          ok(cuda.cuMemGetAllocationGranularity(&unit, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
          CUdeviceptr at = 0;
          ok(cuda.cuMemAddressReserve(&at, 2 * unit, 0, 0, 0));
          std::array<CUmemGenericAllocationHandle, 2> pieces{};
          for (std::size_t i = 0; i < 2; ++i) {
            ok(cuda.cuMemCreate(&pieces[i], unit, &property, 0));
            ok(cuda.cuMemMap(at + i * unit, unit, 0, pieces[i], 0));
            ok(cuda.cuMemRelease(pieces[i]));
          }
          const CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                          {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
          ok(cuda.cuMemSetAccess(at, 2 * unit, both, 2));
          gpus[0].launch("fill", 4, 1, at, 2 * unit / 8, kKey);
          gpus[0].sync();
          u64 word = 0;
          ok(cuda.cuMemcpyDtoH(&word, at + unit, 8));
          same(word, pattern(kKey, unit / 8), "second piece");

          CUmemPoolProps pooled{};
          pooled.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
          pooled.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
          CUmemoryPool pool = nullptr;
          CUdeviceptr inside = 0;
          ok(cuda.cuMemPoolCreate(&pool, &pooled));
          ok(cuda.cuMemPoolSetAccess(pool, both, 1));
          gpus[1].use();
          ok(cuda.cuMemAllocFromPoolAsync(&inside, kMiB, pool, gpus[1].stream));
          gpus[0].launch("fill", 4, 1, inside, kMiB / 8, kKey);
          gpus[0].sync();
          gpus[1].use();
          ok(cuda.cuMemFreeAsync(inside, gpus[1].stream));
          gpus[1].sync();
          ok(cuda.cuMemPoolDestroy(pool));

          gpus[2].launch("fill", 4, 1, at, u64{8}, kKey);
          same(cuda.cuStreamSynchronize(gpus[2].stream), CUDA_ERROR_ILLEGAL_ADDRESS, "a GPU without access");
          ok(cuda.cuMemUnmap(at, 2 * unit));
          ok(cuda.cuMemAddressFree(at, 2 * unit));
          std::size_t free = 0;
          std::size_t total = 0;
          gpus[1].use();
          ok(cuda.cuMemGetInfo(&free, &total));
          same(free, 40 * kMiB, "all is given back");
        }) == "ok");
}

namespace {

/// What goes from one process to the other; the descriptor of mapped memory travels beside it.
struct Shared {
  CUipcMemHandle legacy;
};

void send_with(int channel, const Shared& shared, int fd) {
  iovec data{const_cast<Shared*>(&shared), sizeof(shared)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  need(::sendmsg(channel, &message, 0) == sizeof(shared), "sendmsg");
}

int receive_with(int channel, Shared& shared) {
  iovec data{&shared, sizeof(shared)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  need(::recvmsg(channel, &message, 0) == sizeof(shared), "recvmsg");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return fd;
}

/// The other process: GPU 0 writes into what it was given of GPU 1.
void write_from_outside(int channel) {
  Shared shared{};
  const int fd = receive_with(channel, shared);
  const Cuda cuda;
  ok(cuda.cuInit(0));
  const Gpu gpu(cuda, 0);
  CUdeviceptr legacy = 0;
  const CUresult opened = cuda.cuIpcOpenMemHandle(&legacy, shared.legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened == CUDA_SUCCESS) {
    gpu.launch("fill", 4, 1, legacy, kMiB / 8, kKey);
    gpu.sync();
    ok(cuda.cuIpcCloseMemHandle(legacy));
  }
  CUmemGenericAllocationHandle piece = 0;
  CUdeviceptr at = 0;
  ok(cuda.cuMemImportFromShareableHandle(&piece, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(fd);
  ok(cuda.cuMemAddressReserve(&at, 2 * kMiB, 0, 0, 0));
  ok(cuda.cuMemMap(at, 2 * kMiB, 0, piece, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ok(cuda.cuMemSetAccess(at, 2 * kMiB, &access, 1));
  gpu.launch("fill", 4, 1, at, kMiB / 8, kKey + 1);
  gpu.sync();
  same(opened, CUDA_SUCCESS, "cuIpcOpenMemHandle");
}

/// GPU 1 of this process owns, another process writes; what that said, or what is wrong here.
std::string write_across(const json& machine) {
  std::array<int, 2> channel{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel.data()) == 0);
  const Child writer(machine, [&] { write_from_outside(channel[1]); });
  const Child owner(machine, [&] {
    const Cuda cuda;
    ok(cuda.cuInit(0));
    const Gpu gpu(cuda, 1);
    Shared shared{};
    ok(cuda.cuIpcGetMemHandle(&shared.legacy, gpu.memory));
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemGenericAllocationHandle piece = 0;
    CUdeviceptr at = 0;
    int fd = -1;
    ok(cuda.cuMemCreate(&piece, 2 * kMiB, &property, 0));
    ok(cuda.cuMemExportToShareableHandle(&fd, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ok(cuda.cuMemAddressReserve(&at, 2 * kMiB, 0, 0, 0));
    ok(cuda.cuMemMap(at, 2 * kMiB, 0, piece, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ok(cuda.cuMemSetAccess(at, 2 * kMiB, &access, 1));
    send_with(channel[0], shared, fd);
    ::close(fd);
    u64 word = 0;
    for (int wait = 0; wait < 1000 && word != pattern(kKey + 1, kMiB / 8 - 1); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ok(cuda.cuMemcpyDtoH(&word, at + kMiB - 8, sizeof(word)));
    }
    same(word, pattern(kKey + 1, kMiB / 8 - 1), "through a descriptor");
    same(gpu.read<u64>(kMiB - 8), pattern(kKey, kMiB / 8 - 1), "through a legacy handle");
  });
  for (const int end : channel) ::close(end);
  const std::string of_owner = owner.finish(60'000);
  return of_owner + "; " + writer.finish(60'000);
}

}  // namespace

TEST_CASE("simulated CUDA: memory is shared with another process") {
  CHECK(write_across(machine_of(2)) == "ok; ok");
  const std::string refused = write_across(with_fault({{"kind", "ipc"}}, 2));
  CHECK(refused.find("through a legacy handle: 0 instead of") != std::string::npos);
  CHECK(refused.find("; cuIpcOpenMemHandle: 1 instead of 0") != std::string::npos);
}

TEST_CASE("simulated CUDA: what is given back leaves no thread and no descriptor behind") {
  CHECK(in_child(machine_of(2), [] {
          const Cuda cuda;
          ok(cuda.cuInit(0));
          const std::size_t threads = entries("/proc/self/task");
          const std::size_t files = entries("/proc/self/fd");
          for (int i = 0; i < 2; ++i) {
            const Gpu gpu(cuda, i);
            store(gpu, gpu);
            ok(cuda.cuMemFree(gpu.memory));
            ok(cuda.cuStreamDestroy(gpu.stream));
            ok(cuda.cuModuleUnload(gpu.module));
            ok(cuda.cuDevicePrimaryCtxRelease(i));
          }
          // a thread that was joined may still be listed for a moment
          for (int wait = 0; wait < 1000 && entries("/proc/self/task") != threads; ++wait)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          same(entries("/proc/self/task"), threads, "threads");
          same(entries("/proc/self/fd"), files, "files");
        }) == "ok");
}
