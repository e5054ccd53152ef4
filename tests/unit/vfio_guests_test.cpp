// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kVfioGuests;
}

using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("vfio-guests: a card of a guest, another device of one, none") {
  const ChangedRecord machine("rtx4090-x2-healthy");
  CHECK(machine.look(kVfioGuests).summary == "no device is assigned to a guest");
  const nlohmann::json gpus = machine.look(kVfioGuests).facts["gpus"];
  CHECK(gpus.empty());
  std::string other;
  for (const auto& entry : std::filesystem::directory_iterator(machine.path("sys/bus/pci/devices")))
    if (entry.path().filename().string().starts_with("0000:00:")) other = entry.path().filename();
  REQUIRE_FALSE(other.empty());
  machine.link("sys/bus/pci/devices/" + other + "/driver", "../../../bus/pci/drivers/vfio-pci");
  CHECK(machine.look(kVfioGuests).verdict == Verdict::fail);
  CHECK(machine.look(kVfioGuests).facts["others"] == nlohmann::json{other});
  machine.link("sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
  CHECK(machine.look(kVfioGuests).summary ==
        "0000:01:00.0 is bound to vfio-pci: the card belongs to a guest, not to this system");
}

TEST_CASE("vfio-guests: a virtual machine of Proxmox VE is named, with what takes the card from it") {
  const ChangedRecord machine("rtx4090-x2-healthy");
  const auto bound = [&](const std::string& address) {
    machine.link("sys/bus/pci/devices/" + address + "/driver", "../../../bus/pci/drivers/vfio-pci");
  };
  machine.file("etc/pve/qemu-server/100.conf", "name: win11\nhostpci0: 0000:02:00,pcie=1,x-vga=1\n[snap]\nname: old\n");
  CHECK(machine.look(kVfioGuests).verdict == Verdict::pass);
  CHECK(machine.look(kVfioGuests).summary ==
        "no device is assigned to a guest; VM 100 (win11) is given 0000:02:00.0 when it starts");
  bound("0000:02:00.0");
  const Finding stopped = machine.look(kVfioGuests);
  CHECK(stopped.summary ==
        "0000:02:00.0 is bound to vfio-pci for VM 100 (win11): the card belongs to a guest, not to this system");
  CHECK(stopped.next == "Take 0000:02:00.0 out of the guest: qm set 100 --delete hostpci0; and reboot.");
  machine.file("run/qemu-server/100.pid", "4711\n");
  CHECK(machine.look(kVfioGuests).next ==
        "Take 0000:02:00.0 out of the guest: qm shutdown 100; qm set 100 --delete hostpci0; and reboot.");
}

TEST_CASE("vfio-guests: each way to write the device of a virtual machine") {
  const std::pair<const char*, bool> rows[] = {
      {"hostpci0: 02:00.0", true},           {"hostpci1: 0000:02:00.0;0000:02:00.1,pcie=1", true},
      {"hostpci0: host=02:00,pcie=1", true}, {"hostpci0: mapping=gpu,pcie=1", true},
      {"hostpci0: mapping=other", false},    {"hostpci0: 0000:12:00", false},
      {"#hostpci0: 0000:02:00", false},      {"description: hostpci0: 0000:02:00", false},
  };
  for (const auto& [line, names] : rows) {
    CAPTURE(line);
    const ChangedRecord machine("rtx4090-x2-healthy");
    machine.link("sys/bus/pci/devices/0000:02:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
    machine.file("etc/pve/qemu-server/100.conf", std::string(line) + "\n");
    machine.link("etc/pve/local", "nodes/pve2");
    machine.file(
        "etc/pve/mapping/pci.cfg",
        "gpu\n\tid 10de:2684\n\tmap id=10de:2684,node=pve1,path=0000:03:00.0\n"
        "\tmap id=10de:2684,iommugroup=14,node=pve2,path=0000:02:00.0\n\nother\n\tmap node=pve1,path=0000:02:00.0\n");
    CHECK(holds(machine.look(kVfioGuests).summary, "for VM 100") == names);
  }
}

TEST_CASE("vfio-guests: ids that guides give vfio-pci are named with their file") {
  const ChangedRecord machine("rtx4090-x2-healthy");
  machine.file("etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:26840,10de:2684,10de:22ba disable_vga=1\n");
  CHECK(machine.look(kVfioGuests).verdict == Verdict::pass);
  machine.link("sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
  CHECK(machine.look(kVfioGuests).next ==
        "Take 0000:01:00.0 out of the guest: remove 10de:2684 from vfio-pci's ids in /etc/modprobe.d/vfio.conf:1; make "
        "the initramfs anew, and reboot.");
  machine.file("etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:26840\n");
  CHECK(holds(machine.look(kVfioGuests).next, "away from vfio-pci (modprobe.d, vfio-pci.ids=)"));
}
