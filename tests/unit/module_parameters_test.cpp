// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kHostMemory;
extern const Probe kModuleParameters;
extern const Probe kOptionsInForce;
}  // namespace p2pd

using namespace p2pd;

namespace {

struct Machine : test::MadeTree {
  /// The module of `version` runs with `dwords`.
  void load(const std::string& version, const std::string& dwords) const {
    put("sys/module/nvidia/version", version + "\n");
    put("proc/driver/nvidia/params", "EnableMSI: 1\nEnableResizableBar: 1\nRegistryDwords: \"" + dwords +
                                         "\"\nRegistryDwordsPerDevice: \"\"\nTemporaryFilePath: \"/var\"\n");
  }
  void configure(const std::string& line) const { put("etc/modprobe.d/nvidia.conf", line + "\n"); }
  Result<Finding> check() const { return kModuleParameters.check(host, Parameters::object()); }
  Finding look() const { return check().value(); }
  /// Checks that the probe fails for a key that is in force and configured.
  bool wrong(const std::string& version, const std::string& dword) const {
    load(version, dword + ";");
    configure("options nvidia NVreg_RegistryDwords=\"" + dword + "\"");
    return look().verdict == Verdict::fail;
  }
};

}  // namespace

TEST_CASE("module-parameters: each key is judged by the driver's version") {
  struct Row {
    const char* dword;
    bool wrong_550, wrong_570, wrong_575, wrong_595;
  };
  const Machine machine;
  for (const Row& row : {Row{"EnableResizableBar=1", true, true, true, true},
                         Row{"GrdmaPciTopoCheckOverride=1", true, true, true, true},
                         Row{"ForceP2P=0x11", false, false, false, false},
                         Row{"ForceP2P=17", false, false, false, false},
                         Row{"ForceP2P=0x111", false, false, false, false},
                         Row{"ForceP2P=0", true, true, true, true},
                         Row{"ForceP2P=0x1", true, true, true, true},
                         Row{"RMForceP2PType=1", true, true, false, false},
                         Row{"RMForceP2PType=2", false, false, true, true},
                         Row{"RMForceP2PType=0x3", true, true, true, true},
                         Row{"RMForceP2PType=0", false, false, false, false},
                         Row{"RMPcieP2PType=1", true, true, false, false},
                         Row{"RMPcieP2PType=2", true, true, false, false},
                         Row{"RMPcieP2PType=0", true, true, true, true},
                         Row{"RMForceStaticBar1=1", false, false, false, false},
                         Row{"RMForceStaticBar1=3", false, false, true, true},
                         Row{"PeerMappingOverride=1", false, false, false, false},
                         Row{"RMDisableFeatureDisablement=1", false, false, false, false},
                         Row{"SomethingElse=7", false, false, false, false},
                         Row{"SomethingElse=seven", true, true, true, true},
                         Row{"SomethingElse", true, true, true, true}}) {
    CAPTURE(row.dword);
    CHECK(machine.wrong("550.54.15", row.dword) == row.wrong_550);
    CHECK(machine.wrong("570.148.08", row.dword) == row.wrong_570);
    CHECK(machine.wrong("575.51.02", row.dword) == row.wrong_575);
    CHECK(machine.wrong("595.45.04", row.dword) == row.wrong_595);
  }
}

TEST_CASE("module-parameters: the guide's five keys on an old driver") {
  const Machine machine;
  const std::string five =
      "ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2;GrdmaPciTopoCheckOverride=1;EnableResizableBar=1";
  CHECK(machine.wrong("565.57.01", five));
  const Finding finding = machine.look();
  CHECK(finding.facts["wrong"].size() == 4);
  CHECK(finding.facts["registry_dwords"]["ForceP2P"]["value"] == "0x11");
  CHECK(finding.summary.find("RMForceP2PType=1: before 575") != std::string::npos);
  CHECK(finding.next.find("Correct that in /etc/modprobe.d") == 0);
  CHECK_FALSE(machine.wrong("595.45.04", "RMDisableFeatureDisablement=1"));  // experimental, and known to be right
}

TEST_CASE("options-in-force: what is configured, is the loaded module's") {
  const Machine machine;
  const auto look = [&] { return kOptionsInForce.check(machine.host, Parameters::object()).value(); };
  CHECK(look().verdict == Verdict::not_applicable);
  machine.load("570.86.16", "ForceP2P=17;");
  machine.configure(
      "options nvidia NVreg_EnableResizableBar=0x1 NVreg_RegistryDwords=ForceP2P=0x11 NVreg_TemporaryFilePath=/var");
  CHECK(look().summary == "the loaded modules run with their 3 configured options");
  CHECK(machine.look().summary == "nvidia 570.86.16 runs with 1 registry key; none prevents P2P");
  machine.configure("options nvidia NVreg_EnableMSI=0");
  const Finding loaded_before = look();
  CHECK(loaded_before.verdict == Verdict::fail);
  CHECK(loaded_before.summary ==
        "NVreg_EnableMSI=0 (/etc/modprobe.d/nvidia.conf:1) is not in force: the module runs with 1");
  CHECK(loaded_before.next.find("load the module again") != std::string::npos);
  machine.configure("options nvidia NVreg_RegistryDwords=\"ForceP2P=17;RMForceStaticBar1=1\"");
  CHECK(look().facts["not_in_force"].size() == 1);
  machine.configure("options nvidia NVreg_Unheard=1");
  CHECK(look().verdict == Verdict::pass);          // reloading the module would not help
  CHECK(machine.look().verdict == Verdict::pass);  // the driver leaves it out, or does not show it
  CHECK(machine.look().summary.find(
            "not among the options that it shows: NVreg_Unheard (/etc/modprobe.d/nvidia.conf:1)") != std::string::npos);
  machine.configure("options nvidia-current NVreg_EnableMSI=0\noptions nvidia NVreg_EnableMSI=1 other=1");
  CHECK(look().verdict == Verdict::pass);
  machine.configure("options nvidia-uvm uvm_disable_hmm=1");
  CHECK(look().verdict == Verdict::pass);  // nvidia-uvm is not loaded
  machine.put("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n");
  CHECK(look().summary == "uvm_disable_hmm=1 (/etc/modprobe.d/nvidia.conf:1) is not in force: the module runs with N");
  machine.put("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n");
  CHECK(look().verdict == Verdict::pass);
}

TEST_CASE("host-memory: HMM's ranges and what the GPUs address") {
  const Machine machine;
  const Parameters off = {{"module", "nvidia_uvm"}, {"options", {{"uvm_disable_hmm", 1}}}};
  const auto look = [&](const std::string& cpuinfo) {
    machine.put("proc/cpuinfo", cpuinfo);
    return kHostMemory.check(machine.host, off).value();
  };
  const std::string epyc =
      "processor\t: 0\nflags\t\t: fpu la57 sev\naddress sizes\t: 52 bits physical, 57 bits virtual\n";
  machine.gpu("84 26");
  CHECK(look(epyc).summary ==
        "HMM's ranges end at 2^52, and the GPUs address 2^47 bytes: the driver allocates host memory below 4 GiB only");
  CHECK(look("flags\t: fpu\naddress sizes\t: 52 bits physical, 48 bits virtual\n").summary ==
        "HMM's ranges end at 2^46; the GPUs address 2^47 bytes");  // no5lvl, or a CPU of four levels
  CHECK(look("flags\t: la57x\naddress sizes\t: 48 bits physical\n").verdict == Verdict::pass);
  CHECK(look("CPU implementer : 0x41\n").verdict == Verdict::not_applicable);
  CHECK(look("flags").verdict == Verdict::not_applicable);
  CHECK(look("flags\t: la57\naddress sizes\t:").verdict == Verdict::not_applicable);
  machine.put("sys/bus/pci/devices/0000:01:00.0/dma_mask_bits", "52\n");  // a Blackwell
  CHECK(look(epyc).verdict == Verdict::pass);
  machine.put("sys/bus/pci/devices/0000:01:00.0/dma_mask_bits", "32\n");  // no driver has set it up
  CHECK(look(epyc).verdict == Verdict::fail);
  machine.configure("options nvidia_uvm uvm_disable_hmm=Y");
  CHECK(look(epyc).summary == "HMM is off");
}

TEST_CASE("options are compared as the driver reads and shows them") {
  const Machine machine;
  const auto look = [&](const std::string& shown, const std::string& configured) {
    machine.put("sys/module/nvidia/version", "570.86.16\n");
    machine.put("proc/driver/nvidia/params", shown + "\nRegistryDwords: \"\"\n");
    machine.configure("options nvidia " + configured);
    const Finding finding = kOptionsInForce.check(machine.host, Parameters::object()).value();
    CHECK(machine.look().verdict == Verdict::pass);
    CHECK(machine.look().facts["not_shown"].empty());
    return finding.verdict;
  };
  CHECK(look("RmProfilingAdminOnly: 0", "NVreg_RestrictProfilingToAdminUsers=0") == Verdict::pass);  // another name
  CHECK(look("RmProfilingAdminOnly: 1", "NVreg_RestrictProfilingToAdminUsers=0") == Verdict::fail);
  CHECK(look("DeviceFileMode: 432", "NVreg_DeviceFileMode=0660") == Verdict::pass);
  CHECK(look("DeviceFileMode: 432", "NVreg_DeviceFileMode=0x1b0") == Verdict::pass);
  CHECK(look("DeviceFileMode: 438", "NVreg_DeviceFileMode=0660") == Verdict::fail);
  CHECK(look("ResmanDebugLevel: 4294967295", "NVreg_ResmanDebugLevel=-1") == Verdict::pass);
}

TEST_CASE("module-parameters: what cannot be found out is no pass") {
  const Machine machine;
  CHECK(machine.look().verdict == Verdict::not_applicable);
  machine.put("sys/module/nvidia/version", "570.86.16\n");
  CHECK_FALSE(machine.check());
  machine.put("proc/driver/nvidia/params", "");
  CHECK_FALSE(machine.check());
  machine.put("proc/driver/nvidia/params", "EnableMSI: 1\nRegistryDwo");
  CHECK_FALSE(machine.check());
  for (const char* version : {"", "\n", "570\n", "abc\n", "99999999999999999999.1\n"}) {
    machine.load("570.86.16", "");
    machine.put("sys/module/nvidia/version", version);
    CHECK_FALSE(machine.check());
  }
  machine.load("570.86.16", "");
  machine.configure("options nvidia NVreg_RegistryDwords=\"ForceP2P=17");
  CHECK_FALSE(machine.check());
}
