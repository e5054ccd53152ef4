// SPDX-License-Identifier: MIT
// Groups of GPUs that can be peers, and GPUs that are alone.
#include "machine/hardware/peer_groups.hpp"
#include "machine/hardware/pcie_path.hpp"

#include <fmt/format.h>

#include "actions/registry.hpp"
#include "fake_gpu_host.hpp"
#include "machine/driver/ready.hpp"
#include "machines.hpp"
#include "plan/config.hpp"
#include "plan/journalled_plan.hpp"
#include "plan/plan.hpp"
#include "plan/resolve.hpp"
#include "probes/registry.hpp"

using namespace p2pd;

namespace {

Registry registry() { return {probes(), actions()}; }

constexpr char kSeven[] = "rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000";

std::vector<PciDevice> cards(const std::vector<std::uint16_t>& ids) {
  std::vector<PciDevice> devices;
  for (const std::uint16_t id : ids) {
    PciDevice gpu;
    gpu.address = fmt::format("0000:{:02x}:00.0", devices.size() + 1);
    gpu.vendor_id = 0x10de;
    gpu.device_id = id;
    gpu.class_code = 0x030000;
    devices.push_back(gpu);
  }
  divide_into_groups(devices);
  return devices;
}

Plan geforce(const std::string& gpus = "{}") {
  const Plan base = load_plan({}, P2PD_SOURCE_DIR "/config/plans/geforce-p2p.yaml", registry()).value();
  return parse_plan(fmt::format("name: x\ntitle: x\nbased_on: base\ngpus: {}\n", gpus), "x", registry(),
                    [&](const std::string&) { return base; })
      .value();
}

/// Reasons of the GPUs of a record that are alone under the plan geforce-p2p.
std::string alone_on(const std::string& record, Plan plan = geforce()) {
  const test::ChangedRecord machine(record);
  RecordedRunner runner(machine.root());
  Host host(machine.root(), runner);
  choose_gpus(host, plan, registry());
  std::string text;
  const std::vector<PciDevice> devices = pci_devices(host).value();
  for (const PciDevice& gpu : devices)
    if (is_alone(gpu)) text += fmt::format("{} {}\n", gpu.address, gpu.left_out);
  return text;
}

}  // namespace

TEST_CASE("peer groups: one of each generation with two cards, the largest first") {
  constexpr std::uint16_t k3090 = 0x2204, kA6000 = 0x2230, k4090 = 0x2684, k5090 = 0x2b85, k2080Ti = 0x1e04,
                          k1030 = 0x1d01, kUnknown = 0x7001, kOfItsBlock = 0x7002;
  struct Row {
    std::vector<std::uint16_t> ids;
    std::string text;
  };
  const Row rows[] = {
      {{}, ""},
      {{k4090}, "RTX 4090"},
      {{k4090, k4090}, "2 x RTX 4090"},
      {{k3090, k4090}, "RTX 3090 and RTX 4090"},
      {{k3090, k4090, k5090}, "RTX 3090 and RTX 4090 and RTX 5090"},
      {{k2080Ti, k2080Ti}, "2 x RTX 2080 Ti"},
      {{k4090, k4090, k3090}, "2 x RTX 4090; RTX 3090 alone"},
      {{k1030, k4090, k4090}, "2 x RTX 4090; GT 1030 alone"},
      {{k4090, k4090, k3090, k3090}, "2 x RTX 4090; 2 x RTX 3090"},
      {{k4090, k4090, k3090, k3090, kA6000}, "2 x RTX 3090 and RTX A6000; 2 x RTX 4090"},
      {{k4090, k4090, k2080Ti, k2080Ti}, "2 x RTX 4090; 2 x RTX 2080 Ti alone"},
      {{k4090, k4090, kUnknown}, "2 x RTX 4090; 10de:7001 alone"},
      {{kUnknown, kOfItsBlock}, "10de:7001 and 10de:7002"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text, row.ids);
    CHECK(groups_text(cards(row.ids)) == row.text);
  }
  const std::vector<PciDevice> two = cards({k4090, k4090, k3090, k3090, k1030});
  CHECK(may_be_peers(two[0], two[1]));
  CHECK_FALSE(may_be_peers(two, "0000:01:00.0", "0000:03:00.0"));
  CHECK(may_be_peers(two, "0000:01:00.0", "0000:77:00.0"));
  CHECK(nvidia_gpus(two).size() == 4);
  const std::vector<PciDevice> none = cards({k3090, k4090});
  CHECK(may_be_peers(none[0], none[1]));  // no two can be peers: a gate says why
}

TEST_CASE("peer groups: a card that a gate shows to be in the way is alone, if two others are left") {
  CHECK(test::holds(alone_on("rtx3090-x4-one-small-bar1"),
                    "0000:04:00.0 alone: BAR1 does not cover its VRAM: the card has no Resizable BAR capability"));
  CHECK(test::holds(alone_on("rtx5090-x3-display"),
                    "0000:01:00.0 alone: it drives card0-DP-1: P2P with it may copy garbage"));
  CHECK(alone_on("rtx4090-x2-gt1030") ==
        "0000:03:00.0 alone: P2P over PCIe is known from Ampere on, and it is of Pascal\n");
  CHECK(alone_on(kSeven).empty());
  CHECK(alone_on("rtx4090-x2-uefi-console").empty());
  CHECK(alone_on("rtx4090-x4-one-lost").empty());  // it can hang the driver: a person has to look
  CHECK(alone_on("rtx3090-x4-one-small-bar1", geforce("{exclude: [\"0000:01:00.0\", \"0000:02:00.0\"]}")).empty());
  CHECK(alone_on("rtx3090-x4-one-small-bar1", geforce("{require: all}")).empty());
  CHECK(alone_on("rtx4090-x2-gt1030", geforce("{require: all}")).empty());
}

TEST_CASE("peer groups: what a run decided stays, over its boots, whatever the machine then shows") {
  const test::ChangedRecord small("rtx3090-x4-one-small-bar1"), healthy("rtx3090-x4-bridged");
  RecordedRunner runner(small.root()), later(healthy.root());
  Host host(small.root(), runner), other(healthy.root(), later);
  Plan plan = geforce();
  choose_gpus(host, plan, registry());
  REQUIRE(plan.gpus.alone);
  REQUIRE(plan.gpus.alone->contains("0000:04:00.0"));
  Plan read = read_journalled_plan(journal_text(plan), "x", registry()).plan;
  CHECK(read.gpus.alone == plan.gpus.alone);
  choose_gpus(other, read, registry());
  CHECK(nvidia_gpus(pci_devices(other).value()).size() == 3);
  Plan anew = geforce();
  choose_gpus(other, anew, registry());
  CHECK(nvidia_gpus(pci_devices(other).value()).size() == 4);
}

TEST_CASE("peer groups: a card without a peer left is alone, too") {
  const test::ChangedRecord machine(kSeven);
  RecordedRunner runner(machine.root());
  Host host(machine.root(), runner);
  Plan plan = geforce("{exclude: [\"0000:01:00.0\"]}");
  choose_gpus(host, plan, registry());
  CHECK(groups_text(pci_devices(host).value()) == "2 x RTX 3090 and RTX A6000; 2 x RTX 4090; RTX 5090 alone");
}

TEST_CASE("peer groups: the proof's file names them, and containers get a device for each") {
  const test::ChangedRecord machine(kSeven);
  RecordedRunner runner(machine.root());
  Host host(machine.root(), runner);
  REQUIRE(announce(host, {.limited = false, .fit_for = {"nccl"}, .summary = "proven"}));
  const std::vector<ProvenGroup> groups = require_proof(host).value().groups;
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].name == "ampere");
  CHECK(groups[0].gpus.size() == 3);
  CHECK(groups[1].name == "ada");
  CHECK(groups[1].uuids.size() == 2);
  const auto specification = nlohmann::json::parse(host.files().read("/run/cdi/p2pd.json").value());
  std::vector<std::string> names;
  for (const auto& device : specification["devices"]) names.push_back(device["name"]);
  CHECK(names == std::vector<std::string>{"ready", "ampere", "ada", "blackwell"});
  CHECK(specification["devices"][2]["containerEdits"]["env"].back() ==
        fmt::format("CUDA_VISIBLE_DEVICES={},{}", groups[1].uuids[0], groups[1].uuids[1]));
  REQUIRE(withdraw_ready(host));
}

TEST_CASE("peer groups: a card that was pulled makes the old proof invalid, and is named") {
  const test::FakeGpuHost machine;
  machine.port("0000:00:03.0", 3);
  machine.gpu("0000:00:03.0/0000:03:00.0", 0x2684);
  test::FakeRunner runner;
  Host host(Root::open(machine.root()).value(), runner);
  REQUIRE(announce(host, {.limited = false, .fit_for = {"nccl"}, .summary = "proven"}));
  REQUIRE(require_proof(host));
  machine.remove("sys/bus/pci/devices/0000:03:00.0");
  const auto proof = require_proof(host);
  REQUIRE_FALSE(proof);
  CHECK(test::holds(proof.error().message, "gpus; gone, with every pair of it: 0000:03:00.0"));
}
