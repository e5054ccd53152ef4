// SPDX-License-Identifier: MIT
// Every probe finds the same on a record of a record as on the record: data that a probe reads and the capture leaves
// out shows as a difference here.
#include <algorithm>

#include "made_module.hpp"
#include "odd_machine.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr const char* kLibrary = "usr/lib/x86_64-linux-gnu/";

}  // namespace

// in parts: under sanitizers all records together take minutes
TEMPLATE_TEST_CASE_SIG("record: every probe says the same of the record of each machine record, part", "",
                       ((std::size_t part), part), 0, 1, 2, 3) {
  const std::vector<std::string> names = machine_names();
  for (std::size_t i = part; i < names.size(); i += 4) {
    const std::string& name = names[i];
    const fs::path machine = machine_path(name);
    const TemporaryDirectory directory;
    CHECK(record(machine, directory / "copy").machine["unreadable"].empty());
    for (const Probe& probe : probes()) {
      INFO(name << " " << probe.id);
      CHECK(look(probe, directory / "copy").dump(2) == look(probe, machine).dump(2));
    }
  }
}

TEST_CASE("record: layers below /boot") {
  OddMachine odd;
  odd.file("proc/self/mountinfo",
           "24 1 253:0 / / rw,relatime shared:1 - ext4 /dev/dm-0 rw\n"
           "31 24 0:44 / /home/jo rw - nfs4 files.example.org:/jo rw,addr=192.0.2.7\n");
  odd.file("sys/dev/block/253:0/dm/uuid", "LVM-Zx81kQzT0pWnYcJr3tGhVb5sDf7aLm2e");
  CHECK(odd.verdict("boot-loader")["facts"]["layer"] == "LVM");
  odd.same();
  odd.file("sys/dev/block/253:0/dm/uuid", "CRYPT-LUKS2-0123456789abcdef0123456789abcdef-root");
  odd.file("sys/dev/block/253:0/slaves/md1", "");
  odd.file("sys/class/block/md1/md/level", "raid1\n");
  CHECK(odd.verdict("boot-loader")["facts"]["layer"] == "RAID");
  odd.same();
}

TEST_CASE("record: compressed modules, alternatives, masked files, headers in two directories") {
  OddMachine odd;
  const std::string modules = "lib/modules/6.1.0-37-amd64/";
  fs::remove(odd.at / (modules + "kernel/drivers/video/nvidia.ko"));
  odd.file(modules + "kernel/drivers/video/nvidia.ko.xz",
           "\xfd"
           "7zXZ");
  odd.file(modules + "modules.dep",
           "kernel/drivers/video/nvidia.ko.xz:\nkernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko\n");
  const std::string path = "/" + modules + "kernel/drivers/video/nvidia.ko.xz";
  const std::string loaded = odd.text("sys/module/nvidia/srcversion");
  const auto answer = [&](const std::string& name, const nlohmann::json& argv, const std::string& output) {
    odd.file("commands/" + name + ".json",
             nlohmann::json{{"argv", argv}, {"status", 0}, {"output", output}, {"errors", ""}}.dump());
  };
  answer("a", {"modinfo", path}, "filename:       " + path + "\nsrcversion:     " + loaded);
  answer("b", {"modinfo", "-F", "srcversion", path}, loaded);
  for (const char* name : {"uvm", "drm", "modeset"})
    fs::remove_all(odd.at / ("sys/module/nvidia_" + std::string(name)));
  CHECK(odd.verdict("nvidia-modules")["verdict"] == "pass");

  for (const std::string library : {"libcuda.so", "libnvidia-ml.so"}) {
    odd.link("etc/alternatives/" + library, "/usr/lib/nvidia/" + library + ".1");
    odd.link("usr/lib/nvidia/" + library + ".1", "../x86_64-linux-gnu/" + library + ".570.86.16");
    odd.link(kLibrary + library + ".1", "/etc/alternatives/" + library);
  }
  CHECK(odd.verdict("nvidia-userspace")["verdict"] == "pass");

  odd.file("usr/lib/modprobe.d/nvidia-p2p.conf", "options nvidia NVreg_EnableResizableBar=0\n");
  odd.link("etc/modprobe.d/nvidia-p2p.conf", "/dev/null");
  CHECK(odd.verdict("modprobe-options")["facts"]["options"]["NVreg_EnableResizableBar"]["configured"].is_null());

  const std::string headers = "usr/src/linux-headers-6.1.0-37-amd64/";
  fs::remove(odd.at / (headers + "include/linux/pci.h"));
  odd.link(modules + "source", "/usr/src/common");
  odd.file("usr/src/common/include/linux/pci.h", "/* long */\nint pci_resize_resource(int i, int exclude_bars);\n");
  CHECK(odd.verdict("driver-catalogue")["facts"]["kernels"][0]["compat_rules"]["pci-resize-exclude-bars"] == true);
  odd.file("etc/p2pd/catalogue.d/own.yaml", R"(
schema: p2pd.catalogue/2
releases:
  1.1: {known: verified, runfile: {path: /NVIDIA-Linux-x86_64-1.1.run, known: verified}}
patches:
  own/main: {repository: "file:///srv/x", branch: main, commit: "0123456789012345678901234567890123456789", known: verified, base: 1.1, architectures: {Ada: unknown}}
)");
  CHECK(odd.verdict("driver-catalogue")["facts"]["entries"].contains("own/main"));
  odd.same();
}

TEST_CASE("record: build ids of what is loaded and of what is installed") {
  OddMachine odd;
  const std::string loaded = odd.text("sys/module/nvidia/srcversion"), note = build_id_note("\x3f\xa2");
  odd.file("lib/modules/6.1.0-37-amd64/kernel/drivers/video/nvidia.ko",
           MadeModule{.srcversion = loaded.substr(0, loaded.find('\n')), .notes = note, .release = "6.1.0-37-amd64"}
               .bytes());
  odd.file("sys/module/nvidia/notes/.note.gnu.build-id", note);
  CHECK(odd.verdict("nvidia-modules")["facts"]["modules"]["nvidia"]["build_id"] == "3fa2");
  CHECK(odd.verdict("nvidia-modules")["verdict"] == "pass");
  odd.same();
  odd.file("sys/module/nvidia/notes/.note.gnu.build-id", build_id_note("\x91\xbc"));
  CHECK(odd.verdict("nvidia-modules")["verdict"] == "fail");
  odd.same();
}

TEST_CASE("record: what installs in the background, and how the driver came") {
  OddMachine odd;
  odd.file("var/lib/snapd/state.json", R"({"data":{"seeded":false,"secret":"s3cret"},"changes":{}})");
  odd.file("var/lib/snapd/seed/seed.yaml", "snaps:\n");
  odd.file("run/cloud-init/status.json", "{}");
  odd.file("run/reboot-required", "*** System restart required ***\n");
  odd.file("sys/fs/cgroup/system.slice/apt-daily.service/cgroup.procs", "4711\n");
  odd.file("etc/apt/apt.conf.d/01proxy", "Acquire::http::Proxy \"http://jo:s3cret@192.0.2.1:3128\";\n");
  odd.file("etc/apt/apt.conf.d/50unattended-upgrades",
           "Unattended-Upgrade::Package-Blacklist { \"nvidia\"; \"libcuda\"; };\n#clear Unattended-Upgrade::Origins;\n"
           "Unattended-Upgrade { Mail \"jo@example.org\"; Automatic-Reboot \"true\"; };\n"
           "APT::Periodic::Unattended-Upgrade \"1\";\n");
  CHECK(odd.verdict("package-activity")["facts"]["busy"] == nlohmann::json{"apt-daily.service", "cloud-init", "snapd"});
  const TemporaryDirectory upgrades;
  record(odd.at, upgrades / "copy");
  CHECK(text_of(upgrades / "copy/etc/apt/apt.conf.d/50unattended-upgrades").find("\"libcuda\"") != std::string::npos);
  odd.file("var/lib/nvidia/log", "570.86.16\n1: /home/jo/libcuda.so\n");
  odd.file("var/log/nvidia-installer.log", "jo\n");
  odd.file("usr/lib/nvidia/alternate-install-present", "");
  odd.link("var/lib/dkms/nvidia/570.86.16/source", "/usr/src/nvidia-570.86.16");
  odd.file("var/lib/dkms/nvidia/565.77/6.1.0-37-amd64/x86_64/module/nvidia.ko", "");
  CHECK(odd.verdict("nvidia-driver")["facts"]["dkms"].size() == 2);
  odd.same();
  odd.file("var/lib/dpkg/status", odd.text("var/lib/dpkg/status") + "Package: half");  // cut off
  CHECK(odd.verdict("package-state")["verdict"] == "unknown");
  odd.same();
}

TEST_CASE("record: the unit of nvidia-persistenced") {
  OddMachine odd;
  odd.file("usr/bin/nvidia-persistenced", "");
  fs::permissions(odd.at / "usr/bin/nvidia-persistenced", fs::perms(0755));
  CHECK(odd.verdict("persistenced")["verdict"] == "fail");
  odd.same();
  odd.file("lib/systemd/system/nvidia-persistenced.service", "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n");
  odd.link("etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service",
           "/lib/systemd/system/nvidia-persistenced.service");
  CHECK(odd.verdict("persistenced")["verdict"] == "pass");
  odd.same();
  odd.file("etc/systemd/system/nvidia-persistenced.service.d/off.conf",
           "[Service]\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n");
  CHECK(odd.verdict("persistenced")["verdict"] == "fail");
  odd.same();
}

TEST_CASE("record: keys, processors, sockets") {
  OddMachine odd;
  odd.file("var/lib/dkms/mok.pub", "0\x82 CN=gpu-box Secure Boot Module Signature key");
  const std::string mok = "-605dab50-e046-4300-abb6-3dd810dd8b23";
  odd.file("sys/firmware/efi/efivars/MokListRT" + mok,
           "1234"
           "other certificate" +
               odd.text("var/lib/dkms/mok.pub"));
  odd.file("sys/firmware/efi/efivars/MokNew" + mok, "1234");
  CHECK(odd.verdict("secure-boot")["facts"]["local_key"]["enrolled"] == true);
  odd.same();
  odd.file("sys/firmware/efi/efivars/MokListRT" + mok,
           "1234"
           "other certificate");
  CHECK(odd.verdict("secure-boot")["facts"]["local_key"]["enrolled"] == false);
  odd.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\nflags\t\t: fpu\n\n");
  odd.file("boot/efi/EFI/systemd/systemd-bootx64.efi", "");
  odd.file("sys/module/kvm_amd/refcnt", "3\n");
  odd.file("sys/devices/system/node/node0/cpulist", "0-15\n");
  odd.file("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
  odd.same();
  const TemporaryDirectory directory;
  record(odd.at, directory / "copy");
  CHECK(text_of(directory / "copy/sys/devices/system/cpu/cpu0/topology/physical_package_id") == "0\n");
}

TEST_CASE("record: of a host whose every file is broken there is a record, too") {
  const std::string binary(1 << 16, '\xff');
  for (const std::string& content :
       {std::string(), std::string("\n\n:"), binary, binary + std::string("\0\n:=-\"{", 7)}) {
    OddMachine odd;
    std::vector<std::string> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(odd.at))
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), odd.at).string());
    for (const std::string& name : files)
      if (name != "lspci-xxxx.txt" && !name.starts_with("commands/")) odd.file(name, content);
    const TemporaryDirectory elsewhere;
    CHECK(record(odd.at, elsewhere / "copy").files.size() > 100);
    for (const Probe& probe : probes()) {
      INFO(probe.id);
      CHECK(look(probe, elsewhere / "copy")["verdict"] == look(probe, odd.at)["verdict"]);
    }
  }
}

TEST_CASE("record: the kernel's records stay whole, and those of programs stay away") {
  OddMachine odd;
  const std::string crash =
      "6,900,70,-;x[77]: segfault at 0 ip 0 sp 0 error 4 in a\\x0aNVRM: Xid (PCI:0000:01:00): 79, GPU[1+1]\n";
  odd.file("dev/kmsg", "5,0,0,-;Linux version 6.1.0-37-amd64 (jo@box) (gcc-12)\n" + crash +
                           " SUBSYSTEM=pci\n12,901,80,-;gpu-box was here\n"
                           "3,902,90,-;NVRM: one\\x0agpu-box two\n");
  odd.file("etc/hostname", "gpu-box\n");
  const TemporaryDirectory directory;
  record(odd.at, directory / "copy");
  const std::string log = text_of(directory / "copy/dev/kmsg");
  CHECK(std::count(log.begin(), log.end(), '\n') == 3);
  CHECK(log.find("5,0,0,-;Linux version 6.1.0-37-amd64 (user@host) (gcc-12)\n") == 0);
  CHECK(log.find("\n6,900,70,-;removed\n") != std::string::npos);
  CHECK(log.find("\n3,902,90,-;removed\n") != std::string::npos);
  const Probe& probe = *std::ranges::find(probes(), "kernel-log", &Probe::id);
  CHECK(look(probe, directory / "copy")["verdict"] == "pass");
}

TEST_CASE("record: nothing in it tells whose machine it is") {
  OddMachine odd;
  const std::string uuid = "5b694366-fbc1-9c4e-3eaf-2f5dc4468404";
  fs::remove(odd.at / "dev/kmsg");
  odd.file(
      "var/log/kern.log",
      "Nov 21 19:58:21 gpu-box kernel: [    0.000000] Linux version 6.1.0-37-amd64 (jo@gpu-box.example.org) (gcc-12)\n"
      "Nov 21 19:58:21 gpu-box kernel: [    0.1] Command line: root=UUID=" +
          uuid +
          " ip=192.0.2.7 ro\n"
          "Nov 21 19:58:22 gpu-box kernel: [    1.1] ixgbe: eth0 52:54:00:ab:cd:ef, usb 1-1: SerialNumber: XK1234567\n"
          "Nov 21 19:58:23 gpu-box kernel: [    9.1] NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=secretjob, Ch 8\n");
  odd.file("proc/cmdline",
           "BOOT_IMAGE=/boot/vmlinuz root=/dev/mapper/gpu--box--vg-root systemd.hostname=gpu-box iommu=pt\n");
  odd.file("proc/sys/kernel/random/boot_id", uuid + "\n");
  odd.file("proc/version", "Linux version 6.1.0-37-amd64 (jo@gpu-box) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0) #1\n");
  odd.file("proc/self/mountinfo",
           "24 1 259:2 / / rw - ext4 /dev/mapper/gpu--box--vg-root rw\n"
           "25 1 0:44 / /home/jo rw - nfs4 files.example.org:/jo rw,addr=192.0.2.7\n");
  odd.file("boot/grub/grub.cfg", "set superusers=\"jo\"\npassword_pbkdf2 jo grub.pbkdf2.sha512.10000.s3cret\n" +
                                     odd.text("boot/grub/grub.cfg") +
                                     "menuentry 'x' {\n search --fs-uuid --set=root 2E1F-7C40\n}\n");
  odd.file("etc/default/grub.d/x.cfg", "GRUB_CMDLINE_LINUX=\"url=http://gpu-box/s3cret root=PARTUUID=2E1F-7C40\"\n");
  odd.file("var/lib/dkms/mok.pub", "CN=gpu-box");
  odd.file("var/lib/nvidia/log", "570.86.16\n/home/jo/s3cret\n");
  const TemporaryDirectory directory;
  record(odd.at, directory / "copy");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory / "copy")) {
    if (!entry.is_regular_file()) continue;
    INFO(entry.path());
    const std::string text = text_of(entry.path());
    for (const std::string& secret :
         {std::string("gpu-box"), std::string("gpu--box"), std::string("example.org"), uuid, std::string("192.0.2"),
          std::string("52:54:00"), std::string("XK1234567"), std::string("secretjob"), std::string("s3cret"),
          std::string("2E1F"), std::string("/home/jo"), std::string("jo@"), std::string("\"jo\"")})
      CHECK(text.find(secret) == std::string::npos);
  }
  const auto log = text_of(directory / "copy/var/log/kern.log");
  CHECK(log.find("name=process, Ch 8\n") != std::string::npos);
  CHECK(look(*std::ranges::find(probes(), "kernel-log", &Probe::id), directory / "copy")["verdict"] ==
        odd.verdict("kernel-log")["verdict"]);
  for (const char* id : {"boot-loader", "bootable-kernels", "build-tools"})
    CHECK(look(*std::ranges::find(probes(), id, &Probe::id), directory / "copy")["verdict"] ==
          odd.verdict(id)["verdict"]);
}
