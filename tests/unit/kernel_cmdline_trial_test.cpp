// SPDX-License-Identifier: MIT
// The trial boot of new kernel arguments: creation, commit and undo, and machines on which none is possible.
#include <fmt/format.h>

#include <tuple>

#include "catch.hpp"
#include "grub_machine.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using Machine = test::GrubMachine;
using Session = test::GrubSession;
using test::kAcs;
using test::kConfig;
using test::kCustom;
using test::kDebianGrub;
using test::kDropIn;
using test::kEnv;
using test::kPt;
using test::says;
using test::with;
using Lines = std::vector<std::string>;

namespace {

const Action& fix = kKernelCmdlineAction;

/// Applies: makes the changes of the preview, and a second apply changes nothing.
Description planned_and_applied(Machine& machine, Host& host) {
  const std::string before = machine.tree();
  const Description plan = fix.describe(host, kPt).value();
  CHECK(machine.tree() == before);
  REQUIRE(plan.files.size() == 2);
  CHECK(plan.cost == "iommu=pt: every device can read and write all of this host's memory");
  CHECK(plan.commands.at(0) == "grub-reboot p2pd-trial");

  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.get(kCustom) == plan.files[0].content);
  CHECK(machine.checked == Lines{machine.get(kCustom)});
  CHECK(machine.get(kConfig) == kDebianGrub);
  CHECK(machine.get(kDropIn) == "absent");
  const std::string applied = machine.tree();
  const std::size_t ran = machine.runner.ran.size();
  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.tree() == applied);
  CHECK(machine.runner.ran.size() == ran);
  return plan;
}

/// Undoes what was committed, in each of the ways in which grub.cfg may have changed since.
void undo_committed(Machine& machine, Host& host) {
  SECTION("undone to the byte") {
    machine.recorder.put_back();
    REQUIRE(fix.undo(host, kPt));
  }
  SECTION("undone after a kernel update has generated grub.cfg anew") {
    machine.recorder.put_back();
    machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
    const std::string anew = machine.generate();
    fs::remove(machine.directory / kDropIn);
    machine.put(kConfig, anew);
    REQUIRE(fix.undo(host, kPt));
    CHECK(machine.get(kConfig) == kDebianGrub);
  }
  SECTION("undone to what an earlier run made permanent") {
    machine.recorder.put_back();
    machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
    machine.put(kConfig, machine.generate());
    REQUIRE(fix.undo(host, kPt));
    CHECK(machine.get(kConfig) == machine.generate());
    fs::remove(machine.directory / kDropIn);
    machine.put(kConfig, kDebianGrub);
  }
}

}  // namespace

TEST_CASE("a trial boot becomes the default once proven, and goes back", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  machine.boot();
  const std::string first = machine.tree();
  REQUIRE_FALSE(session.passes(kPt));

  const Description plan = planned_and_applied(machine, host);

  SECTION("the power goes before the reboot: the old default boots") {
    machine.boot();
    CHECK_FALSE(session.passes(kPt));
    machine.recorder.put_back();
    REQUIRE(fix.undo(host, kPt));
  }
  SECTION("armed, but undone before the reboot") {
    REQUIRE(fix.before_reboot(host, kPt));
    const std::size_t before = machine.runner.ran.size();
    REQUIRE(fix.before_reboot(host, kPt));  // reads only
    CHECK(machine.runner.ran.size() == before + 2);
    CHECK(machine.recorder.how.at("/boot/grub/grubenv") == Restore::generated);
    machine.recorder.put_back();
    machine.environment("next_entry=p2pd-trial\n").value();  // as if rewritten since
    REQUIRE(fix.undo(host, kPt));
    CHECK(machine.get(kEnv).find("next_entry") == std::string::npos);
    fs::remove(machine.directory / kEnv);
    machine.boot();
  }
  SECTION("armed, tried, proven, committed") {
    REQUIRE(fix.before_reboot(host, kPt));
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == true);
    REQUIRE(fix.commit(host, kPt));
    const std::string committed = machine.tree();
    CHECK(machine.get(kCustom) == "absent");
    CHECK(machine.get(kDropIn) == plan.files[1].content);
    CHECK(machine.recorder.how.at("/boot/grub/grub.cfg") == Restore::generated);
    const std::size_t before = machine.runner.ran.size();
    REQUIRE(fix.commit(host, kPt));
    CHECK(machine.tree() == committed);
    CHECK(machine.runner.ran.size() == before);
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == false);
    CHECK(session.check(kPt).facts["configured"] == true);
    undo_committed(machine, host);
    fs::remove(machine.directory / kEnv);
    machine.boot();
  }
  fs::remove_all(machine.directory / "etc/default/grub.d");  // the engine's own record restores the directory
  CHECK(machine.tree() == first);
}

TEST_CASE("a trial boot that lost a CPU, memory or a device is never made permanent", "[kernel_cmdline]") {
  Machine machine;
  const auto has = [&](const char* cpus, int memory_mib, int cards) {
    machine.put("sys/devices/system/cpu/online", cpus);
    machine.put("proc/meminfo", fmt::format("MemTotal:       {} kB\n", 1024 * memory_mib));
    fs::remove_all(machine.directory / "sys/bus/pci/devices");
    for (int card = 1; card <= cards; ++card)
      machine.put(fmt::format("sys/bus/pci/devices/0000:{:02x}:00.0/config", card),
                  std::string("\xde\x10\x84\x26\0\0\0\0\xa1\0\0\x03", 12) + std::string(52, '\0'));
    for (int card = 1; card <= cards; ++card)
      for (const auto& [name, value] : {std::pair{"vendor", "0x10de"},
                                        {"device", "0x2684"},
                                        {"class", "0x030000"},
                                        {"irq", "0"},
                                        {"resource", "0x0 0x0 0x0"}})
        machine.put(fmt::format("sys/bus/pci/devices/0000:{:02x}:00.0/{}", card, name), std::string(value) + "\n");
  };
  has("0-111\n", 65536, 2);
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  machine.boot();
  REQUIRE(fix.apply(host, kPt));
  REQUIRE(fix.before_reboot(host, kPt));
  machine.boot();
  REQUIRE(session.passes(kPt));
  REQUIRE(fix.before_reboot(host, kPt));  // another reboot of the trial: what a trial has is no measure
  machine.boot();

  has("0-110\n", 65536, 2);
  CHECK(says(fix.commit(host, kPt), "this machine has 111 of 112 CPUs"));
  has("0-111\n", 57344, 2);
  CHECK(says(fix.commit(host, kPt), "this machine has 57344 of 65536 MiB of memory"));
  has("0-111\n", 65536, 1);
  CHECK(says(fix.commit(host, kPt), "this machine has 1 of 2 PCI functions 10de:2684"));
  CHECK(machine.get(kConfig) == kDebianGrub);
  CHECK(machine.get(kDropIn) == "absent");
  has("0-111\n", 65472, 2);  // a kernel without an IOMMU keeps 64 MiB for bounce buffers
  REQUIRE(fix.commit(host, kPt));
  CHECK(machine.get(kDropIn) != "absent");
  CHECK(machine.get("var/lib/p2pd/before-trial.json") == "absent");
}

TEST_CASE("amd_iommu=off is refused where CPUs would not start without the IOMMU", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine, false);
  const Parameters off{{"arguments", {"intel_iommu=off", "amd_iommu=off"}}};
  machine.put("sys/devices/system/cpu/online", "0-1\n");
  machine.put("proc/cpuinfo", "processor\t: 0\napicid\t\t: 0\n\nprocessor\t: 1\napicid\t\t: 256\n\n");
  CHECK(says(fix.apply(*session.host, off), "with amd_iommu=off, 1 CPUs do not start: their APIC ID is 255 or more"));
  CHECK(machine.get(kDropIn) == "absent");
  CHECK(fix.apply(*session.host, kPt));
  machine.put("proc/cpuinfo", "vendor_id\t: GenuineIntel\napicid\t\t: 0\n\nprocessor\t: 1\napicid\t\t: 256\n\n");
  CHECK(fix.apply(*session.host, off));
}

TEST_CASE("two steps share the trial entry and the drop-in", "[kernel_cmdline]") {
  Machine machine;
  machine.put(kCustom, "menuentry 'mine' {\n true\n}");  // no newline at its end
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  for (const Parameters& step : {kPt, kAcs}) REQUIRE(fix.apply(host, step));
  const std::string both = machine.get(kCustom);
  for (const Parameters& step : {kAcs, kPt}) REQUIRE(fix.apply(host, step));
  CHECK(machine.get(kCustom) == both);
  CHECK(both.starts_with("menuentry 'mine' {\n true\n}\n### BEGIN"));
  for (const Parameters& step : {kPt, kAcs}) REQUIRE(fix.before_reboot(host, step));
  machine.boot();
  CHECK(session.passes(kPt));
  CHECK(session.passes(kAcs));
  REQUIRE(fix.commit(host, kPt));  // power is lost before the other's commit
  machine.boot();
  CHECK(session.passes(kPt));
  CHECK(session.passes(kAcs));
  const std::string committed = machine.tree();
  REQUIRE(fix.commit(host, kAcs));
  CHECK(machine.tree() == committed);
  CHECK(machine.get(kCustom) == "menuentry 'mine' {\n true\n}\n");
  CHECK(machine.get(kConfig).find(" iommu=pt pci=disable_acs_redir=0000:00:01.0\\;0000:00:02.0\n") !=
        std::string::npos);
}

TEST_CASE("a host that cannot have a trial boot is told why", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  const auto refused = [&](const std::string& why) {
    const std::string before = machine.tree();
    const auto result = fix.apply(host, kPt);
    CAPTURE(result ? "applied" : result.error().message);
    CHECK(says(result, why));
    CHECK((result || !result.error().next.empty()));
    CHECK(machine.tree() == before);
  };
  SECTION("no GRUB") {
    fs::remove(machine.directory / kConfig);
    refused("there is no /boot/grub/grub.cfg");
    CHECK(says(fix.commit(host, kPt), "there is no /boot/grub/grub.cfg"));
    CHECK(fix.undo(host, kPt));
  }
  SECTION("no grub-mkconfig") {
    fs::remove(machine.directory / "usr/sbin/grub-mkconfig");
    refused("grub-mkconfig is not installed");
  }
  SECTION("LVM, RAID, btrfs") {
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "lvm\n");
    refused("/boot/grub is on lvm");
    CHECK_FALSE(fix.describe(host, kPt));
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "diskfilter mdraid1x\n");
    refused("/boot/grub is on diskfilter");
    machine.runner.on("grub-probe --target=abstraction /boot/grub").on("grub-probe --target=fs /boot/grub", "btrfs\n");
    refused("/boot/grub is on btrfs");
  }
  SECTION("somebody who plans and may not ask grub-probe") {
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "", 1, "cannot open /dev/sda");
    CHECK(fix.describe(host, kPt));
  }
  SECTION("an initrd is missing") {
    fs::remove(machine.directory / "boot/initrd.img-6.1.0-50-amd64");
    refused("/boot/initrd.img-6.1.0-50-amd64 does not exist");
  }
  SECTION("GRUB does not like it") {
    machine.script_status = 1;
    refused("Syntax error at line 7");
  }
  const auto without = kDebianGrub.substr(0, kDebianGrub.find("### BEGIN /etc/grub.d/41_custom"));
  for (const auto& [name, path, text, why] :
       {std::tuple{"no 41_custom", kConfig, without, std::string("41_custom")},
        {"a default set by hand", kCustom, "set default=1\n", "ignores grub-reboot"},
        {"a file of the user where the drop-in goes", kDropIn, "GRUB_TIMEOUT=1\n", kDropIn}})
    DYNAMIC_SECTION(name) {
      machine.put(path, text);
      refused(why);
    }
  SECTION("grub-reboot that does nothing") {
    REQUIRE(fix.apply(host, kPt));
    machine.runner.on("grub-reboot p2pd-trial");
    CHECK(says(fix.before_reboot(host, kPt), "grubenv"));
  }
}

TEST_CASE("an armed trial is checked again before each restart", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  REQUIRE(fix.apply(host, kPt));
  REQUIRE(fix.apply(host, kAcs));
  REQUIRE(fix.before_reboot(host, kPt));
  const auto newest_is = [&](const std::string& version) {  // as update-grub writes it
    std::string config = kDebianGrub;
    for (std::size_t at = 0; (at = config.find("6.1.0-50", at)) != std::string::npos;) config.replace(at, 8, version);
    machine.put(kConfig, config);
  };
  const auto removed = [&](const std::string& name) { fs::remove(machine.directory / ("boot/" + name + "-amd64")); };
  const auto disarmed = [&](const std::string& why) {
    const std::string custom = machine.get(kCustom);
    CHECK(says(fix.before_reboot(host, kPt), why));
    CHECK(machine.get(kCustom) == custom);
    CHECK(machine.get(kEnv).find("next_entry") == std::string::npos);
  };
  const auto tries = [&](const std::string& version) {
    REQUIRE(fix.before_reboot(host, kPt));
    REQUIRE(fix.before_reboot(host, kAcs));
    CHECK(machine.checked.back() == machine.get(kCustom));
    machine.boot();
    CHECK(machine.get("proc/cmdline").starts_with("BOOT_IMAGE=/boot/vmlinuz-" + version + "-amd64 "));
    CHECK(session.check(kPt).facts["trial"] == true);
    CHECK(session.passes(kPt));
    CHECK(session.passes(kAcs));
  };
  SECTION("its kernel is removed") {
    removed("vmlinuz-6.1.0-50");
    removed("initrd.img-6.1.0-50");
    newest_is("6.1.0-49");
    tries("6.1.0-49");
  }
  SECTION("a newer kernel is installed") {
    machine.put("boot/vmlinuz-6.1.0-51-amd64", "");
    machine.put("boot/initrd.img-6.1.0-51-amd64", "");
    newest_is("6.1.0-51");
    tries("6.1.0-51");
  }
  SECTION("somebody removes the trial entry") {
    fs::remove(machine.directory / kCustom);
    REQUIRE(fix.before_reboot(host, kAcs));
    tries("6.1.0-50");
  }
  SECTION("its kernel is removed, and grub.cfg names it still") {
    removed("vmlinuz-6.1.0-50");
    disarmed("/boot/vmlinuz-6.1.0-50-amd64 does not exist Run update-grub");
  }
  SECTION("its initrd is removed") {
    removed("initrd.img-6.1.0-50");
    disarmed("/boot/initrd.img-6.1.0-50-amd64 does not exist Run update-grub");
  }
  SECTION("GRUB cannot read the new one") {
    newest_is("6.1.0-49");
    machine.script_status = 1;
    disarmed("Syntax error at line 7");
  }
}

TEST_CASE("the trial follows the default entry", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  const auto kernel = [&] {
    REQUIRE(fix.apply(*session.host, kPt));
    return parse_grub(machine.get(kCustom)).value().entries.at(0).loads.at(0).words.at(0);
  };
  SECTION("in a submenu") {
    machine.put(kConfig, with(kDebianGrub, "set default=\"0\"", "set default=\"1>2\""));
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-49-amd64");
  }
  SECTION("saved") {
    machine.put(kConfig, with(kDebianGrub, "set default=\"0\"", "set default=\"${saved_entry}\""));
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-50-amd64");
    machine.environment("saved_entry=gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503\n").value();
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-49-amd64");
  }
  SECTION("with /boot on a partition of its own") {
    std::string config = kDebianGrub;
    for (const char* name : {"/boot/vmlinuz", "/boot/initrd"})
      for (std::size_t at = 0; (at = config.find(name)) != std::string::npos;) config.erase(at, 5);
    machine.put(kConfig, config);
    CHECK(kernel() == "/vmlinuz-6.1.0-50-amd64");
  }
}
