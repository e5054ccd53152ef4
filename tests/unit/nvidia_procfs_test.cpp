// SPDX-License-Identifier: MIT
#include "machine/hardware/nvidia_procfs.hpp"

#include <fmt/format.h>

#include <iostream>

#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kGpuInventory;
extern const Probe kIommu;
extern const Probe kModuleParameters;
extern const Probe kNvidiaDriver;
extern const Probe kNvidiaModules;
extern const Probe kNvidiaUserspace;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

void told(const std::string& name, const std::string& outcome) {
  std::cout << fmt::format("{:<40} {}\n", name, outcome);
}

/// Two RTX 4090 whose driver has a given file of /proc/driver/nvidia; never changed otherwise.
struct Machine : ChangedRecord {
  Machine() : ChangedRecord("rtx4090-x2-healthy") {}
  void procfs(const std::string& name, std::string_view content) const { file("proc/driver/nvidia/" + name, content); }
};

const std::string kOpenParams =
    "EnableMSI: 1\nEnableResizableBar: 1\nRegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\n";

}  // namespace

TEST_CASE("nvidia procfs: cases of the field: version") {
  struct Case {
    const char* name;
    const char* text;
    const char* version;
    bool open;
  };
  for (
      const Case& one : std::vector<Case>{
          {"version-open-555-fedora-gcc14",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.58.02  Release Build  (dvs-builder@host)  Tue "
           "Jun 25 01:26:03 UTC 2024\nGCC version:  gcc version 14.1.1 20240701 (Red Hat 14.1.1-7) (GCC) \n",
           "555.58.02", true},
          {"version-open-610-wrapped-single-spaces",
           "NVRM version: NVIDIA UNIX Open Kernel Module for\nx86_64 610.43.02 Release Build (root@host)\n"
           "GCC version: gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
           "610.43.02", true},
          {"version-open-560-vgpu",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (VirtualGPU)\n"
           "GCC version:  gcc version 12.3.0\n",
           "560.35.03", true},
          {"loading-line-self-built-535-root",
           "[    6.3] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build  (root@host)  "
           "Wed Nov 15 10:01:02 CST 2023",
           "535.129.03", true},
          {"version-proprietary-525",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.60.13  Wed Nov 30 06:39:21 UTC 2022\n"
           "GCC version:  gcc version 11.3.0 (Ubuntu 11.3.0-1ubuntu1~22.04)\n",
           "525.60.13", false},
          {"version-proprietary-510-mismatch",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  510.60.02  Wed Mar 16 11:24:05 UTC 2022\n"
           "GCC version:  gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1~20.04.1) \n",
           "510.60.02", false},
          {"version-proprietary-510-54-nix-fixture",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  510.54  Tue Feb  8 04:42:21 UTC 2022\nGCC version:  gcc "
           "version 10.3.0 (GCC) \n",
           "510.54", false},
          {"registry-old-180-x86",
           "NVRM version: NVIDIA UNIX x86 Kernel Module  180.44  Mon Mar 23 14:59:10 PST 2009\nGCC version:  gcc "
           "version 4.3.3\n",
           "180.44", false}}) {
    CAPTURE(one.name);
    const auto found = parse_nvidia_version(one.text);
    REQUIRE(found);
    CHECK(found->version == one.version);
    CHECK(found->open == one.open);
    const Machine machine;
    machine.procfs("version", one.text);
    const std::string flavour = machine.look(kNvidiaModules).facts["flavour"];
    CHECK(flavour == (one.open ? "open" : "proprietary"));
    const Finding driver = machine.look(kNvidiaDriver);  // no proprietary module gives GeForce cards P2P
    CHECK((driver.verdict == Verdict::pass) == one.open);
    CHECK(holds(driver.summary, one.open ? "installed by" : "the proprietary modules are loaded"));
    told(one.name, flavour + " " + found->version + "; nvidia-driver: " + std::string(to_string(driver.verdict)));
  }
}

TEST_CASE("nvidia procfs: a module that stayed loaded under newer libraries is an API mismatch") {
  const Machine machine;  // case version-proprietary-510-mismatch
  machine.file("sys/module/nvidia/version", "510.60.02\n");
  const Finding finding = machine.look(kNvidiaUserspace);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(holds(finding.summary, "API mismatch"));
  CHECK(holds(finding.summary, "the loaded module is 510.60.02"));
}

TEST_CASE("nvidia procfs: what is no version is none") {
  for (const char* text : {"", "\n", "NVRM version\n", "NVRM version: NVIDIA UNIX",
                           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64",
                           "NVIDIA UNIX x86_64 Kernel Module \nGCC version: gcc version 12.2.0", "Linux version 6.1.0",
                           "NVIDIA UNIX 570. .5", "\xff\xfe NVIDIA \xff UNIX 570.86.16"})
    CHECK_FALSE(parse_nvidia_version(text));
  const Machine machine;
  machine.procfs("version", "something else\n");
  CHECK(machine.look(kNvidiaModules).facts["flavour"].is_null());
  CHECK_FALSE(holds(machine.look(kNvidiaDriver).summary, "proprietary"));
}

TEST_CASE("nvidia procfs: cases of the field: information") {
  const auto information = [](const std::string& model, const std::string& more) {
    return "Model: \t\t " + model + "\nIRQ:   \t\t 41\nGPU UUID: \t GPU-0\n" + more + "Bus Type: \t PCIe\n";
  };
  for (const auto& [name, text, excluded] : std::vector<std::tuple<const char*, std::string, bool>>{
           {"information-h100-gsp-firmware",
            information("NVIDIA H100",
                        "Video BIOS: \t 96.00.74.00.01\nGPU Firmware: \t 535.129.03\nGPU Excluded:\t No\n"),
            false},
           {"information-a10g-tabs", information("NVIDIA A10G", "GPU Excluded: \t No\n"), false},
           {"information-p100-unknown-vbios-excluded-yes",
            information("Tesla P100", "Video BIOS: \t ??.??.??.??.??\nGPU Excluded:\t Yes\n"), true},
           {"an empty file", "", false}}) {
    CAPTURE(name);
    const ChangedRecord machine("rtx4090-x2-healthy");
    machine.file("proc/driver/nvidia/gpus/0000:02:00.0/information", text);
    const Finding finding = machine.look(kGpuInventory);
    CHECK(finding.facts["gpus"].size() == (excluded ? 1 : 2));
    CHECK(holds(finding.summary, "without 0000:02:00.0: the driver was told to leave it out (NVreg_ExcludedGpus)") ==
          excluded);
    told(name, "gpu-inventory: " + finding.summary);
  }
}

TEST_CASE("nvidia procfs: cases of the field: params") {
  const auto keys = [](const Machine& machine) { return machine.look(kModuleParameters).facts["registry_dwords"]; };
  {
    const Machine machine;
    machine.procfs("params",
                   "RegistryDwords: \"PeerMappingOverride=1;RMForceStaticBar1=1;\"\nRegistryDwordsPerDevice: \"\"\n");
    CHECK(keys(machine).size() == 2);
    CHECK(keys(machine)["PeerMappingOverride"]["value"] == "1");
    told("params-grep-peermappingoverride", "module-parameters: 2 registry keys, quotes and last semicolon left out");
  }
  {
    const Machine machine;
    machine.procfs("params",
                   "CoherentGPUMemoryMode: \"\"\nEnableGpuFirmware: 0\nEnableResizableBar: 1\n"
                   "RegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\n");
    CHECK(keys(machine).empty());
    FakeRunner runner;
    const auto params = nvidia_params(Host(machine.root(), runner)).value();
    CHECK(params.at("NVreg_CoherentGPUMemoryMode").empty());
    CHECK(params.at("NVreg_EnableGpuFirmware") == "0");
    told("params-sorted-arch-gspfirmware-0", "module-parameters: any order, empty values are empty");
  }
  {
    const Machine machine;  // the file of drivers of before 2010; no key of today is known to them
    machine.remove("proc/driver/nvidia/params");
    CHECK_FALSE(machine.check(kModuleParameters));
    machine.procfs("registry", "EnableVia4x: 0\nNvAGP: 3\nRegistryDwords: \"PerfLevelSrc=0x2222\"\n");
    machine.file("sys/module/nvidia/version", "180.44\n");
    CHECK(keys(machine)["PerfLevelSrc"]["value"] == "0x2222");
    told("registry-old-180-x86", "module-parameters: read like params");
  }
  const Machine machine;
  machine.procfs("params", kOpenParams + "Odd\n:\n: 3\nQuote: \"\nCarriage: 1\r\nNo end: \"x");
  CHECK(machine.look(kModuleParameters).verdict == Verdict::pass);
}

TEST_CASE("nvidia procfs: cases of the field: kernel command lines") {
  struct Case {
    const char* name;
    const char* line;
    const char* domain;
    Verdict verdict;
    const char* summary;
    const char* next;
  };
  for (const Case& one : std::vector<Case>{
           {"cmdline-ubuntu-amd-acs-override",
            "BOOT_IMAGE=/vmlinuz-6.8.0-79-generic root=/dev/mapper/vg-lv ro amd_iommu=on iommu=pt "
            "pcie_acs_override=downstream,multifunction crashkernel=2G-4G:320M,4G-32G:512M,32G-64G:1024M,128G-:4096M",
            "identity", Verdict::pass, "stock kernels do not know pcie_acs_override", ""},
           {"cmdline-cloud-hypervisor-amd-a100",
            "console=ttyS0 amd_iommu=force_isolation iommu=pt pci=realloc,noats vfio-pci.ids=10de:20b0 quiet",
            "identity", Verdict::pass, "amd_iommu=force_isolation does not override iommu=pt", ""},
           {"cmdline-x99-3090-broken", "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=UUID=0 ro quiet splash",
            "DMA-FQ", Verdict::fail, "the IOMMU translates for 0000:01:00.0 (DMA-FQ)", "Boot with iommu=pt"},
           {"the last word counts", "iommu=pt iommu=nopt", "DMA", Verdict::fail,
            "of iommu=pt and iommu=nopt the last one counts", "Boot with iommu=pt"},
           {"and is no contradiction the other way round", "iommu=nopt iommu=pt", "identity", Verdict::pass,
            "the IOMMU is in passthrough mode", ""},
           {"nor by another name", "iommu.passthrough=1", "DMA", Verdict::fail, "the IOMMU translates",
            "iommu=pt does not reach these GPUs"}}) {
    CAPTURE(one.name);
    const Machine machine;
    machine.file("proc/cmdline", std::string(one.line) + "\n");
    for (const char* gpu : {"0000:01:00.0", "0000:02:00.0"}) {
      const std::string link = std::string("sys/bus/pci/devices/") + gpu + "/iommu_group";
      machine.link(link, "../../../../kernel/iommu_groups/77");
    }
    machine.file("sys/kernel/iommu_groups/77/type", std::string(one.domain) + "\n");
    const Finding finding = machine.look(kIommu);
    CHECK(finding.verdict == one.verdict);
    CHECK(holds(finding.summary, one.summary));
    CHECK(holds(finding.next, one.next));
    told(one.name, "iommu: " + std::string(to_string(finding.verdict)) + ": " + finding.summary);
  }
}
