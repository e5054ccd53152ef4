// SPDX-License-Identifier: MIT
#include <fstream>
#include <iterator>

#include "base/action.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "made_bus.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kModprobeOptions, kOptionsInForce;
extern const Action kModprobeOptionsAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const Action& fix = kModprobeOptionsAction;
const Parameters kBar{{"module", "nvidia"}, {"options", {{"NVreg_EnableResizableBar", 1}}}};
const Parameters kP2p{{"module", "nvidia"},
                      {"options", nlohmann::json::object()},
                      {"registry_dwords", {{"ForceP2P", 0x11}, {"RMForceP2PType", 1}}}};
const Parameters kUvm{{"module", "nvidia-uvm"}, {"options", {{"uvm-name", "a b"}}}};
const std::string kUser = "etc/modprobe.d/nvidia.conf", kOurs = "etc/modprobe.d/zz-p2pd.conf";

struct Machine : test::MadeTree {
  Machine() { fs::create_directories(directory / "etc/modprobe.d"); }
  std::string ours() const {
    std::ifstream file(directory / kOurs);
    return file ? std::string(std::istreambuf_iterator<char>(file), {}) : "absent";
  }
  Finding check(const Parameters& parameters) const { return kModprobeOptions.check(host, parameters).value(); }
  Finding in_force() const { return kOptionsInForce.check(host, Parameters::object()).value(); }
  bool passes(const Parameters& parameters) const { return check(parameters).verdict == Verdict::pass; }
  bool refused(const Parameters& parameters, const std::string& why) {
    const std::string before = ours();
    const auto result = fix.apply(host, parameters);
    return !result && result.error().message.find(why) != std::string::npos && !result.error().next.empty() &&
           ours() == before;
  }
};

}  // namespace

TEST_CASE("module options are configured in one drop-in", "[modprobe_options]") {
  Machine machine;
  machine.put(kUser,
              "# mine\noptions nvidia NVreg_RegistryDwords=\"Mine=7;RMForceP2PType=0x2\" NVreg_EnableResizableBar=0\n");
  for (const Parameters& step : {kBar, kP2p, kUvm}) {
    CHECK_FALSE(machine.passes(step));
    const std::string before = machine.ours();
    const Description plan = fix.describe(machine.host, step).value();
    CHECK(machine.ours() == before);
    REQUIRE(fix.apply(machine.host, step));
    CHECK(machine.ours() == plan.files.at(0).content);
    CHECK(machine.passes(step));
  }
  const std::string all = machine.ours();
  CHECK(all ==
        "# Written by p2pd; undone by `p2pctl revert`.\n"
        "# registry keys: ForceP2P=0x11;RMForceP2PType=1\n"
        "options nvidia NVreg_EnableResizableBar=1 NVreg_RegistryDwords=\"Mine=7;RMForceP2PType=1;ForceP2P=0x11\"\n"
        "options nvidia_uvm uvm_name=\"a b\"\n");
  for (const Parameters& step : {kUvm, kBar, kP2p}) REQUIRE(fix.apply(machine.host, step));
  CHECK(machine.ours() == all);
  CHECK(fix.describe(machine.host, kBar).value().files.empty());
  CHECK(machine.runner.ran.empty());

  SECTION("a key that the user drops goes from ours too, with the next change") {
    fs::remove(machine.directory / kUser);
    REQUIRE(fix.apply(machine.host, {{"module", "nvidia"}, {"options", {{"NVreg_EnableResizableBar", 2}}}}));
    CHECK(machine.ours().find("NVreg_EnableResizableBar=2 NVreg_RegistryDwords=\"ForceP2P=0x11;RMForceP2PType=1\"") !=
          std::string::npos);
  }
  SECTION("a key of ours with another value") {
    REQUIRE(fix.apply(machine.host, {{"module", "nvidia"}, {"options", {}}, {"registry_dwords", {{"ForceP2P", 0}}}}));
    CHECK(machine.ours().find("# registry keys: ForceP2P=0;RMForceP2PType=1\n") != std::string::npos);
    CHECK_FALSE(machine.passes(kP2p));
  }
}

TEST_CASE("nothing is written where the user's files do it already", "[modprobe_options]") {
  Machine machine;
  machine.put("lib/modprobe.d/n.conf",
              "options nvidia NVreg_EnableResizableBar=0x1 NVreg_RegistryDwords=RMForceP2PType=1;ForceP2P=17;X=2\n");
  for (const Parameters& step : {kBar, kP2p}) {
    CHECK(machine.passes(step));
    REQUIRE(fix.apply(machine.host, step));
  }
  CHECK(machine.ours() == "absent");
}

TEST_CASE("what would win over the drop-in is named", "[modprobe_options]") {
  Machine machine;
  SECTION("a later file") {
    machine.put("etc/modprobe.d/zzz.conf", "\noptions nvidia NVreg_EnableResizableBar=0\n");
    CHECK(machine.refused(kBar, "/etc/modprobe.d/zzz.conf:2 is read after"));
    CHECK(fix.apply(machine.host, kP2p));
  }
  SECTION("a later file with registry keys") {
    machine.put("etc/modprobe.d/zzz.conf", "options nvidia NVreg_RegistryDwords=\"ForceP2P=0x11\"\n");
    CHECK(machine.refused(kP2p, "sets RMForceP2PType to nothing, not 1"));
  }
  SECTION("the kernel command line") {
    machine.put("proc/cmdline", "quiet nvidia.NVreg_EnableResizableBar=0\n");
    CHECK(machine.refused(kBar, "/proc/cmdline is read after"));
  }
  SECTION("a file of the user in its place") {
    machine.put(kOurs, "options nvidia x=1\n");
    CHECK(machine.refused(kBar, "p2pd did not write it"));
    CHECK_FALSE(fix.describe(machine.host, kBar));
  }
  SECTION("a quotation mark that is not closed") {
    machine.put(kUser, "options nvidia NVreg_RegistryDwords=\"ForceP2P=1\n");
    CHECK(machine.refused(kBar, "/etc/modprobe.d/nvidia.conf:1: a quotation mark"));
    CHECK_FALSE(kModprobeOptions.check(machine.host, kBar));
  }
}

TEST_CASE("options-in-force is about the loaded module, modprobe-options about the files", "[modprobe_options]") {
  Machine machine;
  REQUIRE(fix.apply(machine.host, kBar));
  REQUIRE(fix.apply(machine.host, kP2p));
  CHECK(machine.in_force().verdict == Verdict::not_applicable);
  machine.put("proc/driver/nvidia/params",
              "ResmanDebugLevel: 4294967295\nEnableResizableBar: 0\nRegistryDwords: "
              "\"ForceP2P=17;RMForceP2PType=1;\"\nRmMsg: \"\"\n");
  machine.put("sys/module/nvidia/parameters/NVreg_RegistryDwords", "\n");
  const Finding bar = machine.check(kBar);
  CHECK(bar.verdict == Verdict::pass);
  CHECK(bar.facts["options"]["NVreg_EnableResizableBar"] == nlohmann::json{{"wanted", "1"}, {"configured", "1"}});
  CHECK(machine.check(kP2p).verdict == Verdict::pass);
  const Finding stale = machine.in_force();
  CHECK(stale.verdict == Verdict::fail);  // the registry keys are in force, ForceP2P=17 as 0x11
  CHECK(stale.facts["not_in_force"].size() == 1);
  CHECK(stale.summary.starts_with("NVreg_EnableResizableBar=1 ("));
  CHECK(stale.summary.ends_with(" is not in force: the module runs with 0"));

  const Parameters drm{{"module", "nvidia-drm"}, {"options", {{"modeset", 1}}}};
  machine.put("sys/module/nvidia_drm/parameters/modeset", "Y\n");
  const Finding finding = machine.check(drm);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "module nvidia_drm is not configured with modeset=1");
  CHECK_FALSE(finding.next.empty());
}

TEST_CASE("modprobe-options: where no build is chosen, only the plan's own options are wanted") {
  Machine machine;
  CHECK(machine.check({{"module", "nvidia"}, {"entry", "chosen"}}).verdict == Verdict::not_applicable);
  CHECK_FALSE(
      kModprobeOptions.check(machine.host, {{"module", "nvidia"}, {"entry", "chosen"}, {"options", {{"NVreg_B", 3}}}}));
}

TEST_CASE("modprobe-options: what the entry's build needs is configured, the plan's own word first") {
  Machine machine;
  machine.put("lspci-xxxx.txt", "");
  machine.put("etc/p2pd/catalogue.d/test.yaml", R"(
schema: p2pd.catalogue/2
releases:
  580.1.1: {commit: "3333333333333333333333333333333333333333", known: verified, runfile: {path: /NVIDIA-Linux-x86_64-580.1.1.run, sha256: "2222222222222222222222222222222222222222222222222222222222222222", known: verified}}
patches:
  test/main:
    repository: file:///srv/x
    branch: main
    commit: "1111111111111111111111111111111111111111"
    known: verified
    base: 580.1.1
    architectures: {Ada: reported}
    module_options: {NVreg_A: 1, NVreg_B: 2}
    registry_dwords: {PeerMappingOverride: 1}
    registry_dwords_forbidden: {ForceP2P: 0}
)");
  const Parameters with{{"module", "nvidia"}, {"entry", "test/main"}, {"options", {{"NVreg_B", 3}}}};
  CHECK_FALSE(machine.passes(with));
  REQUIRE(fix.apply(machine.host, with));
  CHECK(machine.passes(with));
  for (const char* word : {"NVreg_A=1", "NVreg_B=3", "PeerMappingOverride=1"}) {
    CAPTURE(word);
    CHECK(machine.ours().find(word) != std::string::npos);
  }
  Parameters other = with;
  other["registry_dwords"] = {{"ForceP2P", 0}};
  CHECK(machine.refused(other, "ForceP2P=0 breaks P2P in test/main"));
  other["registry_dwords"] = {{"RMForceP2PType", 2}};  // right before 575
  CHECK(machine.refused(other, "in driver 580.1.1: from 575 on, 2 forces NVLink"));
  other["registry_dwords"] = {{"RMDisableFeatureDisablement", 1}};
  CHECK(machine.refused(other, "is not known from the driver's source"));
  other["experimental"] = true;
  CHECK(fix.apply(machine.host, other));
  CHECK(machine.check({{"module", "nvidia"}, {"entry", "none"}}).summary ==
        "module nvidia needs no option with this driver");
}

TEST_CASE("modprobe-options: registry keys of single GPUs have their own option") {
  Machine machine;
  machine.put(kUser,
              "options nvidia "
              "NVreg_RegistryDwordsPerDevice=\"pci=0000:03:00.0;Mine=7;pci=0000:01:00.0;RMForceStaticBar1=0\"\n");
  const auto with = [](const nlohmann::json& dwords) {
    return Parameters{{"module", "nvidia"}, {"registry_dwords", dwords}};
  };
  const Parameters both =
      with({{"ForceP2P", 0x11}, {"0000:01:00.0/RMForceStaticBar1", 1}, {"0000:02:00.0/RMForceStaticBar1", 1}});
  REQUIRE(kModprobeOptions.validate(both));
  CHECK_FALSE(machine.passes(both));
  REQUIRE(fix.apply(machine.host, both));
  CHECK(machine.passes(both));
  CHECK(machine.ours() ==
        "# Written by p2pd; undone by `p2pctl revert`.\n"
        "# registry keys: 0000:01:00.0/RMForceStaticBar1=1;0000:02:00.0/RMForceStaticBar1=1;ForceP2P=0x11\n"
        "options nvidia NVreg_RegistryDwords=\"ForceP2P=0x11\" "
        "NVreg_RegistryDwordsPerDevice=\"pci=0000:01:00.0;RMForceStaticBar1=1;pci=0000:02:00.0;RMForceStaticBar1=1;"
        "pci=0000:03:00.0;Mine=7\"\n");
  machine.put("proc/driver/nvidia/params",
              "RegistryDwords: \"ForceP2P=17\"\nRegistryDwordsPerDevice: \"pci=0000:01:00.0;RMForceStaticBar1=1\"\n");
  machine.put("sys/module/nvidia/version", "580.95.05\n");
  CHECK(machine.in_force().facts["not_in_force"].size() == 1);  // of the other two GPUs

  SECTION("a GPU that left its slot keeps no key of ours") {
    REQUIRE(fix.apply(machine.host, with({{"0000:04:00.0/RMForceStaticBar1", 1}})));
    CHECK(machine.ours().find("0000:02:00.0") == std::string::npos);
    CHECK(machine.ours().find("ForceP2P=0x11") != std::string::npos);
  }
}

TEST_CASE(
    "modprobe-options: a key for all GPUs counts for each, but for static BAR1, and is not kept beside single ones") {
  Machine machine;
  const Parameters old{{"module", "nvidia"},
                       {"registry_dwords", {{"RMForceStaticBar1", 1}, {"PeerMappingOverride", 1}}}};
  REQUIRE(fix.apply(machine.host, old));
  CHECK(machine.passes({{"module", "nvidia"}, {"registry_dwords", {{"0000:01:00.0/PeerMappingOverride", 1}}}}));
  CHECK_FALSE(machine.passes({{"module", "nvidia"}, {"registry_dwords", {{"0000:01:00.0/RMForceStaticBar1", 1}}}}));
  const Parameters two{{"module", "nvidia"}, {"registry_dwords", {{"0000:01:00.0/RMForceStaticBar1", 2}}}};
  REQUIRE(fix.apply(machine.host, two));
  CHECK(machine.ours().find("0000:01:00.0/RMForceStaticBar1=2") != std::string::npos);
  CHECK(machine.ours().find("NVreg_RegistryDwords=\"PeerMappingOverride=1\"") != std::string::npos);
}

TEST_CASE("modprobe-options: ForceP2P with atomics includes the one without") {
  Machine machine;
  const Parameters atomics{{"module", "nvidia"}, {"registry_dwords", {{"ForceP2P", 0x111}}}};
  const Parameters plain{{"module", "nvidia"}, {"registry_dwords", {{"ForceP2P", 0x11}, {"RMPcieP2PType", 1}}}};
  REQUIRE(fix.apply(machine.host, plain));
  CHECK_FALSE(machine.passes(atomics));
  REQUIRE(fix.apply(machine.host, atomics));
  CHECK(machine.passes(plain));
  machine.put(kOurs,
              "# Written by p2pd; undone by `p2pctl revert`.\n# registry keys: ForceP2P=0x111\noptions nvidia "
              "NVreg_RegistryDwords=ForceP2P=0x111\n");
  REQUIRE(fix.apply(machine.host, plain));  // the other key is lacking
  CHECK((machine.passes(plain) && machine.passes(atomics)));
}

TEST_CASE("modprobe-options: a build's options are not mixed with those of NVIDIA's own modules, which come first") {
  const Parameters with{{"module", "nvidia"}, {"entry", "aikitoria/580.105.08-p2p"}};
  for (const char* name : {"ubuntu24-rtx3090-x2", "ubuntu24-rtx5090-x2", "rtx5090-x2-driver-ok"})
    CHECK(test::MadeBus::look_at(kModprobeOptions, test::machine_path(name), with)->verdict == Verdict::not_applicable);
  CHECK(test::MadeBus::look_at(kModprobeOptions, test::machine_path("ubuntu26-rtx4090-x2"), with)->verdict ==
        Verdict::fail);  // the driver of its packages is replaced before
}

TEST_CASE("modprobe-options: a build's options are wanted once it is installed") {
  const Parameters with{{"module", "nvidia"}, {"entry", "aikitoria/580.105.08-p2p"}};
  const Finding finding =
      test::MadeBus::look_at(kModprobeOptions, test::machine_path("rtx4090-x2-foreign-570-cns"), with).value();
  CHECK(finding.verdict == Verdict::not_applicable);
  CHECK(finding.summary ==
        "the installed modules are not those of aikitoria/580.105.08-p2p: its options are not theirs");
}
