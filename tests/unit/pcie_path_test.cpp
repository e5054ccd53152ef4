// SPDX-License-Identifier: MIT
#include "machine/hardware/pcie_path.hpp"

#include <linux/pci_regs.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "linked_machine.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;
using Machine = test::LinkedMachine;

TEST_CASE("bench path: rates by generation and payload") {
  struct Row {
    std::uint16_t root;
    int generation;
    int payload_code;
    double raw_gb_s;
    double share;
  };
  for (const Row& row : std::vector<Row>{{kAmd, 3, 0, 15.76, 0.842},
                                         {kAmd, 4, 1, 31.50, 0.914},
                                         {kAmd, 5, 2, 63.01, 0.955},
                                         {kAmd, 1, 1, 4.0, 0.914},
                                         {kIntel, 4, 1, 31.50, 0.727},
                                         {kIntel, 5, 2, 63.01, 0.727}}) {
    CAPTURE(row.root, row.generation, row.payload_code);
    Machine machine;
    add_two(machine, row.root, row.generation, row.payload_code);
    const Path path = machine.pair(kOne, kTwo);
    CHECK(path.raw_gb_s == Approx(row.raw_gb_s).epsilon(0.001));
    CHECK(path.payload_gb_s == Approx(row.raw_gb_s * row.share).epsilon(0.001));
    CHECK(path.intel_root == (row.root == kIntel));
  }
}

TEST_CASE("bench path: both ends of a link count") {
  Machine machine;
  machine.add({"0000:00:01.0", kRoot, 1, kAmd, 3, 16, 0});  // an old slot: Gen3, MaxPayload 128
  machine.add({"0000:00:02.0", kRoot, 2, kAmd, 5, 16, 2});
  machine.add({kOne});
  machine.add({kTwo});
  const Path path = machine.pair(kOne, kTwo);
  CHECK(path.arithmetic == "Gen3 x16 15.8 GB/s at 0000:01:00.0, MaxPayload 128: 84.2 %");
  CHECK(path.links[1].generation_most == 4);  // the card's
  CHECK(path.links[1].width_most == 16);
  CHECK(path.links[1].max_payload_bytes == 256);
}

TEST_CASE("bench path: a switch is the limit only for pairs that leave it") {
  Machine machine;
  add_switches(machine, 0);
  const auto paths = machine.look({"0000:03:00.0", "0000:04:00.0", "0000:13:00.0", "0000:14:00.0"}).value();
  CHECK(paths[0][1].kind == PathKind::pcie_switch);
  CHECK(paths[0][1].raw_gb_s == Approx(31.5).epsilon(0.001));
  CHECK(paths[0][1].shared == std::vector<std::string>{"0000:02:00.0", "0000:02:01.0"});
  CHECK(paths[0][2].raw_gb_s == Approx(7.876).epsilon(0.001));
  CHECK(paths[0][2].arithmetic == "Gen4 x4 7.9 GB/s at 0000:01:00.0, MaxPayload 256: 91.4 %");
  CHECK_FALSE(share(paths[0][1], paths[2][3]));
  CHECK(share(paths[0][2], paths[1][3]));
  CHECK(paths[0][1].parting == std::vector<std::string>{"0000:02:00.0", "0000:02:01.0"});
  CHECK(paths[0][2].parting == std::vector<std::string>{"0000:00:01.0", "0000:00:02.0"});
  CHECK(paths[0][2].links[1].upper == "0000:00:01.0");
}

TEST_CASE("bench path: redirection takes the uplink, and only its own bit does") {
  for (const int acs : {0x00, 0x11, 0x04, 0x1d}) {
    CAPTURE(acs);
    Machine machine;
    add_switches(machine, acs);
    const Path path = machine.pair("0000:03:00.0", "0000:04:00.0");
    CHECK((std::ranges::count(path.shared, "0000:00:01.0") == 1) == ((acs & PCI_ACS_RR) != 0));
    CHECK(path.kind == PathKind::pcie_switch);
  }
}

TEST_CASE("bench path: a socket is a CPU package, not a NUMA node") {
  Machine machine;
  add_two(machine, kAmd);
  machine.node(kOne, 0);
  machine.node(kTwo, 3);
  machine.file("sys/devices/system/node/node0/cpulist", "0-15,64-79\n");
  machine.file("sys/devices/system/node/node3/cpulist", "48-63\n");
  CHECK(machine.pair(kOne, kTwo).kind == PathKind::cross_socket);  // packages are not readable
  machine.file("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
  machine.file("sys/devices/system/cpu/cpu48/topology/physical_package_id", "0\n");
  CHECK(machine.pair(kOne, kTwo).kind == PathKind::one_socket);
  machine.file("sys/devices/system/cpu/cpu48/topology/physical_package_id", "1\n");
  const Path across = machine.pair(kOne, kTwo);
  CHECK(across.kind == PathKind::cross_socket);
  CHECK(across.shared == std::vector<std::string>{"0000:00:01.0", "0000:00:02.0", "socket 0", "socket 1"});
  machine.node(kTwo, -1);  // not known which of the two nodes
  CHECK(machine.pair(kOne, kTwo).kind == PathKind::unknown);
  CHECK(machine.pair(kOne, kTwo).payload_gb_s > 0);
}

TEST_CASE("bench path: the class that nvidia-smi prints") {
  Machine machine;
  add_switches(machine, -1);
  const auto gpu = [](int bus) { return fmt::format("0000:{:02x}:00.0", bus); };
  CHECK(machine.pair(gpu(0x03), gpu(0x04)).topology == "PIX");
  CHECK(machine.pair(gpu(0x03), gpu(0x13)).topology == "PHB");  // two ports of one root
  machine.add({"0000:80:01.0", kRoot, 0x81, kAmd, 4, 16, 1});
  machine.add({"0000:81:00.0"});
  machine.node(gpu(0x03), 0);
  machine.node(gpu(0x81), 0);
  CHECK(machine.pair(gpu(0x03), gpu(0x81)).topology == "NODE");
  machine.node(gpu(0x81), 1);
  CHECK(machine.pair(gpu(0x03), gpu(0x81)).topology == "SYS");
  Machine cascade;  // a switch below a switch
  cascade.add({"0000:00:01.0", kRoot, 1, kAmd, 4, 16, 1});
  cascade.add({"0000:01:00.0", kUp, 2, 0x1000, 4, 16, 1});
  cascade.add({"0000:02:00.0", kDown, 3, 0x1000, 4, 16, 1});
  cascade.add({"0000:02:01.0", kDown, 4, 0x1000, 4, 16, 1});
  cascade.add({"0000:03:00.0"});
  cascade.add({"0000:04:00.0", kUp, 5, 0x1000, 4, 16, 1});
  cascade.add({"0000:05:00.0", kDown, 6, 0x1000, 4, 16, 1});
  cascade.add({"0000:06:00.0"});
  CHECK(cascade.pair(gpu(0x03), gpu(0x06)).topology == "PXB");
}

TEST_CASE("bench path: a virtual machine shows the GPUs' links only") {
  Machine machine;
  add_two(machine, kQemu);
  const Path path = machine.pair(kOne, kTwo);
  CHECK(path.kind == PathKind::unknown);
  CHECK(path.links.size() == 2);
  CHECK(path.links[0].generation_most == 4);  // the emulated port's own register does not count
  CHECK(path.shared == std::vector<std::string>{"unseen"});
  CHECK(path.parting.empty());
  CHECK(path.links[0].upper.empty());
  CHECK(path.arithmetic.ends_with("only the GPUs' own links are visible"));
}

TEST_CASE("bench path: what cannot be read has no rate, and says so") {
  Machine machine;
  add_two(machine, kAmd);
  machine.add("0000:00:03.0", config_of({"", kRoot, 3, kAmd}));
  machine.add("0000:03:00.0", std::vector<std::uint8_t>(256, 0xff));  // fell off the bus
  auto cut = config_of({""});
  cut.resize(64);
  machine.add("0000:00:04.0", config_of({"", kRoot, 4, kAmd}));
  machine.add("0000:04:00.0", cut);  // read by a user
  auto loop = config_of({""});
  loop[0x51] = 0x50;
  machine.add("0000:00:05.0", config_of({"", kRoot, 5, kAmd}));
  machine.add("0000:05:00.0", loop);
  auto nonsense = config_of({""});
  nonsense[0x6c] = 0x0f;
  machine.add("0000:00:06.0", config_of({"", kRoot, 6, kAmd}));
  machine.add("0000:06:00.0", nonsense);
  for (const std::string other : {"0000:03:00.0", "0000:04:00.0", "0000:05:00.0", "0000:06:00.0"}) {
    const Path path = machine.pair(kOne, other);
    CHECK(path.kind == PathKind::one_socket);
    CHECK(path.raw_gb_s == 0);
    CHECK(path.payload_gb_s == 0);
    CHECK(path.arithmetic == "link of " + other + " not readable (root could)");
  }
  CHECK(machine.pair(kOne, "0000:77:00.0").arithmetic == "0000:77:00.0 is not on the PCI bus");
  CHECK(machine.pair(kOne, "").kind == PathKind::unknown);
  CHECK(machine.pair(kOne, kOne).raw_gb_s == 0);
  CHECK(machine.look({}).value().empty());
}

TEST_CASE("bench path: bridges in a ring end") {
  Machine machine;
  machine.add({"0000:01:00.0", kUp, 2, kAmd});
  machine.add({"0000:02:00.0", kUp, 1, kAmd});
  machine.add({"0000:02:01.0", kUp, 2, kAmd});
  machine.add({"0000:02:02.0"});
  machine.add({"0000:01:01.0"});
  CHECK(machine.pair("0000:02:02.0", "0000:01:01.0").links.size() >= 2);
}

TEST_CASE("bench path: what is below a bridge") {
  const auto at = [](const std::string& address, int first = 0, int last = 0) {
    PciDevice device;
    device.address = address;
    device.config.assign(64, 0);
    device.config[0x19] = static_cast<std::uint8_t>(first);
    device.config[0x1a] = static_cast<std::uint8_t>(last);
    return device;
  };
  const PciDevice bridge = at("0000:00:01.0", 0x09, 0x10);
  for (const char* inside : {"0000:09:00.0", "0000:0a:00.0", "0000:10:1f.7"})
    CHECK(PciTree::is_below(bridge, at(inside)));
  for (const char* outside : {"0000:08:00.0", "0000:11:00.0", "0000:00:01.0", "0001:09:00.0", "10000:09:00.0"})
    CHECK_FALSE(PciTree::is_below(bridge, at(outside)));
  CHECK(PciTree::is_below(at("10000:00:01.0", 1, 1), at("10000:01:00.0")));
}

TEST_CASE("bench path: no bytes crash or hang it") {
  std::mt19937 random(7);
  const auto byte = [&] { return static_cast<std::uint8_t>(random()); };
  for (int round = 0; round < 30; ++round) {
    Machine machine;
    std::vector<std::string> gpus;
    for (int bus = 0; bus < 12; ++bus) {
      const std::string address = fmt::format("0000:{:02x}:00.0", bus);
      auto bytes = config_of({address, bus % 3 == 0 ? kGpu : kUp, static_cast<int>(random() % 12), kAmd, 4, 16, 1, 4});
      for (int change = 0; change < 24; ++change) bytes[0x10 + random() % 0xf4] = byte();
      machine.add(address, bytes);
      gpus.push_back(address);
    }
    const auto paths = machine.look(gpus);
    REQUIRE(paths);
    for (const auto& row : *paths) {
      for (const Path& path : row) CHECK((path.raw_gb_s >= 0 && path.payload_gb_s <= path.raw_gb_s));
    }
  }
}

TEST_CASE("bench path: NVLink") {
  const Path path = nvlink_path(478.1);
  CHECK(path.kind == PathKind::nvlink);
  CHECK(path.payload_gb_s == path.raw_gb_s);
  CHECK(path.arithmetic == "NVLink 478.1 GB/s");
}

TEST_CASE("bench path: listings from the field") {
  const char* corpus = std::getenv("P2PD_CORPUS");
  if (corpus == nullptr) {
    std::cout << "bench_path_test: P2PD_CORPUS is not set, no listings from the field\n";
    return;
  }
  std::size_t rated = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(corpus) / "pci")) {
    CAPTURE(entry.path().string());
    std::ifstream file(entry.path());
    Machine machine;
    machine.dump(std::string(std::istreambuf_iterator<char>(file), {}));
    const auto paths = machine.look({"0000:00:06.0", "0000:00:07.0"});
    if (!paths) {
      CHECK_FALSE(paths.error().message.empty());  // verbose listings are no dumps
      continue;
    }
    if ((*paths)[0][1].raw_gb_s > 0) ++rated;
    CHECK_FALSE((*paths)[0][1].arithmetic.empty());
  }
  CHECK(rated >= 1);
}
