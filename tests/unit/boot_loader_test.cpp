// SPDX-License-Identifier: MIT
#include "base/probe.hpp"
#include "catch.hpp"
#include "grub_machine.hpp"
#include "machine/boot/efi_variable.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kBootLoader;
}

namespace fs = std::filesystem;
using namespace p2pd;
using namespace std::string_literals;

namespace {

const std::string kRootMount = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";

/// A host that GRUB boots from one ext4 partition.
struct Machine : test::MadeTree {
  Machine() {
    put("boot/grub/grub.cfg", test::kDebianGrub);
    put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.1.0-37-amd64 root=UUID=1 ro quiet\n");
    put("proc/self/mountinfo", kRootMount);
  }
  void remove(const std::string& path) const { fs::remove_all(directory / path); }
  void loader_info(std::string_view text) const {
    std::string data = "\x06\0\0\0"s;
    for (const char c : text) data += std::string{c, '\0'};
    put(efi_variable_path("LoaderInfo", kEfiLoader), data + "\0\0"s);
  }
  Result<Finding> look() { return kBootLoader.check(host, Parameters::object()); }
  bool fails_with(const std::string& text) {
    const Finding finding = look().value();
    INFO(finding.summary);
    CHECK(finding.summary.find(text) != std::string::npos);
    CHECK_FALSE(finding.next.empty());
    return finding.verdict == Verdict::fail;
  }
};

}  // namespace

TEST_CASE("boot-loader: GRUB on a plain file system passes") {
  Machine machine;
  CHECK(machine.look()->verdict == Verdict::pass);
  machine.loader_info("GRUB 2.12");
  machine.put("boot/grub/grubenv", "# GRUB Environment Block\n####");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["loader"] == "grub");
  CHECK(finding.facts["layer"].is_null());
  CHECK(finding.evidence[0].value == "GRUB 2.12");
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("boot-loader: others are named") {
  Machine machine;
  SECTION("systemd-boot, by its own word") {
    machine.loader_info("systemd-boot 252.22-1~deb12u1");
    CHECK(machine.look()->verdict == Verdict::pass);
    CHECK(machine.look()->facts["loader"] == "systemd-boot");
  }
  SECTION("systemd-boot, by its files") {
    machine.remove("boot/grub");
    machine.put("boot/efi/EFI/systemd/systemd-bootx64.efi", "x");
    CHECK(machine.fails_with("systemd-boot boots this host"));
  }
  SECTION("another, by its own word") {
    machine.loader_info("Limine 7.0");
    CHECK(machine.fails_with("Limine 7.0 boots this host"));
  }
  SECTION("proxmox-boot-tool, though GRUB's files are there") {
    machine.put("etc/kernel/proxmox-boot-uuids", "C0DE-1234\n");
    CHECK(machine.fails_with("proxmox-boot-tool installs GRUB on this host"));
    CHECK(machine.look()->facts["loader"] == "proxmox-boot-tool");
    machine.loader_info("systemd-boot 252.31-1~deb12u1");
    CHECK(machine.look()->verdict == Verdict::pass);
    CHECK(machine.look()->facts["loader"] == "proxmox-boot-tool");
    machine.put("etc/kernel/proxmox-boot-uuids", " \n");
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("GRUB in the way of Fedora") {
    machine.remove("boot/grub");
    machine.put("boot/grub2/grub.cfg", "x");
    CHECK(machine.fails_with("does not use /boot/grub/grub.cfg"));
  }
  SECTION("a kernel that GRUB did not start") {
    machine.put("proc/cmdline", "root=/dev/vda console=ttyS0\n");
    CHECK(machine.fails_with("not started by GRUB"));
  }
  SECTION("no file at all") {
    machine.remove("boot");
    CHECK_FALSE(machine.look());
  }
}

TEST_CASE("boot-loader: GRUB that cannot write fails") {
  Machine machine;
  SECTION("ZFS") {
    machine.put("proc/self/mountinfo", "27 1 0:29 / / rw - zfs rpool/ROOT/pve-1 rw\n");
    CHECK(machine.fails_with("/boot/grub is on zfs"));
  }
  SECTION("btrfs") {
    machine.put("proc/self/mountinfo", "27 1 0:29 /@ / rw - btrfs /dev/sda2 rw\n");
    CHECK(machine.fails_with("/boot/grub is on btrfs"));
  }
  SECTION("LVM") {
    machine.put("proc/self/mountinfo", "27 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
    machine.put("sys/dev/block/253:0/dm/uuid", "LVM-x\n");
    CHECK(machine.fails_with("/boot/grub is on LVM"));
  }
  SECTION("RAID below /boot only") {
    machine.put("proc/self/mountinfo", kRootMount + "30 27 9:0 / /boot rw - ext4 /dev/md0 rw\n");
    machine.put("sys/dev/block/9:0/md/level", "raid1\n");
    CHECK(machine.fails_with("/boot/grub is on RAID"));
  }
  SECTION("LVM below the root, /boot on a partition") {
    machine.put("proc/self/mountinfo",
                "27 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n30 27 8:2 / /boot rw - ext2 /dev/sda2 rw\n");
    machine.put("sys/dev/block/253:0/dm/uuid", "LVM-x\n");
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("LVM, and no menu to look at") {
    machine.put("proc/self/mountinfo", "27 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
    machine.put("sys/dev/block/253:0/dm/uuid", "LVM-x\n");
    machine.remove("boot/grub/grub.cfg");
    machine.put("boot/grub/grubenv", "# GRUB Environment Block\n");
    CHECK(machine.fails_with("/boot/grub is on LVM"));
  }
  SECTION("mounted read-only") {
    machine.put("proc/self/mountinfo", "27 1 254:0 / / ro - ext4 /dev/vda ro\n");
    CHECK(machine.fails_with("read-only"));
  }
  SECTION("a file that is no environment block") {
    machine.put("boot/grub/grubenv", "saved_entry=0\n");
    CHECK(machine.fails_with("not an environment block"));
  }
}

TEST_CASE("boot-loader: a menu without what the trial needs fails") {
  Machine machine;
  const auto without = [](std::string text, const std::string& what) {
    for (std::size_t at; (at = text.find(what)) != std::string::npos;) text.replace(at, what.size(), "x");
    return text;
  };
  SECTION("custom.cfg") {
    machine.put("boot/grub/grub.cfg", without(test::kDebianGrub, "custom.cfg"));
    CHECK(machine.fails_with("does not read /boot/grub/custom.cfg"));
  }
  SECTION("next_entry") {
    machine.put("boot/grub/grub.cfg", without(test::kDebianGrub, "next_entry"));
    CHECK(machine.fails_with("ignores grub-reboot"));
  }
}

TEST_CASE("boot-loader: what is broken is no pass") {
  Machine machine;
  SECTION("mounts") { machine.put("proc/self/mountinfo", "garbage\n"); }
  SECTION("no menu to look at") {
    machine.remove("boot/grub/grub.cfg");
    machine.put("boot/grub/grubenv", "# GRUB Environment Block\n");
  }
  SECTION("no mounts") { machine.remove("proc/self"); }
  SECTION("empty mounts") { machine.put("proc/self/mountinfo", ""); }
  SECTION("grub.cfg") { machine.put("boot/grub/grub.cfg", "menuentry 'x' {\n"); }
  SECTION("LoaderInfo") { machine.put(efi_variable_path("LoaderInfo", kEfiLoader), "x"); }
  CHECK_FALSE(machine.look());
}
