// SPDX-License-Identifier: MIT
#include "machine/hardware/pcie_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr std::uint16_t kAmd = 0x1022;
constexpr std::uint16_t kIntel = 0x8086;
constexpr std::uint16_t kQemu = 0x1b36;
constexpr int kGpu = 1;  // port types: legacy endpoint, root port, upstream and downstream port of a switch
constexpr int kRoot = 4;
constexpr int kUp = 5;
constexpr int kDown = 6;

/// A function of a made machine.
struct Function {
  std::string address;
  int type = kGpu;
  int below = 0;  ///< bridges: number of the bus below
  std::uint16_t vendor = 0x10de;
  int generation = 4;
  int width = 16;
  int payload_code = 1;  ///< MaxPayload 128 << code
  int acs = -1;          ///< control register; -1: no capability
  int idle_generation = 1;
};

std::vector<std::uint8_t> config_of(const Function& f) {
  std::vector<std::uint8_t> bytes(4096, 0);
  const auto word = [&](std::size_t at, int value) {
    bytes[at] = static_cast<std::uint8_t>(value);
    bytes[at + 1] = static_cast<std::uint8_t>(value >> 8);
  };
  word(0x00, f.vendor);
  word(0x02, 0x2684);
  word(0x06, 0x10);
  word(0x0a, f.type == kGpu ? 0x0300 : 0x0604);
  bytes[0x0e] = f.type == kGpu ? 0 : 1;
  bytes[0x19] = static_cast<std::uint8_t>(f.below);
  bytes[0x34] = 0x50;  // power management, then PCI Express
  word(0x50, 0x6001);
  word(0x60, 0x0010);
  word(0x62, 2 | f.type << 4);
  word(0x68, f.payload_code << 5);
  word(0x6c, f.generation | 16 << 4);
  word(0x72, f.idle_generation | f.width << 4);
  if (f.acs >= 0) {
    word(0x100, 0x000d);
    word(0x102, 1);
    word(0x106, f.acs);
  }
  return bytes;
}

/// A machine whose functions are given; files can be added.
class Machine {
 public:
  void add(const Function& f) { add(f.address, config_of(f)); }
  void add(const std::string& address, const std::vector<std::uint8_t>& bytes) {
    text_ += address + " function\n";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 16 == 0) text_ += fmt::format("{:02x}:", i);
      text_ += fmt::format(" {:02x}{}", bytes[i], i % 16 == 15 ? "\n" : "");
    }
    text_ += '\n';
  }
  void dump(const std::string& text) { text_ = text; }
  void file(const std::string& path, const std::string& content) {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  void node(const std::string& address, int node) {
    file("sys/bus/pci/devices/" + address + "/numa_node", fmt::format("{}\n", node));
  }
  Result<std::vector<std::vector<Path>>> look(const std::vector<std::string>& gpus) {
    file("lspci-xxxx.txt", text_);
    const Root root = Root::open(directory_.path()).value();
    RecordedRunner runner(root);
    return paths_between(Host(root, runner), gpus);
  }
  Path pair(const std::string& one, const std::string& other) { return look({one, other}).value()[0][1]; }

 private:
  test::TemporaryDirectory directory_;
  std::string text_;
};

/// Two GPUs, 01:00.0 and 02:00.0, each below a root port of `vendor`.
void add_two(Machine& machine, std::uint16_t vendor, int generation = 4, int payload_code = 1, int width = 16) {
  for (int i = 1; i <= 2; ++i) {
    machine.add({fmt::format("0000:00:0{}.0", i), kRoot, i, vendor, 5, width, 2});
    machine.add({fmt::format("0000:0{}:00.0", i), kGpu, 0, 0x10de, generation, width, payload_code});
  }
}

/// Two switches below a root port each, two GPUs below each switch: 03, 04 and 13, 14. Uplinks are x4.
void add_switches(Machine& machine, int acs) {
  for (const int base : {0x00, 0x10}) {
    const auto at = [&](int bus) { return fmt::format("0000:{:02x}:00.0", base + bus); };
    machine.add({fmt::format("0000:00:{:02x}.0", base / 16 + 1), kRoot, base + 1, kAmd, 4, 4, 1});
    machine.add({at(1), kUp, base + 2, 0x1000, 4, 4, 1});
    for (int i = 0; i < 2; ++i) {
      machine.add({fmt::format("0000:{:02x}:{:02x}.0", base + 2, i), kDown, base + 3 + i, 0x1000, 4, 16, 1, acs});
      machine.add({at(3 + i)});
    }
  }
}

bool share(const Path& one, const Path& other) {
  return std::ranges::find_first_of(one.shared, other.shared) != one.shared.end();
}

const std::string kOne = "0000:01:00.0";
const std::string kTwo = "0000:02:00.0";

}  // namespace

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
    CHECK((std::ranges::count(path.shared, "0000:00:01.0") == 1) == ((acs & kAcsRequestRedirect) != 0));
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
  machine.node(kTwo, -1);  // which of the two nodes is not said
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
