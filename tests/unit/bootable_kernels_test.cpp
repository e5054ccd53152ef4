// SPDX-License-Identifier: MIT
// The kernels that can boot (machine/boot/kernels.hpp), and the check of them.
#include "base/probe.hpp"
#include "catch.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/modules/default_kernel.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kBootableKernels;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const std::string kOld = "6.1.0-9-amd64", kNew = "6.1.0-37-amd64";

struct Machine : test::MadeTree {
  void kernel(const std::string& version, bool headers, bool nvidia) const {
    put("boot/vmlinuz-" + version);
    put("lib/modules/" + version + "/modules.dep");
    if (headers) put("lib/modules/" + version + "/build/Makefile");
    if (nvidia) put("lib/modules/" + version + "/updates/dkms/nvidia.ko");
  }
  Result<Finding> look() { return kBootableKernels.check(host, Parameters::object()); }
};

}  // namespace

TEST_CASE("bootable-kernels: the newest boots next, not the one that runs") {
  for (const auto& [headers, nvidia] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    Machine machine;
    machine.kernel(kOld, true, true);
    machine.kernel(kNew, headers, nvidia);
    machine.put("proc/sys/kernel/osrelease", kOld + "\n");
    const Finding finding = machine.look().value();
    INFO(finding.summary);
    CHECK(finding.verdict == (nvidia ? Verdict::pass : Verdict::fail));
    CHECK((finding.next.find("Build the modules for " + kNew) == 0) == (headers && !nvidia));
    CHECK(finding.facts["next"] == kNew);
    CHECK(finding.facts["running"] == kOld);
    CHECK(finding.evidence[1].value.starts_with(headers ? "has headers" : "no headers"));
    CHECK(finding.evidence[1].value.ends_with("no module nvidia") != nvidia);
    if (!headers && !nvidia) CHECK(finding.next.find("apt install linux-headers-" + kNew) != std::string::npos);
  }
}

TEST_CASE("bootable-kernels: headers will do where no module is lost") {
  Machine machine;
  machine.kernel(kOld, true, false);
  machine.kernel(kNew, true, false);
  machine.put("proc/sys/kernel/osrelease", kOld + "\n");
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look()->summary.find("no module nvidia yet") != std::string::npos);
}

TEST_CASE("bootable-kernels: GRUB's default goes before the newest") {
  Machine machine;
  machine.kernel(kOld, true, true);
  machine.kernel(kNew, false, false);
  const auto grub = [&](const std::string& version) {
    machine.put("boot/grub/grub.cfg", "set default=\"0\"\nmenuentry 'Old' {\n linux /vmlinuz-" + version + " ro\n}\n");
  };
  CHECK(machine.look()->verdict == Verdict::fail);
  grub(kOld);
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look()->facts["next"] == kOld);
  CHECK(machine.look()->evidence[0].source == "/boot/grub/grub.cfg");
  grub("5.10.0-1-amd64");
  CHECK_FALSE(machine.look());  // GRUB would find no such file
  machine.put("boot/grub/grub.cfg", "menuentry 'x' {\n");
  CHECK(machine.look()->facts["next"] == kNew);
}

TEST_CASE("bootable-kernels: a kernel without modules, and a system without kernels") {
  Machine machine;
  CHECK_FALSE(machine.look());
  machine.put("boot/vmlinuz-" + kNew);
  CHECK(machine.look()->verdict == Verdict::fail);
  CHECK(machine.look()->summary.find("no modules at all") != std::string::npos);
  CHECK(machine.look()->facts["running"].is_null());
  machine.kernel(kNew, true, true);
  machine.put("proc/sys/kernel/osrelease", "6.1.0-8-amd64\n");
  CHECK(machine.look()->verdict == Verdict::pass);
  CHECK(machine.look()->summary.find("6.1.0-8-amd64 is running and no longer in /boot") != std::string::npos);
}

TEST_CASE("kernels: those of /boot, in order, with what is there for each") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  const auto put = [&](const std::string& path) { directory.put(path, "x"); };
  CHECK_FALSE(bootable_kernels(host));
  put("boot/config-6.1.0-9-amd64");
  CHECK(bootable_kernels(host).error().code == ErrorCode::not_found);
  for (const char* name : {"vmlinuz-6.1.0-37-amd64", "vmlinuz-6.1.0-9-amd64", "vmlinuz-6.8.0-60-generic",
                           "vmlinuz-6.1.0-9-amd64.old", "vmlinuz-6.1.0-9-amd64.dpkg-new", "vmlinuz", "vmlinuz-"})
    put(std::string("boot/") + name);
  fs::create_directories(directory / "usr/lib");
  fs::create_symlink("usr/lib", directory / "lib");  // merged /usr
  put("lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current.ko");
  put("lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current-uvm.ko");
  put("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko.xz");
  put("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidiafb.ko");
  fs::create_symlink("/usr/src/linux-headers-6.1.0-37-amd64", directory / "lib/modules/6.1.0-37-amd64/build");
  put("lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia.ko.zst");
  put("lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia-drm.ko.zst");
  auto kernels = bootable_kernels(host).value();
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].version == "6.1.0-9-amd64");
  CHECK_FALSE(kernels[0].modules);
  CHECK(kernels[1].version == "6.1.0-37-amd64");
  CHECK(kernels[1].modules);
  CHECK_FALSE(kernels[1].headers);  // the link dangles
  CHECK(kernels[1].nvidia == std::vector<std::string>{"/lib/modules/6.1.0-37-amd64/updates/dkms/nvidia-current.ko",
                                                      "/lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko.xz"});
  CHECK(kernels[2].nvidia == std::vector<std::string>{"/lib/modules/6.8.0-60-generic/kernel/nvidia-550/nvidia.ko.zst"});
  put("usr/src/linux-headers-6.1.0-37-amd64/Makefile");
  CHECK(kernel_of(host, "6.1.0-37-amd64").headers);
  for (int i = 0; i < 300; ++i) put("boot/vmlinuz-1." + std::to_string(i));
  CHECK(bootable_kernels(host).error().code == ErrorCode::invalid);
}

TEST_CASE("bootable-kernels: a kernel that proxmox-boot-tool pinned boots next, for one boot or for all") {
  Machine machine;
  const std::string older = "6.14.11-4-pve", newer = "6.17.2-1-pve";
  machine.kernel(older, true, true);
  machine.kernel(newer, false, false);
  machine.put("etc/kernel/proxmox-boot-uuids", "0000-0000\n");
  CHECK(machine.look()->next == "Install its headers: \"apt install proxmox-headers-6.17.2-1-pve\".");
  machine.put("etc/kernel/proxmox-boot-pin", older + "\n");
  const Finding pinned = machine.look().value();
  CHECK(pinned.summary.starts_with("6.14.11-4-pve boots next (pinned by proxmox-boot-tool) and has a module nvidia"));
  CHECK(pinned.evidence[0].source == "/etc/kernel/proxmox-boot-pin");
  machine.put("etc/kernel/next-boot-pin", newer + "\n");
  CHECK(machine.look()->facts["next"] == newer);
  machine.put("etc/kernel/next-boot-pin", "6.8.1-1-pve\n");
  const auto gone = machine.look();
  REQUIRE_FALSE(gone);
  CHECK(gone.error().next == "Run \"proxmox-boot-tool kernel unpin\".");
  fs::remove(machine.directory / "etc/kernel/proxmox-boot-uuids");  // grub.cfg of this system has the pin
  CHECK(machine.look()->facts["next"] == newer);
}

TEST_CASE("bootable-kernels: kernels newer than a pinned one need no driver") {
  Machine machine;
  for (const char* version : {"6.14.11-4-pve", "6.17.2-1-pve", "6.17.4-1-pve"}) machine.kernel(version, true, true);
  CHECK(kernels_held_back(machine.host).empty());
  machine.put("etc/kernel/next-boot-pin", "6.14.11-4-pve\n");
  CHECK(kernels_held_back(machine.host).empty());  // the boot after that is another
  machine.put("etc/kernel/proxmox-boot-pin", "6.14.11-4-pve");
  CHECK(kernels_held_back(machine.host) == std::vector<std::string>{"6.17.2-1-pve", "6.17.4-1-pve"});
  machine.put("etc/kernel/proxmox-boot-pin", "6.8.1-1-pve\n");
  CHECK(kernels_held_back(machine.host).empty());
}

TEST_CASE("bootable-kernels: images of Arch have the name of their package") {
  Machine machine;
  machine.put("boot/vmlinuz-linux-cachyos");
  machine.put("boot/vmlinuz-linux-lts");
  machine.put("lib/modules/7.2.2-2-cachyos/pkgbase", "linux-cachyos\n");
  machine.put("lib/modules/7.2.2-2-cachyos/updates/dkms/nvidia.ko.zst");
  machine.put("lib/modules/6.18.9-1-lts/pkgbase", "linux-lts\n");
  CHECK(machine.look()->summary.starts_with("7.2.2-2-cachyos boots next (the newest) and has a module nvidia"));
}
