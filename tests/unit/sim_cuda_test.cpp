// SPDX-License-Identifier: MIT
// The simulated CUDA driver, with which p2p-bench is tested, works as its README says: devices, code, engines, rates.
#include "sim_cuda.hpp"

using namespace p2pd::test::sim;

/// LeakSanitizer's hook: it cannot inspect a forked process, whose threads it does not know, and ends it with 1 if it
/// reads memory of a thread that has ended. The other sanitizers still see every error there.
extern "C" int __lsan_is_turned_off() { return in_forked_process ? 1 : 0; }

namespace {

void near(double seen, double wanted, const std::string& what) {
  need(std::abs(seen - wanted) <= 0.01 * wanted, fmt::format("{}: {} instead of {}", what, seen, wanted));
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

TEST_CASE("simulated CUDA: a graph does at each replay what was captured") {
  const auto reduce = [](const Cuda& cuda, std::vector<Gpu>& gpus) {
    constexpr u64 kWords = 1024;
    constexpr u64 kReplays = 4;
    std::array<CUgraphExec, 2> graphs{};
    for (std::size_t i = 0; i < 2; ++i) {
      const Gpu& own = gpus[i];
      const Gpu& peer = gpus[1 - i];
      own.use();
      ok(cuda.cuStreamBeginCapture(own.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      own.launch("all_reduce", kReduceBlocks, 1, peer.memory + kOut, peer.memory + kMail, own.memory + kOut,
                 own.memory + kMail, own.memory + kIn, kWords, kKey + i, kKey + 1 - i, kLimitNs, own.memory + kSeenAt);
      same(cuda.cuStreamSynchronize(own.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a wait while it captures");
      CUgraph graph = nullptr;
      ok(cuda.cuStreamEndCapture(own.stream, &graph));
      ok(cuda.cuGraphInstantiateWithFlags(&graphs[i], graph, 0));
      ok(cuda.cuGraphDestroy(graph));
      own.sync();
      same(own.read<Reduce>(kMail).replays[0], 0, "replays before the first launch");
    }
    for (u64 replay = 0; replay < kReplays; ++replay) {
      for (std::size_t i = 0; i < 2; ++i) {
        gpus[i].use();
        ok(cuda.cuGraphLaunch(graphs[i], gpus[i].stream));
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      gpus[i].sync();
      ok(cuda.cuGraphExecDestroy(graphs[i]));
      need(cuda.cuGraphLaunch(graphs[i], gpus[i].stream) != CUDA_SUCCESS, "a destroyed graph");
      const auto seen = gpus[i].read<Seen>(kSeenAt);
      const auto state = gpus[i].read<Reduce>(kMail);
      same(fmt::format("replays {} stopped {} right {} wrong {}", state.replays[kReduceBlocks - 1], state.stopped,
                       seen.right, seen.wrong),
           fmt::format("replays {} stopped 0 right {} wrong 0", kReplays, kReplays * kWords * 8), fmt::format("{}", i));
    }
  };
  CHECK(on_gpus(machine_of(2), reduce) == "ok");
  CHECK(on_gpus(with_fault({{"kind", "stale"}, {"from", 0}, {"to", 1}, {"engine", "load"}, {"graph", true}}), reduce) ==
        "1: replays 4 stopped 0 right 16384 wrong 2048 instead of replays 4 stopped 0 right 32768 wrong 0");
  const json flags = {{"kind", "lost-stores"}, {"from", 1}, {"to", 0}, {"graph", true}, {"after", 2}};
  CHECK(on_gpus(with_fault(flags), reduce).starts_with("0: replays 2 stopped 6 right 16384 wrong 0 instead"));
  // launches outside of a graph are not hit
  const json plain = {{"kind", "lost-stores"}, {"from", 0}, {"to", 1}, {"graph", true}};
  CHECK(on_gpus(with_fault(plain), [](const Cuda&, std::vector<Gpu>& gpus) {
          poison(gpus[1], kIn);
          store(gpus[0], gpus[1]);
          same(word_of(verify(gpus[1], gpus[1].memory + kIn)), "clean", "data");
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
