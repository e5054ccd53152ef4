// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kDisplayGpus;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Two RTX 4090 at 01:00.0 and 02:00.0.
struct Machine : ChangedRecord {
  Machine() : ChangedRecord("rtx4090-x2-healthy") {}
  void card(int number, const std::string& address) const {
    link("sys/class/drm/card" + std::to_string(number) + "/device", "../../../" + address);
  }
  void output(const std::string& name, const std::string& status, const std::string& enabled) const {
    file("sys/class/drm/" + name + "/status", status + "\n");
    file("sys/class/drm/" + name + "/enabled", enabled + "\n");
  }
  void boot_vga(const std::string& address) const { file("sys/bus/pci/devices/" + address + "/boot_vga", "1\n"); }
  Finding look() const { return ChangedRecord::look(kDisplayGpus); }
};

}  // namespace

TEST_CASE("display-gpus: machine records") {
  CHECK(ChangedRecord("no-gpu").look(kDisplayGpus).verdict == Verdict::not_applicable);
  CHECK(ChangedRecord("h200-x4-vm").look(kDisplayGpus).verdict == Verdict::pass);
  CHECK(Machine().look().verdict == Verdict::pass);
}

TEST_CASE("display-gpus: an output that is on, and nothing less, is a fail") {
  const Machine machine;
  machine.card(0, "0000:01:00.0");
  machine.card(1, "0000:02:00.0");
  machine.output("card0-HDMI-A-1", "disconnected", "disabled");
  machine.output("card1-DP-1", "disconnected", "disabled");
  machine.output("card1-DP-2", "connected", "disabled");
  machine.boot_vga("0000:02:00.0");
  Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(holds(finding.summary, "card1-DP-2 is connected and off"));
  CHECK(holds(finding.summary, "0000:02:00.0 is the boot VGA device"));

  machine.output("card1-DP-2", "connected", "enabled");
  finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "0000:02:00.0 drives card1-DP-2: P2P with it may copy garbage");
  CHECK(finding.in_the_way.contains("0000:02:00.0"));
  CHECK_FALSE(finding.next.empty());

  machine.output("card1-DP-2", "disconnected", "enabled");  // the monitor was pulled, the mode is still set
  CHECK(machine.look().verdict == Verdict::pass);
  machine.output("card1-DP-2", "unknown", "enabled");
  CHECK(machine.look().verdict == Verdict::fail);
}

TEST_CASE("display-gpus: another maker's display is nobody's business") {
  const Machine machine;
  machine.card(0, "0000:00:08.0");
  machine.output("card0-VGA-1", "connected", "enabled");
  machine.file("sys/class/graphics/fb0/name", "astdrmfb\n");
  machine.link("sys/class/graphics/fb0/device", "../../../0000:00:03.1");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.in_the_way.empty());
}

TEST_CASE("display-gpus: the firmware's console is on the boot VGA device") {
  const Machine machine;
  machine.file("sys/class/graphics/fb0/name", "EFI VGA\n");
  machine.link("sys/class/graphics/fb0/device", "../../../efi-framebuffer.0");
  CHECK(machine.look().verdict == Verdict::pass);  // none of the GPUs is that device
  machine.boot_vga("0000:01:00.0");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(holds(finding.summary, "0000:01:00.0 carries the firmware's console (EFI VGA)"));
  CHECK(finding.in_the_way.size() == 1);
  machine.link("sys/class/graphics/fb0/device", "../../../0000:01:00.0");  // the driver's own by now
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("display-gpus: a framebuffer of the boot loader counts where nvidia looks for it") {
  const ChangedRecord machine("rtx4090-x2-uefi-console");
  const std::string data = machine.root().read("/sys/kernel/boot_params/data").value();
  const auto look = [&](std::size_t at, char byte) {
    std::string changed = data + std::string(4096 - data.size(), 'x');  // the rest of struct boot_params
    changed[at] = byte;
    machine.file("sys/kernel/boot_params/data", changed);
    return machine.look(kDisplayGpus);
  };
  const Finding finding = look(0, 0);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(holds(finding.summary, "0000:01:00.0 carries the firmware's console (UEFI)"));
  CHECK(finding.in_the_way.size() == 1);
  CHECK(look(0x0f, 1).verdict == Verdict::pass);     // text mode
  CHECK(look(0x1a, 0x10).verdict == Verdict::pass);  // another address
  CHECK(look(0x36, 0).verdict == Verdict::pass);     // below 4 GiB, where no BAR1 is
  machine.file("sys/kernel/boot_params/data", data.substr(0, 0x3d));
  CHECK(machine.look(kDisplayGpus).verdict == Verdict::pass);
}

TEST_CASE("display-gpus: outputs that nvidia-drm hides are no pass while the display engine is in use") {
  const Machine machine;
  machine.file("proc/modules", "nvidia_modeset 1 3 nvidia_drm, Live 0x0\nnvidia 1 9 nvidia_modeset, Live 0x0\n");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(holds(finding.summary, "0000:01:00.0, 0000:02:00.0"));
  CHECK_FALSE(finding.next.empty());
  machine.file("proc/modules", "nvidia_modeset 1 1 nvidia_drm, Live 0x0\nnvidia 1 9 nvidia_modeset, Live 0x0\n");
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("display-gpus: on cards whose P2P does not need static BAR1 a display is a fact") {
  const ChangedRecord machine("rtxa6000-x2");
  machine.link("sys/class/drm/card0/device", "../../../0000:01:00.0");
  machine.file("sys/class/drm/card0-DP-1/status", "connected\n");
  machine.file("sys/class/drm/card0-DP-1/enabled", "enabled\n");
  const Finding finding = machine.look(kDisplayGpus);
  CHECK(finding.verdict == Verdict::pass);
  CHECK(holds(finding.summary, "card0-DP-1"));
}

TEST_CASE("display-gpus: an output that cannot be read is an error, one that vanished is none") {
  const Machine machine;
  machine.card(0, "0000:01:00.0");
  std::filesystem::create_directories(machine.path("sys/class/drm/card0-DP-1"));
  CHECK(machine.look().verdict == Verdict::pass);
  std::filesystem::create_directories(machine.path("sys/class/drm/card0-DP-1/status"));
  CHECK_FALSE(machine.check(kDisplayGpus));
  machine.remove("sys/class/drm/card0-DP-1/status");
  machine.file("sys/class/drm/card0-DP-1/status", std::string(2U << 20, 'x'));
  CHECK_FALSE(machine.check(kDisplayGpus));
}

TEST_CASE("display-gpus: a record of the machine says the same") {
  const Machine machine;
  machine.card(1, "0000:02:00.0");
  machine.output("card1-DP-2", "connected", "enabled");
  machine.boot_vga("0000:01:00.0");
  machine.file("sys/class/graphics/fb0/name", "EFI VGA\n");
  machine.link("sys/class/graphics/fb0/device", "../../../efi-framebuffer.0");
  const TemporaryDirectory directory;
  RecordedRunner runner(machine.root());
  test::record_into(Host(machine.root(), runner), directory / "copy");
  const Root root = Root::open(directory / "copy").value();
  const auto again = kDisplayGpus.check(Host(root, runner), Parameters::object());
  CHECK(to_json(again.value()) == to_json(machine.look()));
  CHECK(again->verdict == Verdict::fail);
}
