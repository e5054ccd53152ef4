// SPDX-License-Identifier: MIT
#include "machine/hardware/pci.hpp"

#include <fmt/format.h>

#include <random>
#include <tuple>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machines.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::TemporaryDirectory;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
const std::string kGpu = "/sys/bus/pci/devices/0000:01:00.0";

/// A host whose root is a directory; commands are not found.
struct Machine {
  explicit Machine(const fs::path& directory) : root(Root::open(directory).value()), runner(root), host(root, runner) {}
  Root root;
  RecordedRunner runner;
  Host host;
};

std::string rows(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 16 == 0) text += fmt::format("{:02x}:", i);
    text += fmt::format(" {:02x}{}", bytes[i], i % 16 == 15 ? "\n" : "");
  }
  return text + "\n";
}

void put(std::vector<std::uint8_t>& bytes, std::size_t offset, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes.at(offset + i) = static_cast<std::uint8_t>(value >> (8 * i));
}

/// An RTX 4090 with a Resizable BAR capability at 0x200: BAR1 32 GiB of 256 MiB, 16 GiB, 32 GiB.
std::vector<std::uint8_t> gpu_config() {
  std::vector<std::uint8_t> bytes(4096, 0);
  put(bytes, 0x00, 0x268410de);
  put(bytes, 0x08, 0x030000a1);
  put(bytes, 0x14, 0x0000000c);
  put(bytes, 0x100, 0x20010001);
  put(bytes, 0x200, 0x00010015);
  put(bytes, 0x204, (1U << 12) | (1U << 18) | (1U << 19));
  put(bytes, 0x208, 1U | (1U << 5) | (15U << 8));
  return bytes;
}

/// Writes the identity of the GPU that sysfs has without configuration space.
void put_identity(const TemporaryDirectory& directory) {
  directory.put(kGpu + "/vendor", "0x10de\n");
  directory.put(kGpu + "/device", "0x2684\n");
  directory.put(kGpu + "/class", "0x030000\n");
}

PciDevice device_of(std::vector<std::uint8_t> config) {
  PciDevice device;
  device.address = "0000:01:00.0";
  device.extended_readable = config.size() > 256;
  device.config = std::move(config);
  return device;
}

Result<std::vector<PciDevice>> devices_of_dump(const std::string& text) {
  const TemporaryDirectory directory;
  directory.put("lspci-xxxx.txt", text);
  return pci_devices(Machine(directory.path()).host);
}

}  // namespace

TEST_CASE("pci: a dump gives identity and configuration space") {
  const auto devices = devices_of_dump("01:00.0 VGA compatible controller\n" + rows(gpu_config()));
  REQUIRE(devices);
  REQUIRE(devices->size() == 1);
  const PciDevice& gpu = devices->front();
  CHECK(gpu.address == "0000:01:00.0");
  CHECK(gpu.vendor_id == 0x10de);
  CHECK(gpu.device_id == 0x2684);
  CHECK(gpu.class_code == 0x030000);
  CHECK(gpu.is_display());
  CHECK(gpu.config == gpu_config());
  CHECK(gpu.extended_readable);
  CHECK(nvidia_bar1(gpu) == 1);
}

TEST_CASE("pci: the real H200 record") {
  const Machine h200(test::machine_path("h200-x4-vm"));
  const auto devices = pci_devices(h200.host, PciDepth::everything);
  REQUIRE(devices);
  REQUIRE(devices->size() == 10);
  const PciDevice& gpu = (*devices)[6];
  CHECK(gpu.device_id == 0x2335);
  CHECK(gpu.class_code == 0x030200);
  CHECK(gpu.config.size() == 4096);
  CHECK((*devices)[1].config.size() == 256);
  // Its chain begins with capabilities of id 0, which a hypervisor hides behind.
  CHECK(gpu.extended_capability(0x0003) == 0x2f0);
  CHECK_FALSE(resizable_bar(gpu, 2));
  CHECK(nvidia_bar1(gpu) == 2);
  CHECK(pci_bar_bytes(h200.host, gpu, 2).value() == 262144 * kMiB);
  CHECK(pci_bar_bytes(h200.host, gpu, 1).value() == 0);
}

TEST_CASE("pci: sysfs and dump agree") {
  const TemporaryDirectory directory;
  directory.put(kGpu + "/config", std::string(reinterpret_cast<const char*>(gpu_config().data()), 4096));
  put_identity(directory);
  const Machine sysfs(directory.path());
  const auto devices = pci_devices(sysfs.host);
  REQUIRE(devices);
  REQUIRE(devices->size() == 1);
  CHECK(pci_devices(sysfs.host, PciDepth::everything)->front().config == gpu_config());
  PciDevice whole = devices->front();
  whole.config = gpu_config();
  CHECK(devices->front().config.size() == gpu_config().size());  // the used parts are the same as if all was read
  CHECK(resizable_bar(devices->front(), 1)->supported_bytes == resizable_bar(whole, 1)->supported_bytes);
  CHECK(resizable_bar(devices->front(), 1)->bytes == resizable_bar(whole, 1)->bytes);
  CHECK(devices->front().capability(0x10) == whole.capability(0x10));
  CHECK(devices->front().class_code == 0x030000);

  SECTION("what an unprivileged reader gets: 64 bytes") {
    fs::resize_file(directory / (kGpu + "/config"), 64);
    const auto less = pci_devices(sysfs.host);
    REQUIRE(less);
    CHECK(less->front().config.size() == 64);
    CHECK_FALSE(less->front().extended_readable);
    CHECK_FALSE(less->front().extended_capability(0x15));
  }
  SECTION("a link that leads out of the root is refused") {
    const TemporaryDirectory outside;
    fs::copy(directory / kGpu, outside.path() / "gpu");
    fs::remove_all(directory / kGpu);
    fs::create_directory_symlink(outside.path() / "gpu", directory / kGpu);
    CHECK_FALSE(pci_devices(sysfs.host));
  }
  SECTION("a file of another shape is an error, not the end of the process") {
    fs::remove(directory / (kGpu + "/vendor"));
    CHECK_FALSE(pci_devices(sysfs.host));
  }
}

TEST_CASE("pci: without sysfs and dump nothing is claimed") {
  const TemporaryDirectory empty;
  const auto devices = pci_devices(Machine(empty.path()).host);
  REQUIRE_FALSE(devices);
  CHECK(devices.error().code == ErrorCode::not_found);
}

TEST_CASE("pci: a device that fell off the bus keeps the identity that the kernel knows") {
  const TemporaryDirectory directory;
  directory.put("lspci-xxxx.txt", "0000:01:00.0 lost\n" + rows(std::vector<std::uint8_t>(4096, 0xff)));
  const Machine lost(directory.path());
  CHECK(pci_devices(lost.host)->front().is_lost());
  CHECK(pci_devices(lost.host)->front().vendor_id == 0xffff);
  put_identity(directory);
  const auto devices = pci_devices(lost.host);
  CHECK(devices->front().is_lost());
  CHECK(devices->front().vendor_id == 0x10de);
  CHECK(devices->front().is_display());
}

TEST_CASE("pci: broken dumps are errors or fewer bytes, never a crash") {
  const std::string sound = "0000:01:00.0 VGA\n" + rows(gpu_config());
  SECTION("cut anywhere") {
    for (std::size_t size = 0; size < sound.size(); size += 7) {
      const auto devices = devices_of_dump(sound.substr(0, size));
      if (devices && !devices->empty()) CHECK(devices->front().config.size() <= 4096);
    }
  }
  SECTION("cut after a row: what is there is used") {
    const auto devices = devices_of_dump(sound.substr(0, sound.find("210:")));
    REQUIRE(devices);
    CHECK(devices->front().config.size() == 0x210);
    CHECK(resizable_bar(devices->front(), 1)->bytes == 32768 * kMiB);
  }
  SECTION("random bytes") {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
      std::string text = round % 2 == 0 ? std::string() : sound;
      if (text.empty()) text.resize(random() % 600);
      for (int i = 0; i < 40 && !text.empty(); ++i) text[random() % text.size()] = static_cast<char>(random());
      (void)devices_of_dump(text).has_value();
    }
  }
  SECTION("named") {
    CHECK_FALSE(devices_of_dump("0000:01:00.0 " + std::string(300, 'x') + "\n"));
    CHECK_FALSE(devices_of_dump("0000:01:00.0 VGA\n00: zz\n"));
    CHECK_FALSE(devices_of_dump("0000:01:00.0 VGA\nfff: 00 00\n"));
    CHECK(devices_of_dump("")->empty());
    CHECK(devices_of_dump("0000:01:00.0 VGA\n\n0000:01:00.0 VGA\n\n")->size() == 1);
    const TemporaryDirectory directory;
    fs::create_directory(directory / "lspci-xxxx.txt");
    CHECK_FALSE(pci_devices(Machine(directory.path()).host));
  }
}

TEST_CASE("pci: capability lists that loop or lead nowhere end") {
  std::vector<std::uint8_t> config = gpu_config();
  for (const auto& [name, at, entry] : {std::tuple{"a loop of two", std::size_t{0x200}, 0x10010019U},
                                        {"a loop of one", 0x100, 0x10010001U},
                                        {"into the conventional space", 0x100, 0x04010001U},
                                        {"past the end", 0x100, 0xffc10001U}})
    DYNAMIC_SECTION(name) {
      put(config, at, entry);
      CHECK_FALSE(device_of(config).extended_capability(0x15));
    }
  SECTION("random spaces") {
    std::mt19937 random(2);
    for (int round = 0; round < 500; ++round) {
      std::vector<std::uint8_t> noise(round % 5 == 0 ? random() % 4097 : 4096);
      for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
      if (noise.size() > 0x104) put(noise, 0x100, 0x15 | (random() & 0xfff00000U));
      const PciDevice device = device_of(noise);
      (void)device.extended_capability(0x0d);
      for (int bar = 0; bar < 6; ++bar) (void)resizable_bar(device, bar);
    }
  }
}

TEST_CASE("pci: Resizable BAR sizes") {
  std::vector<std::uint8_t> config = gpu_config();
  const auto bar = resizable_bar(device_of(config), 1);
  REQUIRE(bar);
  CHECK(bar->bytes == 32768 * kMiB);
  CHECK(bar->supported_bytes == std::vector<std::uint64_t>{256 * kMiB, 16384 * kMiB, 32768 * kMiB});
  CHECK_FALSE(resizable_bar(device_of(config), 0));
  put(config, 0x204, 0);  // real devices do that
  CHECK(resizable_bar(device_of(config), 1)->supported_bytes.empty());
  config.resize(0x208);
  CHECK_FALSE(resizable_bar(device_of(config), 1));
}

TEST_CASE("pci: three hundred functions, sorted") {
  std::string text;
  for (int bus = 37; bus >= 0; --bus) {
    for (int slot = 0; slot < 8; ++slot)
      text += fmt::format("{:04x}:{:02x}:{:02x}.0 VGA\n", bus % 2, bus, slot) + rows(gpu_config());
  }
  const auto devices = devices_of_dump(text);
  REQUIRE(devices);
  CHECK(devices->size() == 304);
  CHECK(devices->front().address == "0000:00:00.0");
  CHECK(devices->back().address == "0001:25:07.0");
}

TEST_CASE("pci: base address registers from sysfs") {
  const TemporaryDirectory directory;
  directory.put(kGpu + "/resource",
                "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n"
                "0x0000002000000000 0x00000027ffffffff 0x000000000014220c\n"
                "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                "0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n"
                "nonsense\n0x1 0x2 0x200\n");
  const Machine machine(directory.path());
  const auto bars = pci_bars(machine.host, device_of(gpu_config())).value();
  REQUIRE(bars.size() == 4);
  CHECK(bars[0].length == 16 * kMiB);
  CHECK_FALSE(bars[0].prefetchable);
  CHECK(bars[1].first == 0x2000000000);
  CHECK(bars[1].length == 32768 * kMiB);
  CHECK(bars[1].prefetchable);
  CHECK(bars[2].length == 0);
  CHECK(bars[3].length == 0);  // sized, but no address was found
  CHECK(bars[1].holds({0x2700000000, 0x100000000, true}));
  CHECK_FALSE(bars[1].holds({0x2700000001, 0x100000000, true}));
  CHECK_FALSE(bars[1].holds({0x1fffffffff, 1, true}));
  CHECK_FALSE(bars[1].holds({0xffffffffffffffff, 2, true}));
}

TEST_CASE("pci: capabilities, and lists that loop") {
  std::vector<std::uint8_t> bytes(256, 0);
  bytes[0x06] = 0x10;
  bytes[0x34] = 0x40;
  put(bytes, 0x40, 0x5001);
  put(bytes, 0x50, 0x4010);
  CHECK(device_of(bytes).capability(0x10) == 0x50);
  CHECK_FALSE(device_of(bytes).capability(0x05));
  bytes[0x06] = 0;
  CHECK_FALSE(device_of(bytes).capability(0x10));
  bytes[0x06] = 0x10;
  bytes.resize(64);
  CHECK_FALSE(device_of(bytes).capability(0x10));
}
