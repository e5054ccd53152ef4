// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kGpudirectRdma;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Four RTX 3090 on two sockets and a NIC at c2:00.0, beside the GPU at c1:00.0.
struct Machine : ChangedRecord {
  Machine() : ChangedRecord("rtx3090-x4-epyc") {
    link("sys/bus/pci/devices/0000:c2:00.0/driver", "../../../../bus/pci/drivers/mlx5_core");
  }
  void infiniband() const { link("sys/class/infiniband/mlx5_0/device", "../../../0000:c2:00.0"); }
  void driver(const std::string& flavour, const std::string& kernel) const {
    file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX " + flavour + "x86_64  580.1\n");
    file("proc/sys/kernel/osrelease", kernel + "\n");
  }
  Finding look() const { return ChangedRecord::look(kGpudirectRdma); }
};

}  // namespace

TEST_CASE("gpudirect-rdma: without a GPU or a NIC there is nothing to say") {
  CHECK(ChangedRecord("no-gpu").look(kGpudirectRdma).verdict == Verdict::not_applicable);
  const Finding finding = ChangedRecord("h200-x4-vm").look(kGpudirectRdma);
  CHECK(finding.verdict == Verdict::not_applicable);
  CHECK(finding.facts["dma_buf"] == true);
  CHECK(finding.facts["peermem_loaded"] == false);
}

TEST_CASE("gpudirect-rdma: which NICs are ready, by which way, and how near") {
  const Machine machine;
  machine.driver("Open Kernel Module for ", "6.8.0-60-generic");
  Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["nics"][0]["ready"] == false);
  CHECK(holds(finding.summary, "0 of 1 RDMA NICs can reach VRAM by dma-buf; modprobe mlx5_ib: 0000:c2:00.0"));
  CHECK(holds(finding.summary, "NVIDIA's own drivers refuse it on GeForce"));

  machine.infiniband();
  finding = machine.look();
  CHECK(holds(finding.summary, "1 of 1 RDMA NICs can reach VRAM by dma-buf"));
  const nlohmann::json& nic = finding.facts["nics"][0];
  CHECK(nic["device"] == "mlx5_0");
  REQUIRE(nic["gpus"].size() == 4);
  CHECK(nic["gpus"][0] == nlohmann::json{{"address", "0000:01:00.0"}, {"kind", "cross_socket"}});
  CHECK(nic["gpus"][3] == nlohmann::json{{"address", "0000:c1:00.0"}, {"kind", "one_socket"}});
}

TEST_CASE("gpudirect-rdma: dma-buf needs open modules and Linux 5.12, nvidia_peermem neither") {
  const Machine machine;
  machine.infiniband();
  machine.driver("Open Kernel Module for ", "5.11.22");
  CHECK(machine.look().facts["dma_buf"] == false);
  CHECK(holds(machine.look().summary, "modprobe nvidia_peermem"));
  machine.driver("Open Kernel Module for ", "5.12.0-rc1");
  CHECK(machine.look().facts["dma_buf"] == true);
  machine.driver("", "6.8.0");
  CHECK(machine.look().facts["dma_buf"] == false);
  CHECK(machine.look().facts["way"] == nullptr);
  machine.file("sys/module/nvidia_peermem/version", "1\n");
  machine.file("sys/module/gdrdrv/version", "2.4\n");
  CHECK(machine.look().facts["way"] == "nvidia_peermem");
  CHECK(machine.look().facts["gdrcopy_loaded"] == true);
  machine.remove("sys/module/nvidia_peermem");
  machine.remove("proc/driver");
  CHECK(machine.look().facts["dma_buf"] == nullptr);
  CHECK(holds(machine.look().summary, "no NVIDIA driver is loaded"));
}

TEST_CASE("gpudirect-rdma: software devices and strange entries are no NICs") {
  const Machine machine;
  machine.remove("sys/bus/pci/devices/0000:c2:00.0/driver");
  machine.file("sys/class/infiniband/rxe0/node_type", "1: CA\n");
  machine.link("sys/class/infiniband/siw0/device", "../../virtual");
  CHECK(machine.look().verdict == Verdict::not_applicable);
  machine.link("sys/class/infiniband/irdma0/device", "../../../0000:c2:00.0");  // any driver that registers one
  CHECK(machine.look().facts["nics"][0]["device"] == "irdma0");
}

TEST_CASE("gpudirect-rdma: a record of the machine says the same") {
  const Machine machine;
  machine.infiniband();
  machine.file("sys/module/nvidia_peermem/srcversion", "1\n");
  machine.file("sys/module/gdrdrv/version", "2.4\n");
  const TemporaryDirectory directory;
  RecordedRunner runner(machine.root());
  test::record_into(Host(machine.root(), runner), directory / "copy");
  const Root root = Root::open(directory / "copy").value();
  const auto again = kGpudirectRdma.check(Host(root, runner), Parameters::object());
  CHECK(again->facts["gdrcopy_loaded"] == true);
  CHECK(again->facts["nics"][0]["device"] == "mlx5_0");
  CHECK(again->facts["peermem_loaded"] == true);
}
