// SPDX-License-Identifier: MIT
// Modules that are loaded (machine/modules/loaded_modules.hpp), and the check that they are those on disk.
#include <random>

#include "base/probe.hpp"
#include "catch.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/module_file.hpp"
#include "made_module.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kNvidiaModules;
}

namespace fs = std::filesystem;
using namespace p2pd;
using test::MadeModule;

namespace {

constexpr char kGpus[] =
    "0000:01:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n"
    "0000:02:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n";
const std::string kLib = "lib/modules/6.1.0/";

/// Two GPUs, kernel 6.1.0, nvidia and nvidia_uvm loaded and on disk.
struct Machine : test::MadeTree {
  Machine() {
    put("lspci-xxxx.txt", kGpus);
    put("proc/sys/kernel/osrelease", "6.1.0\n");
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.16\n");
    put("sys/module/nvidia/version", "570.86.16\n");
    put("sys/module/nvidia/srcversion", "AAAA\n");
    put("sys/module/nvidia_uvm/srcversion", "BBBB\n");
    put(kLib + "modules.dep",
        "kernel/drivers/video/nvidia.ko:\nkernel/drivers/video/nvidia-uvm.ko: kernel/drivers/video/nvidia.ko\n");
    put(kLib + "kernel/drivers/video/nvidia.ko", MadeModule{"AAAA"}.bytes());
    put(kLib + "kernel/drivers/video/nvidia-uvm.ko", MadeModule{.srcversion = "BBBB", .extended = true}.bytes());
  }
  void bind(const std::string& address, const std::string& driver) const {
    const fs::path device = directory / ("sys/bus/pci/devices/" + address);
    fs::create_directories(device);
    fs::create_symlink("../../../../bus/pci/drivers/" + driver, device / "driver");
  }
  Result<Finding> check() const { return kNvidiaModules.check(host, Parameters::object()); }
  Finding look() const { return check().value(); }
};

}  // namespace

TEST_CASE("nvidia-modules: loaded is what modprobe would load") {
  const Machine machine;
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary ==
        "the loaded open modules are those that modprobe loads: kernel/drivers/video/nvidia.ko (srcversion AAAA, the "
        "weaker sign: "
        "no build id is known)");
  CHECK(finding.facts["flavour"] == "open");
  CHECK(finding.facts["modules"]["nvidia_uvm"]["files"][0]["srcversion"] == "BBBB");
  CHECK(machine.runner.ran.empty());

  machine.put("sys/module/nvidia_uvm/srcversion", "0000\n");
  const Finding stale = machine.look();
  CHECK(stale.verdict == Verdict::fail);
  CHECK(stale.summary ==
        "the loaded nvidia_uvm module is not the file that is installed: srcversion 0000 is loaded, srcversion BBBB is "
        "installed");
  CHECK(stale.next == "Load the modules again, or reboot.");
}

TEST_CASE("nvidia-modules: a DKMS copy that shadows the one built by hand is named") {
  const Machine machine;
  machine.put(kLib + "modules.dep", "updates/dkms/nvidia.ko:\nkernel/drivers/video/nvidia-uvm.ko:\n");
  machine.put(kLib + "updates/dkms/nvidia.ko", MadeModule{"CCCC"}.bytes());
  const Finding by_hand = machine.look();  // loaded by hand; the next boot takes the other
  CHECK(by_hand.verdict == Verdict::fail);
  machine.put("sys/module/nvidia/srcversion", "CCCC\n");
  const Finding after = machine.look();
  CHECK(after.verdict == Verdict::fail);
  CHECK(after.summary ==
        "updates/dkms/nvidia.ko (srcversion CCCC) shadows the different kernel/drivers/video/nvidia.ko (srcversion "
        "AAAA); "
        "loaded is srcversion CCCC");
  CHECK(after.next.find("dkms remove") != std::string::npos);
  machine.put(kLib + "kernel/drivers/video/nvidia.ko", MadeModule{"CCCC"}.bytes());
  const Finding same = machine.look();
  CHECK(same.verdict == Verdict::pass);
  CHECK(same.summary.ends_with("; shadowed: kernel/drivers/video/nvidia.ko"));
}

TEST_CASE("nvidia-modules: a module of the same srcversion and another build id is another one") {
  const Machine machine;
  const std::string patched = test::build_id_note("\x3f\xa2"), stock = test::build_id_note("\x91\xbc");
  machine.put("sys/module/nvidia/notes/.note.gnu.build-id", patched);
  machine.put(kLib + "kernel/drivers/video/nvidia.ko", MadeModule{"AAAA", patched}.bytes());
  const Finding same = machine.look();
  CHECK(same.verdict == Verdict::pass);
  CHECK(same.summary ==
        "the loaded open modules are those that modprobe loads: kernel/drivers/video/nvidia.ko (build id 3fa2)");
  CHECK(same.facts["modules"]["nvidia"]["files"][0]["build_id"] == "3fa2");

  machine.put("sys/module/nvidia/notes/.note.gnu.build-id", stock);
  const Finding other = machine.look();
  CHECK(other.verdict == Verdict::fail);
  CHECK(other.summary ==
        "the loaded nvidia module is not the file that is installed: build id 91bc is loaded, build id 3fa2 is "
        "installed");

  // a stock one of DKMS takes precedence: the loaded one decides, since the two may be builds of one source
  machine.put(kLib + "modules.dep", "updates/dkms/nvidia.ko:\nkernel/drivers/video/nvidia-uvm.ko:\n");
  machine.put(kLib + "updates/dkms/nvidia.ko", MadeModule{"AAAA", stock}.bytes());
  CHECK(machine.look().verdict == Verdict::pass);
  machine.put("sys/module/nvidia/notes/.note.gnu.build-id", patched);
  CHECK(machine.look().summary ==
        "updates/dkms/nvidia.ko (build id 91bc) shadows the different kernel/drivers/video/nvidia.ko (build id 3fa2); "
        "loaded is "
        "build id 3fa2");
}

TEST_CASE("nvidia-modules: compressed modules are asked for with one command") {
  Machine machine;
  machine.put(kLib + "modules.dep", "updates/dkms/nvidia.ko.zst:\nupdates/dkms/nvidia-uvm.ko.zst:\n");
  machine.put(kLib + "updates/dkms/nvidia.ko.zst", "x");
  machine.put(kLib + "updates/dkms/nvidia-uvm.ko.zst", "x");
  fs::remove_all(machine.directory / (kLib + "kernel"));
  const std::string command =
      "modinfo -F srcversion /lib/modules/6.1.0/updates/dkms/nvidia.ko.zst "
      "/lib/modules/6.1.0/updates/dkms/nvidia-uvm.ko.zst";
  CHECK_FALSE(machine.check());
  machine.runner.on(command, "AAAA\nBBBB\n");
  CHECK(machine.look().verdict == Verdict::pass);
  machine.runner.on(command, "AAAA\n");
  CHECK_FALSE(machine.check());
}

TEST_CASE("nvidia-modules: Debian's name of the modules") {
  const Machine machine;
  machine.put("etc/modprobe.d/nvidia.conf", "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n");
  machine.put(kLib + "modules.dep", "updates/dkms/nvidia-current.ko:\nupdates/dkms/nvidia-current-uvm.ko:\n");
  machine.put(kLib + "updates/dkms/nvidia-current.ko", MadeModule{"AAAA"}.bytes());
  machine.put(kLib + "updates/dkms/nvidia-current-uvm.ko", MadeModule{"BBBB"}.bytes());
  CHECK(machine.look().verdict == Verdict::pass);
  machine.put("etc/modprobe.d/nvidia.conf", "install nvidia /bin/false\n");
  CHECK(machine.check().error().message.find("runs a command instead") != std::string::npos);
  machine.put("etc/modprobe.d/a.conf",
              "install nvid*a modprobe --ignore-install nvidia-current\n");  // the first counts
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("nvidia-modules: p2pd's own ban for the trial is no other way to load them") {
  const Machine machine;
  machine.put("etc/modprobe.d/00-p2pd-trial.conf", "blacklist nvidia\ninstall nvidia /bin/false\n");
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("nvidia-modules: nouveau, no module, no file, no GPU") {
  const Machine machine;
  machine.bind("0000:02:00.0", "nouveau");
  CHECK(machine.look().summary == "nouveau drives 0000:02:00.0");
  CHECK(machine.look().verdict == Verdict::fail);
  fs::remove(machine.directory / "sys/bus/pci/devices/0000:02:00.0/driver");
  machine.bind("0000:02:00.0", "NovaCore");
  CHECK(machine.look().summary == "NovaCore drives 0000:02:00.0");
  fs::remove_all(machine.directory / "sys/bus");
  machine.put(kLib + "modules.dep", "kernel/fs/ext4/ext4.ko:\n");
  CHECK(machine.look().summary.find("no longer has that file") != std::string::npos);
  fs::remove(machine.directory / (kLib + "modules.dep"));
  CHECK_FALSE(machine.check());
  fs::remove_all(machine.directory / "sys/module");
  CHECK(machine.look().summary == "no NVIDIA kernel module is loaded");
  CHECK(machine.look().verdict == Verdict::fail);
  machine.put("lspci-xxxx.txt", "0000:01:00.0 x\n00: 02 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");
  CHECK(machine.look().verdict == Verdict::not_applicable);
}

TEST_CASE("nvidia-modules: a broken module file is no pass, wherever it breaks") {
  const Machine machine;
  const std::string whole = MadeModule{"AAAA"}.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    machine.put(kLib + "kernel/drivers/video/nvidia.ko", whole.substr(0, size));
    CHECK_FALSE(machine.check());
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = '\xff';
    machine.put(kLib + "kernel/drivers/video/nvidia.ko", bytes);
    (void)machine.check();  // an answer or an error, no crash
  }
}

TEST_CASE("loaded modules: references, users, and what is beyond them") {
  const auto modules = parse_loaded_modules(
      "nvidia_uvm 4956160 0 - Live 0xffffffffc1000000 (OE)\n"
      "nvidia_drm 131072 5 - Live 0x0000000000000000 (OE)\n"
      "nvidia_modeset 1724416 3 nvidia_drm, Live 0x0000000000000000 (OE)\n"
      "nvidia 11575296 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n"
      "firm 4096 1 [permanent], Live 0x0\n"
      "stuck 4096 - - Live 0x0\n");
  REQUIRE(modules.size() == 6);
  CHECK(modules[0].other_references() == 0);
  CHECK(modules[1].other_references() == 5);
  CHECK(modules[2].other_references() == 2);
  CHECK(modules[3].users == std::vector<std::string>{"nvidia_uvm", "nvidia_modeset"});
  CHECK(modules[3].other_references() == 0);
  CHECK(modules[4].users.empty());
  CHECK(modules[4].other_references() == 1);
  CHECK_FALSE(modules[5].references);
  CHECK_FALSE(modules[5].other_references());
}

TEST_CASE("loaded modules: lines that are none are left out") {
  CHECK(parse_loaded_modules("").empty());
  CHECK(parse_loaded_modules(
            "nvidia 1 many - Live\nnvidia 1 -3 - Live\nnvidia 1 99999999999999999999 - Live\nnvidia 1\n\n")
            .empty());
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string noise(random() % 300, '\0');
    for (char& c : noise) c = "nv 0-,[]\n\xff"[random() % 10];
    for (const LoadedModule& module : parse_loaded_modules(noise)) CHECK(module.other_references().value_or(0) >= 0);
  }
}

TEST_CASE("nvidia-modules: a blacklist that keeps nvidia off is named") {
  Machine machine;
  fs::remove_all(machine.directory / "sys/module");
  machine.put("etc/modprobe.d/pve-blacklist.conf", "blacklist nvidiafb\n");
  CHECK(machine.look().summary == "no NVIDIA kernel module is loaded");
  machine.put("etc/modprobe.d/pve-blacklist.conf", "blacklist nvidiafb\nblacklist nvidia\n");
  const Finding finding = machine.look();
  CHECK(finding.summary == "no NVIDIA kernel module is loaded: /etc/modprobe.d/pve-blacklist.conf:2 keeps it off");
  CHECK(finding.next == "Remove that line of /etc/modprobe.d/pve-blacklist.conf, make the initramfs anew, and reboot.");
}
