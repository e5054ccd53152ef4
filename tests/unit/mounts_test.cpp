// SPDX-License-Identifier: MIT
#include "machine/boot/mounts.hpp"

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kTable[] =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "30 27 259:2 / /boot rw,relatime shared:5 master:3 - ext4 /dev/nvme0n1p2 rw\n"
    "31 30 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw,fmask=0077\n"
    "32 27 0:40 /a\\040b /mnt/a\\040b\\134 ro - btrfs pool\\011x rw\n"
    "33 30 0:41 / /boot/grub rw - tmpfs none ro\n"
    "34 33 259:3 / /boot/grub rw - xfs /dev/sda1 rw\n";

}  // namespace

TEST_CASE("mounts: the last of the longest above a path") {
  const auto mounts = parse_mounts(kTable).value();
  REQUIRE(mounts.size() == 6);
  CHECK(mount_above(mounts, "/boot/grub")->type == "xfs");
  CHECK(mount_above(mounts, "/boot/grub")->device == "259:3");
  CHECK(mount_above(mounts, "/boot/grubby")->source == "/dev/nvme0n1p2");
  CHECK(mount_above(mounts, "/boot/efi/EFI")->type == "vfat");
  CHECK(mount_above(mounts, "/")->point == "/");
  CHECK(mount_above(mounts, "/bootx")->point == "/");
  CHECK(mounts[3].point == "/mnt/a b\\");
  CHECK(mounts[3].source == "pool\tx");
  CHECK(mounts[3].read_only);
  CHECK(mounts[4].read_only);
  CHECK_FALSE(mounts[0].read_only);
  CHECK(mount_above({}, "/") == nullptr);
}

TEST_CASE("mounts: a line that is none is an error") {
  for (const char* text :
       {"27 1 254:0 / / rw", "27 1 254:0 / / rw - ext4", "- - -", "x", "27 1 254:0 / / rw shared:1\n"}) {
    INFO(text);
    const auto mounts = parse_mounts(text);
    REQUIRE_FALSE(mounts);
    CHECK(mounts.error().code == ErrorCode::invalid);
  }
  CHECK(parse_mounts("").value().empty());
  CHECK(parse_mounts("\n\n").value().empty());
}

TEST_CASE("mounts: LVM and RAID are found at any depth, and loops end") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  const auto device = [&](const std::string& number, const std::string& node) {
    fs::create_directories(directory / "sys/dev/block");
    fs::create_directories(directory / "sys/class/block");
    fs::create_directories(directory / ("sys/devices/" + node));
    fs::create_symlink("../../devices/" + node, directory / ("sys/dev/block/" + number));
    fs::create_symlink("../../devices/" + node, directory / ("sys/class/block/" + node.substr(node.rfind('/') + 1)));
  };
  device("259:2", "nvme0n1/nvme0n1p2");
  device("253:0", "dm-0");
  device("253:1", "dm-1");
  device("9:0", "md0");
  device("259:9", "md0/md0p1");
  directory.put("sys/devices/dm-0/dm/uuid", "LVM-abc\n");
  directory.put("sys/devices/dm-1/dm/uuid", "CRYPT-LUKS2-abc\n");
  directory.put("sys/devices/md0/md/level", "raid1\n");
  CHECK(layer_below(host, "259:2").empty());
  CHECK(layer_below(host, "253:0") == "LVM");
  CHECK(layer_below(host, "253:1").empty());
  CHECK(layer_below(host, "9:0") == "RAID");
  CHECK(layer_below(host, "259:9") == "RAID");
  CHECK(layer_below(host, "0:40").empty());
  CHECK(layer_below(host, "../../x").empty());
  fs::create_directories(directory / "sys/devices/dm-1/slaves");
  fs::create_symlink("../../dm-0", directory / "sys/devices/dm-1/slaves/dm-0");
  CHECK(layer_below(host, "253:1") == "LVM");  // LUKS on LVM
  device("253:2", "dm-2");
  fs::create_directories(directory / "sys/devices/dm-2/slaves");
  fs::create_symlink("..", directory / "sys/devices/dm-2/slaves/dm-2");
  CHECK(layer_below(host, "253:2").empty());
}

TEST_CASE("mounts: what is lost with the boot is told from what lasts") {
  struct Row {
    const char* table;
    const char* arguments;
    bool lost;
  };
  const Row rows[] = {
      {"27 1 254:0 / / rw - ext4 /dev/vda rw\n", "boot=live", false},
      {"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:40 / /var rw - tmpfs tmpfs rw\n", "", true},
      {"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:40 / /var/lib/p2pd rw - ramfs x rw\n", "", true},
      {"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:40 / /tmp rw - tmpfs tmpfs rw\n", "", false},
      {"27 1 252:0 / / rw - ext4 /dev/zram0 rw\n", "", true},
      {"27 1 0:2 / / rw - rootfs rootfs rw\n", "", true},
      // overlayroot: the upper layer is visible
      {"27 1 0:30 / / rw - overlay overlayroot rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/overlay,workdir=/x\n"
       "28 27 0:31 / /media/root-rw rw - tmpfs tmpfs-root rw\n",
       "", true},
      {"27 1 0:30 / / rw - overlay overlay rw,lowerdir=/ro,upperdir=/run/live/persistence/sdb1/rw,workdir=/x\n"
       "28 27 8:17 / /run/live/persistence/sdb1 rw - ext4 /dev/sdb1 rw\n",
       "boot=live persistence", false},
      // casper's, and a container's, is not visible: the kernel's command line distinguishes them
      {"27 1 0:30 / / rw - overlay /cow rw,lowerdir=/filesystem.squashfs,upperdir=/cow/upper,workdir=/cow/work\n",
       "quiet boot=casper", true},
      {"27 1 0:30 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/var/lib/docker/x/diff,workdir=/y\n",
       "quiet noboot=casper", false},
  };
  for (const Row& row : rows) {
    INFO(row.table << row.arguments);
    CHECK(why_volatile(parse_mounts(row.table).value(), "/var/lib/p2pd", row.arguments).empty() != row.lost);
  }
  CHECK(why_volatile({}, "/var/lib/p2pd", "boot=live").empty());
}
