// SPDX-License-Identifier: MIT
#include <elf.h>

#include <cstring>

#include "base/modules/module_file.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kNvidiaModules;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kGpus[] =
    "0000:01:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n"
    "0000:02:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n";
const std::string kLib = "lib/modules/6.1.0/";

/// A kernel module as far as its .modinfo goes. `extended`: section numbers where large files have them.
std::string module_bytes(const std::string& srcversion, bool extended = false) {
  const std::string names("\0.shstrtab\0.modinfo\0", 20);
  const std::string info = std::string("version=570.86.16\0srcversion=", 29) + srcversion + std::string(1, '\0');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header + names.size() + info.size();
  header.e_shnum = extended ? 0 : 3;
  header.e_shstrndx = extended ? SHN_XINDEX : 1;
  Elf64_Shdr sections[3]{};
  if (extended) sections[0].sh_size = 3;
  if (extended) sections[0].sh_link = 1;
  sections[1].sh_name = 1;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = names.size();
  sections[2].sh_name = 11;
  sections[2].sh_offset = sizeof header + names.size();
  sections[2].sh_size = info.size();
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  return out + names + info + std::string(reinterpret_cast<const char*>(sections), sizeof sections);
}

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
    put(kLib + "kernel/drivers/video/nvidia.ko", module_bytes("AAAA"));
    put(kLib + "kernel/drivers/video/nvidia-uvm.ko", module_bytes("BBBB", true));
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
        "the loaded open modules are those that modprobe loads: kernel/drivers/video/nvidia.ko (srcversion AAAA)");
  CHECK(finding.facts["flavour"] == "open");
  CHECK(finding.facts["modules"]["nvidia_uvm"]["files"][0]["srcversion"] == "BBBB");
  CHECK(machine.runner.ran.empty());

  machine.put("sys/module/nvidia_uvm/srcversion", "0000\n");
  const Finding stale = machine.look();
  CHECK(stale.verdict == Verdict::fail);
  CHECK(stale.summary.find(
            "the loaded nvidia_uvm (srcversion 0000) is not kernel/drivers/video/nvidia-uvm.ko (BBBB)") == 0);
  CHECK(stale.next == "Load the modules again, or reboot.");
}

TEST_CASE("nvidia-modules: a DKMS copy that shadows the one built by hand is named") {
  const Machine machine;
  machine.put(kLib + "modules.dep", "updates/dkms/nvidia.ko:\nkernel/drivers/video/nvidia-uvm.ko:\n");
  machine.put(kLib + "updates/dkms/nvidia.ko", module_bytes("CCCC"));
  const Finding by_hand = machine.look();  // loaded by hand; the next boot takes the other
  CHECK(by_hand.verdict == Verdict::fail);
  machine.put("sys/module/nvidia/srcversion", "CCCC\n");
  const Finding after = machine.look();
  CHECK(after.verdict == Verdict::fail);
  CHECK(after.summary ==
        "updates/dkms/nvidia.ko (srcversion CCCC) shadows the different kernel/drivers/video/nvidia.ko (AAAA); "
        "loaded is CCCC");
  CHECK(after.next.find("dkms remove") != std::string::npos);
  machine.put(kLib + "kernel/drivers/video/nvidia.ko", module_bytes("CCCC"));
  const Finding same = machine.look();
  CHECK(same.verdict == Verdict::pass);
  CHECK(same.summary.ends_with("; shadowed: kernel/drivers/video/nvidia.ko"));
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
  machine.put(kLib + "updates/dkms/nvidia-current.ko", module_bytes("AAAA"));
  machine.put(kLib + "updates/dkms/nvidia-current-uvm.ko", module_bytes("BBBB"));
  CHECK(machine.look().verdict == Verdict::pass);
  machine.put("etc/modprobe.d/nvidia.conf", "install nvidia /bin/false\n");
  CHECK(machine.check().error().message.find("runs a command instead") != std::string::npos);
  machine.put("etc/modprobe.d/a.conf", "install nvid*a modprobe --ignore-install nvidia-current\n");  // the first counts
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
  fs::remove_all(machine.directory / "sys/bus");
  machine.put(kLib + "modules.dep", "kernel/fs/ext4/ext4.ko:\n");
  CHECK(machine.look().summary.find("has no such file any more") != std::string::npos);
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
  const std::string whole = module_bytes("AAAA");
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
