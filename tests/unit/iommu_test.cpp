// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <fstream>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kIommu;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

/// GPUs on buses 1, 2, ... each in a group of the bus's number.
class Machine {
 public:
  void gpu(int bus, const std::string& type, const std::string& driver = "nvidia") {
    const std::string address = fmt::format("0000:{:02x}:00.0", bus);
    text_ += address + " x\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n";
    for (int at = 0x10; at < 0x40; at += 0x10)
      text_ += fmt::format("{:02x}: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n", at);
    text_ += "\n";
    const std::string device = "sys/bus/pci/devices/" + address;
    fs::create_directories(directory_ / device);
    fs::create_symlink("../../../../bus/pci/drivers/" + driver, directory_ / (device + "/driver"));
    if (type.empty()) return;
    const std::string group = fmt::format("kernel/iommu_groups/{}", bus);
    fs::create_symlink("../../../../" + group, directory_ / (device + "/iommu_group"));
    if (type != "absent") file("sys/" + group + "/type", type + "\n");
  }
  void file(const std::string& path, std::string_view content) const {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  void remove(const std::string& path) const { fs::remove_all(directory_ / path); }
  Result<Finding> look(const Parameters& with = Parameters::object()) const {
    file("lspci-xxxx.txt", text_);
    const Root root = Root::open(directory_.path()).value();
    RecordedRunner runner(root);
    return kIommu.check(Host(root, runner), with);
  }

 private:
  test::TemporaryDirectory directory_;
  std::string text_;
};

const std::string kMetal = "processor : 0\nflags\t\t: fpu vme hypervisor_not\n\n";
const std::string kGuest = "processor : 0\nflags\t\t: fpu hypervisor vme\n\n";

}  // namespace

TEST_CASE("iommu: the group's type decides, whatever the command line asks for") {
  for (const auto& [type, verdict] : {std::pair{"identity", Verdict::pass},
                                      {"DMA", Verdict::fail},
                                      {"DMA-FQ", Verdict::fail},
                                      {"blocked", Verdict::fail}}) {
    for (const char* line : {"quiet iommu=pt amd_iommu=on\n", "quiet\n"}) {
      INFO(type << " with " << line);
      Machine machine;
      machine.gpu(1, "identity");
      machine.gpu(2, type);
      machine.file("proc/cmdline", line);
      machine.file("proc/cpuinfo", kMetal);
      const Finding finding = machine.look().value();
      CHECK(finding.verdict == verdict);
      CHECK(finding.facts["gpus"][1]["domain"] == type);
      CHECK(finding.facts["gpus"][1]["translates"] == (verdict == Verdict::fail));
      CHECK(finding.next.empty() == (verdict == Verdict::pass));
      if (verdict == Verdict::fail) {
        CHECK(finding.summary == fmt::format("the IOMMU translates for 0000:02:00.0 ({})", type));
        CHECK((finding.next.find("Boot with iommu=pt") == 0) == (line == std::string("quiet\n")));
      }
    }
  }
}

TEST_CASE("iommu: what is neither readable nor known is no pass") {
  for (const char* type : {"absent", "", "unknown", "identity\nDMA"}) {
    INFO(type);
    Machine machine;
    machine.gpu(1, "identity");
    machine.gpu(2, type);
    if (std::string(type).empty()) machine.remove("sys/bus/pci/devices/0000:02:00.0");
    CHECK_FALSE(machine.look());
  }
}

TEST_CASE("iommu: a system without one passes, a guest without one cannot tell") {
  Machine machine;
  machine.gpu(1, "");
  machine.file("proc/cpuinfo", kMetal);
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look()->summary == "no IOMMU is in force");
  machine.file("proc/cpuinfo", kGuest);
  CHECK(machine.look()->verdict == Verdict::not_applicable);
  CHECK(machine.look()->summary.starts_with("this guest has no IOMMU of its own"));
}

TEST_CASE("iommu: GPUs of guests are not judged, and who needs the IOMMU is told") {
  Machine machine;
  machine.gpu(1, "DMA-FQ", "vfio-pci");
  CHECK(machine.look()->verdict == Verdict::not_applicable);
  machine.gpu(2, "identity");
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look()->facts["vfio_devices"] == nlohmann::json::array({"0000:01:00.0"}));
  CHECK(machine.look()->summary.find("0000:01:00.0 is bound to vfio-pci") != std::string::npos);
  machine.gpu(3, "DMA");
  machine.file("proc/cmdline", "iommu=pt amd_iommu=force_isolation\n");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.evidence.back().value == "iommu=pt amd_iommu=force_isolation");
  CHECK(finding.next.find("VFIO needs the IOMMU") != std::string::npos);
}

TEST_CASE("iommu: CPUs of AMD whose APIC ID is 255 or more cannot do without, however few there are") {
  Machine machine;
  machine.gpu(1, "DMA");
  machine.file("proc/cmdline", "iommu=pt\n");
  const auto cpus = [&](const std::string& vendor, const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids)
      text += fmt::format("processor\t: 0\nvendor_id\t: {}\napicid\t\t: {}\ninitial apicid\t: {}\n\n", vendor, id, id);
    machine.file("proc/cpuinfo", text);
    machine.file("sys/devices/system/cpu/online", fmt::format("0-{}\n", ids.size() - 1));
  };
  struct Row {
    const char* vendor;
    std::vector<int> ids;
    int lost;
  };
  for (const Row& row : {Row{"AuthenticAMD", {0, 1, 253, 254}, 0}, Row{"AuthenticAMD", {0, 1, 254, 255}, 1},
                         Row{"AuthenticAMD", {0, 1, 0x100, 0x101}, 2}, Row{"HygonGenuine", {0, 256}, 1},
                         Row{"GenuineIntel", {0, 255, 256, 1000}, 0}}) {
    cpus(row.vendor, row.ids);
    INFO(row.vendor << " " << row.ids.back());
    const Finding finding = machine.look().value();
    CHECK(finding.facts["cpus_that_need_it"] == row.lost);
    CHECK((finding.next.find("turn the IOMMU off") != std::string::npos) == (row.lost == 0));
    CHECK((machine.look({{"absent", true}})->verdict == Verdict::not_applicable) == (row.lost > 0));
  }
}

TEST_CASE("iommu: a record without APIC IDs tells by the number of CPUs, if at all") {
  Machine machine;
  machine.gpu(1, "DMA");
  for (const auto& [list, lost] : {std::pair{"0-127,256-383\n", 1}, {"0-511\n", 257}}) {
    machine.file("sys/devices/system/cpu/online", list);
    machine.file("sys/devices/system/cpu/present", list);
    machine.file("proc/cpuinfo", "processor\t: 0\napicid\t\t: 0\n\n");
    CHECK(machine.look()->facts["cpus_that_need_it"] == lost);
  }
  for (const char* list : {"0-254", "", "x", "3-1", "0-", "-", ",", "0-99999999999"}) {
    INFO(list);
    machine.file("sys/devices/system/cpu/online", list);
    machine.file("sys/devices/system/cpu/present", list);
    CHECK(machine.look()->facts["cpus_that_need_it"].is_null());
  }
}

TEST_CASE("iommu: absent wants none in force, where the system can do without") {
  const Parameters absent = {{"absent", true}};
  Machine machine;
  machine.gpu(1, "");
  machine.file("proc/cpuinfo", kMetal);
  CHECK(machine.look(absent)->verdict == Verdict::pass);
  machine.gpu(2, "identity");
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look(absent)->verdict == Verdict::fail);
  CHECK(machine.look(absent)->summary == "an IOMMU is in force");
  SECTION("not with CPUs that need it") { machine.file("sys/devices/system/cpu/present", "0-511\n"); }
  SECTION("not with VFIO devices") { machine.gpu(3, "DMA", "vfio-pci"); }
  if (machine.look()->facts["cpus_that_need_it"] == 257 || !machine.look()->facts["vfio_devices"].empty()) {
    CHECK(machine.look(absent)->verdict == Verdict::not_applicable);
  }
}

TEST_CASE("iommu: without a GPU there is nothing to judge") {
  CHECK(Machine().look()->verdict == Verdict::not_applicable);
}
