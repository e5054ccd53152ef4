// SPDX-License-Identifier: MIT
#include "machine/modules/initramfs.hpp"

#include "base/action.hpp"
#include "catch.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kInitramfs;
extern const Probe kNouveauBlacklist;
extern const Action kNouveauBlacklistAction;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kConf[] = "blacklist nouveau\n";  // 18 bytes
constexpr char kList[] = "lsinitramfs -l /boot/initrd.img-6.1.0-1-amd64";

struct World : MadeTree {
  World() {
    put("boot/vmlinuz-6.1.0-1-amd64", "");
    put("boot/initrd.img-6.1.0-1-amd64", "x");
    put("usr/bin/lsinitramfs", "");
    std::filesystem::permissions(directory / "usr/bin/lsinitramfs", std::filesystem::perms(0755));
    put("etc/modprobe.d/gpu.conf", kConf);
    put("etc/modprobe.d/dkms.conf", "# nothing of ours\n");
    put("lib/modules/6.1.0-1-amd64/updates/nvidia.ko", "12345");
  }
};

}  // namespace

TEST_CASE("initramfs: stale by what its list shows") {
  struct Row {
    const char *list, *why, *nova = "# none\n";
  };
  const Row rows[] = {
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n", ""},
      {"lrwxrwxrwx 1 root root 53 Jan 24  2025 etc/modprobe.d/gpu.conf -> /etc/x\n", ""},
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n",
       "/boot/initrd.img-6.1.0-1-amd64 lacks /etc/modprobe.d/nova.conf", "blacklist nova_core\n"},
      {"", "/boot/initrd.img-6.1.0-1-amd64 lacks /etc/modprobe.d/gpu.conf"},
      {"-rw-r--r-- 1 root root 19 Nov 21 21:00 etc/modprobe.d/gpu.conf\n",
       "/boot/initrd.img-6.1.0-1-amd64 has another /etc/modprobe.d/gpu.conf"},
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n"
       "-rw-r--r-- 1 root root 9 Nov 21 21:00 etc/modprobe.d/00-p2pd-trial.conf\n",
       ""},  // bans a module that is not in it
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n"
       "-rw-r--r-- 1 root root 9 Nov 21 21:00 etc/modprobe.d/00-p2pd-trial.conf\n"
       "-rw-r--r-- 1 root root 5 Nov 21 21:00 usr/lib/modules/6.1.0-1-amd64/updates/nvidia.ko\n",
       "/boot/initrd.img-6.1.0-1-amd64 still has /etc/modprobe.d/00-p2pd-trial.conf"},
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n"
       "-rw-r--r-- 1 root root 5 Nov 21 21:00 usr/lib/modules/6.1.0-1-amd64/updates/nvidia.ko\n"
       "-rw-r--r-- 1 root root 7 Nov 21 21:00 "
       "usr/lib/modules/6.1.0-1-amd64/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko\n",
       ""},
      {"-rw-r--r-- 1 root root 18 Nov 21 21:00 etc/modprobe.d/gpu.conf\n"
       "-rw-r--r-- 1 root root 7 Nov 21 21:00 usr/lib/modules/6.1.0-1-amd64/updates/dkms/nvidia-current-drm.ko\n",
       "/boot/initrd.img-6.1.0-1-amd64 holds /lib/modules/6.1.0-1-amd64/updates/dkms/nvidia-current-drm.ko, a module "
       "of "
       "another driver"},
  };
  for (const Row& row : rows) {
    World world;
    world.runner.on(kList, row.list);
    world.put("etc/modprobe.d/nova.conf", row.nova);
    INFO(row.list);
    const Finding finding = kInitramfs.check(world.host, {}).value();
    CHECK(finding.facts["images"][0]["stale"] == row.why);
    CHECK((finding.verdict == Verdict::pass) == std::string_view(row.why).empty());
  }
}

TEST_CASE("initramfs: an image that cannot be listed is not known, a kernel without an image is ignored") {
  World world;
  world.runner.on(kList, "", 1, "premature end of archive");
  CHECK_FALSE(kInitramfs.check(world.host, {}));
  std::filesystem::remove(world.directory / "usr/bin/lsinitramfs");
  CHECK(kInitramfs.check(world.host, {}).error().message.find("neither lsinitramfs nor lsinitrd") == 0);
  std::filesystem::remove(world.directory / "boot/initrd.img-6.1.0-1-amd64");
  CHECK(kInitramfs.check(world.host, {})->verdict == Verdict::not_applicable);
}

TEST_CASE("nouveau-blacklist: whatever keeps it off counts") {
  struct Row {
    const char* text;
    bool holds;
  };
  const Row rows[] = {
      {"blacklist nouveau\n", true},
      {"  blacklist\tnouveau\n", true},
      {"install nouveau /bin/false\n", true},
      {"install nouveau /usr/bin/true\n", true},
      {"alias nouveau off\n", true},
      {"# blacklist nouveau\n", false},
      {"options nouveau modeset=0\n", false},
      {"blacklist nouveaux\n", false},
      {"install nouveau modprobe -i x\n", false},
      {"black\\\nlist nouveau\n", true},
  };
  for (const Row& row : rows) {
    MadeTree tree;
    tree.put("etc/modprobe.d/x.conf", row.text);
    INFO(row.text);
    CHECK((kNouveauBlacklist.check(tree.host, {})->verdict == Verdict::pass) == row.holds);
  }
  MadeTree tree;  // a file of /etc masks the one of the same name below /usr
  tree.put("usr/lib/modprobe.d/x.conf", "blacklist nouveau\n");
  CHECK(kNouveauBlacklist.check(tree.host, {})->facts["source"] == "/usr/lib/modprobe.d/x.conf:1");
  tree.put("etc/modprobe.d/x.conf", "");
  CHECK(kNouveauBlacklist.check(tree.host, {})->verdict == Verdict::fail);
}

TEST_CASE("nouveau-blacklist: Nova is kept off where it is loaded, or a kernel that can boot has it") {
  MadeTree tree;
  tree.put("etc/modprobe.d/x.conf", "blacklist nouveau\n");
  CHECK(kNouveauBlacklist.check(tree.host, {})->summary == "nouveau is kept off the GPUs by /etc/modprobe.d/x.conf:1");
  tree.put("boot/vmlinuz-7.0.0-34-generic", "");
  tree.put("lib/modules/7.0.0-34-generic/modules.dep", "kernel/drivers/gpu/nova-core/nova-core.ko.zst:\n");
  CHECK(kNouveauBlacklist.check(tree.host, {})->summary == "nothing keeps nova_core off the GPUs");
  tree.put("sys/module/nova/initstate", "live\n");
  CHECK(kNouveauBlacklist.check(tree.host, {})->summary == "nothing keeps nova and nova_core off the GPUs");

  const Description told = kNouveauBlacklistAction.describe(tree.host, {}).value();
  CHECK(told.summary == "blacklist nova nova_core");
  REQUIRE(kNouveauBlacklistAction.apply(tree.host, {}));
  CHECK(kNouveauBlacklist.check(tree.host, {})->verdict == Verdict::pass);
  CHECK(kNouveauBlacklistAction.describe(tree.host, {})->files.empty());
}
