// SPDX-License-Identifier: MIT
#include <algorithm>

#include "bench_example.hpp"
#include "catch.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

/// The line of advice that starts with `start`, or nothing; more than one is a failure.
std::string line(const Report& report, std::string_view start) {
  std::string found;
  for (const std::string& text : advice(report)) {
    if (!text.starts_with(start)) continue;
    CHECK(found.empty());
    found = text;
  }
  return found;
}

void all_paths(Report& report, PathKind kind, const std::string& topology) {
  for (auto& row : report.paths) {
    for (Path& path : row) {
      path.kind = kind;
      path.topology = topology;
    }
  }
}

/// Four GPUs on one node of one socket, native atomics: nothing to gain.
Report content() {
  Report report = example(4);
  for (auto& gpu : report.machine["gpus"]) gpu.update({{"numa_node", 0}, {"local_cpulist", "0-31"}});
  all_paths(report, PathKind::pcie_switch, "PXB");
  for (Pair& pair : report.measurement.pairs) {
    pair.native_atomics = true;
    report.measurement.atomics.push_back({pair.from, pair.to, true, ""});
  }
  return report;
}

}  // namespace

TEST_CASE("bench advice: a machine with nothing to gain is only told what its atomics allow") {
  CHECK(advice(content()) ==
        std::vector<std::string>{"Expert parallelism (DeepEP), NVSHMEM and FlashInfer one-shot all-to-all can be used: "
                                 "native atomics, exact on 12 pairs"});
  CHECK(advice(example(1)).empty());
  CHECK(advice(Report()).empty());
}

TEST_CASE("bench advice: a run with a seeded fault advises nothing") {
  Report report = example(4);
  CHECK_FALSE(advice(report).empty());
  report.measurement.fault = "skip-store";
  CHECK(advice(report).empty());
}

TEST_CASE("bench advice: NCCL's level by what is known of it, where it did not run") {
  Report report = example(4);
  CHECK(
      line(report, "NCCL") ==
      "NCCL_P2P_LEVEL=SYS: recent NCCL uses P2P up to PXB only, and 12 of 12 pairs are farther (GPU 0 -> GPU 2 crosses "
      "NUMA nodes); --collectives shows it");
  SECTION("one socket, one node") {
    all_paths(report, PathKind::one_socket, "NODE");
    CHECK(holds(line(report, "NCCL"), "NCCL_P2P_LEVEL=PHB: "));
    CHECK(holds(line(report, "NCCL"), "(GPU 0 -> GPU 1 passes the CPU)"));
  }
  SECTION("one socket of several nodes is far for NCCL") {
    all_paths(report, PathKind::one_socket, "SYS");
    CHECK(holds(line(report, "NCCL"), "NCCL_P2P_LEVEL=SYS: "));
  }
  SECTION("not proven") {
    report.judgement.proven = false;
    CHECK(line(report, "NCCL").empty());
  }
  SECTION("unknown paths") {
    report.paths.clear();
    CHECK(line(report, "NCCL").empty());
  }
  SECTION("NVLink") {
    for (Pair& pair : report.measurement.pairs) pair.nvlink_gb_s = 100;
    CHECK(line(report, "NCCL").empty());
  }
  SECTION("NVSwitch") {
    for (Gpu& gpu : report.measurement.gpus) gpu.nvlink_gb_s = 450;
    CHECK(line(report, "NCCL").empty());
  }
}

TEST_CASE("bench advice: on AMD hosts of two GPUs NCCL goes everywhere by itself") {
  Report report = example(2);
  CHECK(line(report, "NCCL").empty());
  report.paths[0][1].intel_root = true;
  CHECK(holds(line(report, "NCCL"), "NCCL_P2P_LEVEL=SYS: "));
}

TEST_CASE("bench advice: proven P2P that NCCL does not use is said loudly") {
  Report report = example(4);
  report.measurement.collectives = nccl({{"P2P/CUMEM", 4}, {"SHM/direct", 8}}, "", 14.6);
  CHECK(line(report, "NCCL") ==
        "NCCL_P2P_LEVEL=SYS: NCCL 2.28.3 DOES NOT USE PROVEN P2P by itself: SHM/direct x 8; GPU 0 -> GPU 2 is beyond "
        "PXB");
  report.measurement.collectives->p2p_level = "SYS";
  CHECK(line(report, "NCCL") ==
        "NCCL_DEBUG=INFO: NCCL 2.28.3 DOES NOT USE PROVEN P2P, even with NCCL_P2P_LEVEL=SYS: SHM/direct x 8; its log "
        "says "
        "why");
  report.measurement.collectives->transports = {{"P2P/CUMEM", 12}, {"SHM/direct", 0}};
  CHECK(line(report, "NCCL") ==
        "NCCL_P2P_LEVEL=SYS: with it NCCL 2.28.3 uses P2P only; all_reduce 512 MiB: 14.6 GB/s, 14.5 GB/s without P2P");
  report.measurement.collectives->p2p_level = "";
  CHECK(line(report, "NCCL").empty());
}

TEST_CASE("bench advice: P2P across sockets that host memory beats is not wanted") {
  Report report = example(4);
  report.measurement.pairs[1].copy_gb_s = figure(19.0);  // 0 -> 2, staged 21.4
  const std::string wanted =
      "NCCL_P2P_LEVEL=PHB: across NUMA nodes P2P is slower than copies through host memory on 1 of 8 pairs (GPU 0 -> "
      "GPU "
      "2: 19.0 against 21.4 GB/s)";
  CHECK(line(report, "NCCL") == wanted);
  SECTION("NCCL that stays away from it, by itself or because it was told to") {
    report.measurement.collectives = nccl({{"SHM/direct", 8}}, "", 14.4);
    CHECK(line(report, "NCCL") == wanted);
    report.measurement.collectives->p2p_level = "PHB";
    CHECK(line(report, "NCCL") == wanted);
  }
  SECTION("NCCL that gains from it keeps it") {
    report.measurement.collectives = nccl({{"P2P/CUMEM", 8}}, "SYS", 20.6);
    CHECK(holds(line(report, "NCCL"), "NCCL_P2P_LEVEL=SYS: with it"));
    report.measurement.collectives = nccl({{"P2P/CUMEM", 8}}, "SYS", 12);
    CHECK(line(report, "NCCL") == wanted);
  }
  SECTION("noise is no evidence") {
    report.measurement.pairs[1].copy_gb_s = figure(21.3);
    CHECK(holds(line(report, "NCCL"), "NCCL_P2P_LEVEL=SYS: "));
  }
}

TEST_CASE("bench advice: wrong data switches P2P off") {
  Report report = example(2);
  CHECK(line(report, "NCCL_P2P_DISABLE").empty());
  report.judgement.proven = false;
  SECTION("on a pair") {
    report.measurement.wrong.push_back({"store", 1, 0, 8, 0, 1, WrongKind::lost, "", "", ""});
    report.measurement.wrong.push_back({"load", 1, 0, 8, 0, 1, WrongKind::lost, "", "", ""});
    CHECK(holds(line(report, "NCCL_P2P_DISABLE=1"), ": wrong data on 1 pair (GPU 1 -> GPU 0: store lost)"));
  }
  SECTION("wrong data is said before an end, and an end is none") {
    report.measurement.wrong.push_back({"store", 1, 0, 0, 0, 0, WrongKind::hung, "", "", ""});
    CHECK(line(report, "NCCL_P2P_DISABLE=1").ends_with("repaired: GPU 1 -> GPU 0 did not answer in store"));
    report.measurement.wrong.push_back({"load", 0, 1, 8, 0, 1, WrongKind::lost, "", "", ""});
    CHECK(line(report, "NCCL_P2P_DISABLE=1").ends_with(": wrong data on 1 pair (GPU 0 -> GPU 1: load lost)"));
  }
  SECTION("of the use that depends on the test") {
    report.measurement.wrong.push_back({kGraphReduce, 1, 0, 8, 0, 1, WrongKind::lost, "", "", ""});
    CHECK(line(report, "NCCL_P2P_DISABLE").empty());
    CHECK(
        holds(line(report, "--disable-custom-all-reduce of vLLM and SGLang"), "NCCL is not affected: wrong data on 1"));
    report.measurement.wrong = {{"atomics", 1, 0, 8, 0, 1, WrongKind::lost, "", "", ""}};
    CHECK(line(report, "--disable-custom-all-reduce").empty());
  }
  SECTION("in a collective, unless it is wrong without P2P, too") {
    report.measurement.collectives = nccl({{"P2P/CUMEM", 2}}, "", 20);
    report.measurement.collectives->results[0].wrong = 3;
    CHECK(holds(line(report, "NCCL_P2P_DISABLE=1"), ": all_reduce 512 MiB: 3 wrong elements"));
    report.measurement.collectives->results[1].wrong = 3;
    CHECK(line(report, "NCCL_P2P_DISABLE").empty());
  }
}

TEST_CASE("bench advice: parallelism by what atomics do") {
  Report report = content();
  SECTION("one pair without") {
    report.measurement.pairs[3].native_atomics = false;
    CHECK(line(report, "Tensor") ==
          "Tensor parallelism (NCCL rings, vLLM custom all-reduce) or expert parallelism over NCCL all-to-all, not "
          "NVSHMEM (DeepEP) nor FlashInfer one-shot all-to-all: atomics are NS on 1 of 12 pairs, normal for P2P over "
          "BAR1");
    CHECK(line(report, "Expert").empty());
  }
  SECTION("wrong ones") {
    report.measurement.atomics[0] = {0, 1, false, "sum 9 of 10"};
    CHECK(holds(line(report, "Tensor"), ": atomics failed, GPU 0 -> GPU 1: sum 9 of 10"));
    CHECK(line(report, "Expert").empty());
  }
  SECTION("claimed, not tested") {
    report.measurement.atomics.pop_back();
    CHECK(advice(report).empty());
  }
  SECTION("nothing proven") {
    report.judgement.proven = false;
    CHECK(advice(report).empty());
  }
}

TEST_CASE("bench advice: pinning where GPUs sit on several nodes") {
  Report report = content();
  report.machine["gpus"][3].update({{"numa_node", 1}, {"local_cpulist", "32-63"}});
  CHECK(line(report, "numactl --cpunodebind=0") ==
        "numactl --cpunodebind=0 --membind=0 for GPUs 0, 1, 2: on NUMA node 0 (CPUs 0-31)");
  CHECK(line(report, "numactl --cpunodebind=1") ==
        "numactl --cpunodebind=1 --membind=1 for GPU 3: on NUMA node 1 (CPUs 32-63)");
  report.machine["gpus"][3]["numa_node"] = -1;  // the kernel's value for an unknown node
  CHECK(line(report, "numactl").empty());
  report.machine["gpus"][3].erase("numa_node");
  CHECK(line(report, "numactl").empty());
  report.machine["gpus"] = "none";
  CHECK(line(report, "numactl").empty());
}

TEST_CASE("bench advice: the order of devices matters with mixed cards") {
  Report report = content();
  CHECK(line(report, "CUDA_DEVICE_ORDER").empty());
  report.measurement.gpus[1].name = "NVIDIA GeForce RTX 3090";
  CHECK(holds(line(report, "CUDA_DEVICE_ORDER=PCI_BUS_ID"), "(NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090)"));
}

TEST_CASE("bench advice: GPUDirect RDMA only where there is a NIC") {
  Report report = content();
  CHECK(line(report, "GPUDirect").empty());
  report.machine["rdma_nics"] = {"0000:41:00.0"};
  CHECK(line(report, "GPUDirect") == "GPUDirect RDMA to NIC 0000:41:00.0: NVIDIA's own drivers refuse it on GeForce");
  for (Gpu& gpu : report.measurement.gpus) gpu.name = "NVIDIA RTX A6000";
  CHECK(line(report, "GPUDirect") == "GPUDirect RDMA is ready: NIC 0000:41:00.0, open modules (DMA-BUF)");
  report.machine["peermem_loaded"] = true;
  CHECK(line(report, "GPUDirect") == "GPUDirect RDMA is ready: NIC 0000:41:00.0, nvidia_peermem is loaded");
  report.machine["peermem_loaded"] = false;
  report.machine["open_modules"] = false;
  CHECK(line(report, "modprobe") ==
        "modprobe nvidia_peermem for GPUDirect RDMA: NIC 0000:41:00.0, and neither nvidia_peermem nor open modules");
  report.machine.erase("open_modules");
  CHECK(line(report, "modprobe").empty());
  CHECK(line(report, "GPUDirect").empty());
}
