// SPDX-License-Identifier: MIT
// Faults of the simulated CUDA driver: each shows as on real cards that have it. And kernels that communicate, which
// some faults end.
#include <chrono>
#include <thread>

#include "sim_cuda.hpp"

using namespace p2pd;
using namespace p2pd::test::sim;

namespace {

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

}  // namespace

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
  // it does not delay a process that ends
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
