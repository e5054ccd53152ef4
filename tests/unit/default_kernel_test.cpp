// SPDX-License-Identifier: MIT
#include "machine/modules/default_kernel.hpp"

#include "base/action.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "grub_machine.hpp"

namespace p2pd {
extern const Probe kBootableKernels;
extern const Action kDefaultKernelAction;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;
namespace fs = std::filesystem;

namespace {

const std::string kProven = "6.1.0-49-amd64", kUpdate = "6.1.0-50-amd64";
const std::string kByDropIn = "gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503";
const std::string kConf = "usr/src/p2pd-nvidia-9.9.9/dkms.conf";
const Parameters kStays{{"stays", true}};

/// A ready machine of one kernel, then an update: the fixture has both kernels, the newer one first.
struct Updated : GrubMachine {
  Updated() {
    for (const std::string& version : {kProven, kUpdate}) put("lib/modules/" + version + "/modules.dep", "");
    modules(kProven);
    put(kConf, "# Written by p2pd for test/main, commit " + std::string(40, '1') + "; gone\n");
    recorder.root = &root;
    runner.on("grub-mkconfig", [this](const Command&) {
      const bool kept = fs::exists(directory / "etc/default/grub.d/zz-p2pd-kernel.cfg") &&
                        !fs::exists(directory / ("lib/modules/" + kUpdate + "/updates"));
      return Result<CommandResult>(
          {0, kept ? with(kDebianGrub, "default=\"0\"", "default=\"" + kByDropIn + "\"") : kDebianGrub, ""});
    });
  }
  void modules(const std::string& version) const {
    put("lib/modules/" + version + "/updates/dkms/nvidia.ko", "x");
    put("var/lib/dkms/p2pd-nvidia/kernel-" + version + "-x86_64/module/nvidia.ko", "x");
  }
  Finding check(const Parameters& parameters = kStays) { return kBootableKernels.check(host, parameters).value(); }

  Root root = Root::open(directory.path()).value();
  Host host{root, runner, &recorder};
};

/// GRUB_DEFAULT as a real sh leaves it that sources `text`, then the drop-in, under "set -e" as grub-mkconfig does.
std::string default_with(const TemporaryDirectory& directory, const std::string& text, const std::string& saved = "") {
  std::string drop_in = default_kernel_drop_in();
  for (const std::string place : {"/boot/", "/lib/modules/", "/var/lib/dkms/"})
    for (std::size_t at = 0; (at = drop_in.find(place, at)) != std::string::npos;
         at += directory.path().string().size() + place.size())
      drop_in.insert(at, directory.path().string());
  directory.put("drop-in", drop_in);
  directory.put("defaults", text);
  directory.put("bin/grub-editenv", "#!/bin/sh\necho '" + saved + "'\n");
  fs::permissions(directory / "bin/grub-editenv", fs::perms(0755));
  const std::string script = "PATH=" + (directory / "bin").string() +
                             ":$PATH GRUB_DEVICE_UUID=2503 GRUB_DEVICE=/dev/vda sh -euc '. " +
                             (directory / "defaults").string() + "; . " + (directory / "drop-in").string() +
                             "; printf \"<%s>\" \"${GRUB_DEFAULT-}\"' 2>/dev/null";
  std::FILE* const pipe = ::popen(script.c_str(), "r");
  std::string said;
  for (int c; (c = std::fgetc(pipe)) != EOF;) said += static_cast<char>(c);
  return ::pclose(pipe) == 0 ? said : "sh fails: " + said;
}

}  // namespace

TEST_CASE("default-kernel: the drop-in names the newest kernel with modules, until a newer one has them") {
  const TemporaryDirectory directory;
  const auto kernel = [&](const std::string& version, const std::string& modules = "") {
    directory.put("boot/vmlinuz-" + version, "");
    if (!modules.empty()) directory.put(modules, "");
  };
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == "<0>");  // no kernel at all
  kernel("6.1.0-9-amd64");
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == "<0>");                    // none with modules
  kernel("6.1.0-36-amd64", "lib/modules/6.1.0-36-amd64/updates/dkms/nvidia.ko");  // the distribution's
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == "<0>");
  kernel("6.1.0-37-amd64", "var/lib/dkms/p2pd-nvidia/kernel-6.1.0-37-amd64-x86_64/module/nvidia.ko.xz");
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == "<0>");
  kernel("6.1.0-100-amd64");
  kernel("6.1.0-37-amd64.old");
  const std::string entry = "gnulinux-6.1.0-37-amd64-advanced-2503", in_menu = "<gnulinux-advanced-2503>" + entry + ">";
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == in_menu);
  CHECK(default_with(directory, "") == in_menu);
  CHECK(default_with(directory, "GRUB_DISABLE_SUBMENU=y\n") == "<" + entry + ">");
  CHECK(default_with(directory, "GRUB_DISABLE_UUID=true\n") ==
        "<gnulinux-advanced-/dev/vda>gnulinux-6.1.0-37-amd64-advanced-/dev/vda>");
  CHECK(default_with(directory, "GRUB_DEFAULT=saved\n") == in_menu);  // nothing is saved: GRUB takes the first
  CHECK(default_with(directory, "GRUB_DEFAULT=saved\n", "saved_entry=mine") == "<saved>");
  for (const char* chosen : {"2", "Debian GNU/Linux", "1>2"})
    CHECK(default_with(directory, std::string("GRUB_DEFAULT='") + chosen + "'\n") == "<" + std::string(chosen) + ">");
  kernel("6.12.0-1-amd64", "lib/modules/6.12.0-1-amd64/updates/p2pd/nvidia.ko");
  CHECK(default_with(directory, "GRUB_DEFAULT=0\n") == "<0>");
}

TEST_CASE("default-kernel: a kernel update without modules does not start by default, and that is told") {
  Updated machine;
  const std::string before = machine.tree();
  CHECK(machine.check(Parameters::object()).verdict == Verdict::fail);  // it would start without a driver
  CHECK(machine.check().verdict == Verdict::fail);
  REQUIRE(kDefaultKernelAction.apply(machine.host, Parameters::object()));
  const Finding held = machine.check();
  CHECK(held.verdict == Verdict::pass);
  CHECK(held.facts["next"] == kProven);
  CHECK(held.summary.find("; 6.1.0-50-amd64 is newer and has no module, so does not start") != std::string::npos);
  CHECK(held.next.find("linux-headers-6.1.0-50-amd64") != std::string::npos);
  CHECK(kernels_held_back(machine.host) == std::vector<std::string>{kUpdate});
  const std::string after = machine.tree();
  REQUIRE(kDefaultKernelAction.apply(machine.host, Parameters::object()));
  CHECK(machine.tree() == after);
  const auto hook = fs::status(machine.directory / "etc/kernel/header_postinst.d/zz-p2pd").permissions();
  CHECK((hook & fs::perms::owner_exec) != fs::perms::none);
  SECTION("its modules come: it is the default") {
    machine.modules(kUpdate);
    machine.put(kConfig + ".new", kDebianGrub);
    fs::rename(machine.directory / (kConfig + ".new"),
               machine.directory / kConfig);  // as the hook's update-grub writes it
    CHECK(kernels_held_back(machine.host).empty());
    CHECK(machine.check().facts["next"] == kUpdate);
    CHECK(machine.check().next.empty());
  }
  SECTION("undone, as it was") {
    machine.recorder.put_back();
    REQUIRE(kDefaultKernelAction.undo(machine.host, Parameters::object()));
    CHECK(machine.get(kConfig) == kDebianGrub);
    CHECK_FALSE(fs::exists(machine.directory / "etc/default/grub.d/zz-p2pd-kernel.cfg"));
  }
  SECTION("undone after somebody generated grub.cfg anew: it names our entry no more") {
    machine.recorder.before.erase("/boot/grub/grub.cfg");
    machine.recorder.put_back();
    REQUIRE(kDefaultKernelAction.undo(machine.host, Parameters::object()));
    CHECK(machine.get(kConfig).find(kByDropIn) == std::string::npos);
  }
  CHECK(machine.runner.unexpected.empty());
}

namespace {

/// Runs the hook of systemd-boot by a real sh on the files of `machine`; bootctl writes what it is asked for.
std::string entry_by_hook(const Updated& machine, const std::string& booted, const std::string& chosen = "") {
  const std::string place = machine.directory.path().string();
  std::string hook = default_kernel_files(true).front().content;
  for (const std::string path :
       {"/boot/vmlinuz-", "/lib/modules/", "/var/lib/", "/sys/firmware/", "/efi/loader", "/etc/kernel"})
    for (std::size_t at = 0; (at = hook.find(path, at)) != std::string::npos; at += place.size() + path.size())
      hook.insert(at, place);
  machine.put("hook", hook);
  machine.put("bin/bootctl", "#!/bin/sh\necho \"$@.\" > " + place + "/asked\n");
  machine.put("bin/uname", "#!/bin/sh\n[ \"$1\" = -m ] && echo x86_64 || echo 6.1.0-49-amd64\n");
  for (const char* program : {"bin/bootctl", "bin/uname"})
    fs::permissions(machine.directory / program, fs::perms(0755));
  const auto variable = [&](const std::string& name, const std::string& text) {
    std::string data(4, '\6');
    for (const char c : text) data += std::string{c, '\0'};
    machine.put("sys/firmware/efi/efivars/" + name + "-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", text.empty() ? "" : data);
  };
  variable("LoaderEntrySelected", booted);
  variable("LoaderEntryDefault", chosen);
  fs::remove(machine.directory / "asked");
  REQUIRE(std::system(("PATH=" + place + "/bin:$PATH sh " + place + "/hook 2>/dev/null").c_str()) == 0);
  return machine.get("asked");
}

}  // namespace

TEST_CASE("default-kernel: systemd-boot's default is the newest kernel with modules, until a newer one has them") {
  Updated machine;
  const std::string id = "0123-6.1.0-49-amd64.conf", kept = "var/lib/p2pd/boot-default";
  machine.put("var/lib/p2pd/x", "");
  CHECK(entry_by_hook(machine, id) == "set-default " + id + ".\n");
  CHECK(machine.get(kept) == id + "\n");
  CHECK(entry_by_hook(machine, id, id) == "absent");           // it is
  CHECK(entry_by_hook(machine, id, "mine.conf") == "absent");  // a person's choice
  CHECK(entry_by_hook(machine, "arch.conf") == "absent");      // which kernel?
  CHECK(entry_by_hook(machine, "0123-6.1.0-49-amd64.efi") == "set-default 0123-6.1.0-49-amd64.efi.\n");
  machine.put("var/lib/p2pd/boot-trial", "proxmox-6.1.0-49-amd64.conf\n# arguments: iommu=pt\n");
  CHECK(entry_by_hook(machine, "a-p2pd-trial.conf") == "set-default proxmox-6.1.0-49-amd64.conf.\n");
  fs::rename(machine.directory / "var/lib/p2pd/boot-trial", machine.directory / "var/lib/p2pd/boot-arguments");
  CHECK(entry_by_hook(machine, "a-p2pd-trial.conf") == "set-default proxmox-6.1.0-49-amd64.conf.\n");  // committed
  machine.put("etc/kernel/proxmox-boot-pin", "6.1.0-50-amd64\n");
  CHECK(entry_by_hook(machine, id) == "absent");
  fs::remove(machine.directory / "etc/kernel/proxmox-boot-pin");
  machine.put("efi/loader/loader.conf", "timeout 3\ndefault mine.conf\n");
  CHECK(entry_by_hook(machine, id) == "absent");
  machine.put("efi/loader/loader.conf", "timeout 3\ndefault proxmox-*\n");
  CHECK(entry_by_hook(machine, id) == "set-default " + id + ".\n");
  machine.put(kept, id + "\n");
  machine.modules(kUpdate);
  CHECK(entry_by_hook(machine, id, id) == "set-default .\n");
  CHECK(machine.get(kept) == "absent");
  CHECK(entry_by_hook(machine, id) == "absent");
}

TEST_CASE("default-kernel: where p2pd installed no modules, nothing is asked for") {
  Updated machine;
  fs::remove(machine.directory / kConf);  // DKMS has them from a package of the distribution
  machine.modules(kUpdate);
  CHECK(machine.check().verdict == Verdict::pass);
}

TEST_CASE("default-kernel: a file of somebody else at its place is left") {
  Updated machine;
  machine.put("etc/default/grub.d/zz-p2pd-kernel.cfg", "# mine\n");
  CHECK_FALSE(kDefaultKernelAction.apply(machine.host, Parameters::object()));
  CHECK(machine.get("etc/default/grub.d/zz-p2pd-kernel.cfg") == "# mine\n");
}
