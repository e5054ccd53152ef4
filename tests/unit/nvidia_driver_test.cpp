// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kNvidiaDriver;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

std::string package(const std::string& name, const std::string& version, const std::string& status) {
  return "Package: " + name + "\nStatus: " + status + "\nArchitecture: amd64\nVersion: " + version + "\n\n";
}

const std::string kOther = package("nvidia-container-toolkit", "1.17.0-1", "install ok installed") +
                           package("nvidia-driver-535", "535.183.01-0ubuntu1", "deinstall ok config-files");

struct Machine : test::MadeTree {
  /// An RTX A6000: any driver gives P2P between those.
  Machine() {
    gpu("30 22");
    put("var/lib/dpkg/status", kOther);
  }
  void bind(const std::string& driver) const {
    const fs::path link = directory / "sys/bus/pci/devices/0000:01:00.0/driver";
    fs::create_directories(link.parent_path());
    fs::remove(link);
    fs::create_symlink("../../../../bus/pci/drivers/" + driver, link);
  }
  void packages(const std::string& driver_status) const {
    put("var/lib/dpkg/status", kOther + package("nvidia-driver-570", "570.86.16-0ubuntu1", driver_status) +
                                   package("libnvidia-compute-570", "1:570.86.16-0ubuntu1", "install ok installed"));
  }
  Result<Finding> check() const { return kNvidiaDriver.check(host, Parameters::object()); }
  Finding look() const { return check().value(); }
};

}  // namespace

TEST_CASE("nvidia-driver: none") {
  const Machine machine;
  CHECK(machine.look().verdict == Verdict::fail);
  CHECK(machine.look().summary == "no NVIDIA driver is installed");
  machine.put("sys/module/nvidia/version", "570.86.16\n");
  CHECK(machine.look().verdict == Verdict::pass);  // loaded, not installed: enough for an RTX A6000
  machine.gpu("84 26");
  CHECK_FALSE(machine.check());  // but not for an RTX 4090
  fs::remove(machine.directory / "var/lib/dpkg/status");
  CHECK_FALSE(machine.check());
  machine.put("lspci-xxxx.txt", "0000:01:00.0 x\n00: 02 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");
  CHECK(machine.look().verdict == Verdict::not_applicable);
}

TEST_CASE("nvidia-driver: packages") {
  const Machine machine;
  machine.packages("install ok installed");
  CHECK(machine.look().summary == "installed by 2 packages (570.86.16)");
  CHECK(machine.look().facts["held"].empty());
  machine.packages("hold ok installed");
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().facts["held"] == nlohmann::json::array({"nvidia-driver-570:amd64"}));
  CHECK(machine.look().summary.ends_with("; held except for libnvidia-compute-570:amd64"));
  machine.put("var/lib/dpkg/status", "Package: nvidia-driver-570\nStatus: inst");
  CHECK_FALSE(machine.check());
}

TEST_CASE("nvidia-driver: runfile, and both at once") {
  const Machine machine;
  machine.put("var/log/nvidia-installer.log", "nvidia-installer log file\n");
  CHECK(machine.look().verdict == Verdict::fail);  // the log outlives the driver
  machine.put("var/lib/nvidia/log", "570.86.16\nNVIDIA Accelerated Graphics Driver\n1: /usr/bin/nvidia-smi\n");
  CHECK(machine.look().summary == "installed by the runfile 570.86.16");
  machine.packages("install ok installed");
  const Finding both = machine.look();
  CHECK(both.verdict == Verdict::fail);
  CHECK(both.summary == "the driver is installed twice: by the runfile 570.86.16 and by 2 packages (570.86.16)");
  CHECK_FALSE(both.next.empty());
  fs::remove_all(machine.directory / "var/lib/nvidia");
  CHECK(machine.look().verdict == Verdict::pass);
  machine.put("usr/bin/nvidia-uninstall", "");
  CHECK(machine.look().verdict == Verdict::fail);
}

TEST_CASE("nvidia-driver: DKMS trees are named") {
  const Machine machine;
  machine.packages("install ok installed");
  const std::string dkms = "var/lib/dkms/";
  machine.put(dkms + "nvidia/570.86.16/6.1.0/x86_64/module/nvidia.ko", "");
  machine.put(dkms + "nvidia/570.86.16/source/dkms.conf", "");
  machine.put(dkms + "nvidia/565.57.01/source/dkms.conf", "");
  machine.put(dkms + "nvidia/kernel-6.1.0-x86_64/module/nvidia.ko", "");
  machine.put(dkms + "nvidia-fs/2.20/6.1.0/x86_64/module/nvidia-fs.ko", "");
  machine.put(dkms + "zfs/2.1/6.1.0/x86_64/module/zfs.ko", "");
  CHECK(machine.look().facts["dkms"] == nlohmann::json::array({"nvidia/565.57.01", "nvidia/570.86.16 for 6.1.0"}));
  CHECK(machine.look().summary.ends_with("; DKMS: nvidia/565.57.01, nvidia/570.86.16 for 6.1.0"));
}

TEST_CASE("nvidia-driver: no distribution's driver, and no proprietary one, gives GeForce cards P2P") {
  const Machine machine;
  machine.gpu("84 26");  // RTX 4090
  machine.packages("install ok installed");
  CHECK(machine.look().verdict == Verdict::pass);  // libraries alone: patched modules may be beside them
  machine.put("var/lib/dpkg/status", package("nvidia-dkms-570", "570.86.16-0ubuntu1", "install ok installed"));
  CHECK(machine.look().verdict == Verdict::fail);
  CHECK(machine.look().summary.starts_with(
      "the distribution's modules give no P2P between GeForce cards; installed by 1 packages (570.86.16)"));
  fs::remove(machine.directory / "var/lib/dpkg/status");
  machine.put("var/lib/dpkg/status", kOther);
  machine.put("usr/bin/nvidia-uninstall", "");
  CHECK(machine.look().verdict == Verdict::pass);
  const std::string text = "NVRM version: NVIDIA UNIX ";
  machine.put("proc/driver/nvidia/version", text + "Open Kernel Module for x86_64  570.86.16  Release Build\nGCC\n");
  CHECK(machine.look().verdict == Verdict::pass);
  machine.put("proc/driver/nvidia/version", text + "x86_64 Kernel Module  535.247.01  Fri Jan 24\nGCC\n");
  CHECK(machine.look().verdict == Verdict::fail);
  CHECK(machine.look().summary.find("proprietary") != std::string::npos);
  machine.gpu("30 22");
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("nvidia-driver: who drives the cards") {
  const Machine machine;
  machine.bind("nouveau");
  CHECK(machine.look().summary == "nouveau drives 0000:01:00.0, and no NVIDIA driver is installed");
  machine.bind("NovaCore");
  CHECK(machine.look().summary == "NovaCore drives 0000:01:00.0, and no NVIDIA driver is installed");
  machine.put("usr/bin/nvidia-uninstall", "");
  machine.bind("nvidia");
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().facts["drivers"]["0000:01:00.0"] == "nvidia");
  machine.bind("NovaCore");  // other-modules fails, whose fix takes the GPU from it
  CHECK(machine.look().verdict == Verdict::pass);
  machine.bind("vfio-pci");
  const Finding given = machine.look();
  CHECK(given.verdict == Verdict::unknown);
  CHECK(given.summary.starts_with("vfio-pci has 0000:01:00.0, so that nvidia cannot drive it"));
  CHECK(given.next ==
        "Take 0000:01:00.0 out of the guest and away from vfio-pci (modprobe.d, driver_override), and reboot.");
}

TEST_CASE("nvidia-driver: in an image, p2pd's modules count beside those of the packages that stay") {
  const Machine machine;
  fs::remove(machine.directory / "lspci-xxxx.txt");
  machine.put("var/lib/dpkg/status", package("nvidia-dkms-570", "570.86.16-0ubuntu1", "install ok installed"));
  CHECK(machine.look().verdict == Verdict::fail);
  machine.put("usr/src/p2pd-nvidia-570.86.16/dkms.conf",
              "# Written by p2pd for test/main, commit " + std::string(40, '1') + "; gone\n");
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().summary == "installed by 1 packages (570.86.16), with modules by p2pd");
}

TEST_CASE("nvidia-driver: on a system with another package manager the driver's answer and place tell") {
  const Machine machine;
  machine.gpu("84 26");
  fs::remove_all(machine.directory / "var");
  machine.put("etc/os-release", "ID=cachyos\nID_LIKE=arch\nNAME=\"CachyOS Linux\"\n");
  CHECK(machine.look().summary == "no NVIDIA driver is installed");
  machine.put("proc/sys/kernel/osrelease", "7.2.2-2-cachyos\n");
  machine.put("sys/module/nvidia/version", "610.57.04\n");
  machine.put("proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.57.04  Release Build\n");
  CHECK(machine.look().verdict == Verdict::fail);
  CHECK(machine.look().summary == "the modules of 610.57.04 give no P2P between GeForce cards");
  machine.put("lib/modules/7.2.2-2-cachyos/modules.dep", "updates/by-hand/nvidia.ko:\n");
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().summary == "modules of 610.57.04 with P2P, built by hand");
}
