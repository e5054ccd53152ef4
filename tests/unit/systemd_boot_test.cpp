// SPDX-License-Identifier: MIT
// The trial boot of new kernel arguments by systemd-boot: text entries, unified images, what is in the way.
#include <fmt/format.h>

#include "catch.hpp"
#include "grub_machine.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/efi_variable.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace std::string_literals;
using Session = test::GrubSession;
using test::kPt;
using test::says;

namespace {

const Action& fix = kKernelCmdlineAction;
const std::string kId = "0123456789abcdef0123456789abcdef";
const std::string kNew = "efi/loader/entries/" + kId + "-6.12.57-amd64.conf";
const std::string kOld = "efi/loader/entries/" + kId + "-6.12.48-amd64.conf";
const std::string kTrial = "efi/loader/entries/a-p2pd-trial.conf";
const std::string kCommandLine = "etc/kernel/cmdline";

std::string entry(const std::string& version, const std::string& options = "root=UUID=1 ro quiet") {
  return fmt::format(
      "# Boot Loader Specification type#1 entry\ntitle      Debian GNU/Linux 13 (trixie)\nversion    {0}\nmachine-id "
      "{1}\n"
      "sort-key   debian\noptions    {2}\nlinux      /{1}/{0}/linux\ninitrd     /{1}/{0}/initrd.img\n",
      version, kId, options);
}

/// A Debian 13 that systemd-boot starts; bootctl does on the variable what the real one does.
struct Machine : test::GrubMachine {
  Machine() {
    fs::remove_all(directory / "boot/grub");
    put(kNew, entry("6.12.57-amd64"));
    put(kOld, entry("6.12.48-amd64"));
    put("efi/loader/entries/arch.conf", "title Arch\nlinux /vmlinuz-linux\noptions root=UUID=2 rw\n");
    put("efi/loader/loader.conf", "timeout 3\n");
    program("kernel-install");
    program("bootctl");
    variable("LoaderInfo", "systemd-boot 257.9-1~deb13u1");
    put(efi_variable_path("LoaderFeatures", kEfiLoader), "\6\0\0\0\xff\1\0\0\0\0\0\0"s);
    runner.on("bootctl set-oneshot a-p2pd-trial.conf", [this](const Command&) { return choose("a-p2pd-trial.conf"); });
    runner.on("bootctl set-oneshot a-p2pd-trial.efi", [this](const Command&) { return choose("a-p2pd-trial.efi"); });
    runner.on("bootctl set-oneshot ''", [this](const Command&) { return choose(""); });
    put("proc/sys/kernel/osrelease", "6.12.57-amd64\n");
    put("var/lib/p2pd/state.db", "");
    boot();
  }
  void program(const std::string& name) const {
    put("usr/bin/" + name, "");
    fs::permissions(directory / "usr/bin" / name, fs::perms::owner_all);
  }
  void variable(const std::string& name, const std::string& text) const {
    std::string data = "\6\0\0\0"s;
    for (const char c : text) data += std::string{c, '\0'};
    put(efi_variable_path(name, kEfiLoader), data + "\0\0"s);
  }
  Result<CommandResult> choose(const std::string& id) const {
    if (id.empty() || !keeps)
      fs::remove(directory / efi_variable_path("LoaderEntryOneShot", kEfiLoader).substr(1));
    else
      variable("LoaderEntryOneShot", id);
    return CommandResult{};
  }
  std::string chosen() const {
    const std::string data = get(efi_variable_path("LoaderEntryOneShot", kEfiLoader).substr(1));
    return data == "absent" ? "" : efi_text(data.substr(4));
  }
  /// Boots: the chosen entry once, else the newest; its options become /proc/cmdline.
  void boot() const {
    const std::string once = chosen();
    (void)choose("");
    const std::string id = once.empty() ? kId + "-6.12.57-amd64.conf" : once;
    std::istringstream lines(get("efi/loader/entries/" + id));
    std::string line = "initrd=\\" + kId + "\\initrd.img", word;
    for (std::string text; std::getline(lines, text);)
      if (text.starts_with("options")) line += " " + text.substr(text.find_first_not_of(' ', 7));
    put("proc/cmdline", line + "\n");
    variable("LoaderEntrySelected", id);
  }

  /// What boots, and what boots in future: /efi and /etc.
  std::string boots() const {
    std::istringstream lines(tree());
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with("var") && !line.starts_with("proc") && !line.starts_with("run")) found += line + "\n";
    return found;
  }

  bool keeps = true;  ///< the firmware keeps the variable
};

}  // namespace

TEST_CASE("systemd-boot: a trial boot becomes the default once proven, and goes back", "[kernel_cmdline]") {
  Machine machine;
  SECTION("kernels to come get the command line of a file") { machine.put(kCommandLine, "root=UUID=1 ro quiet\n"); }
  SECTION("kernels to come would get that of the running one") {}
  SECTION("the last line of an entry has no end") { machine.put(kOld, "linux /l\noptions root=UUID=1"); }
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  const std::string first = machine.boots();
  REQUIRE_FALSE(session.passes(kPt));

  const Description plan = fix.describe(host, kPt).value();
  CHECK(machine.boots() == first);
  REQUIRE(fix.apply(host, kPt));
  CHECK(plan.files.at(0).path == "/" + kTrial);
  CHECK(machine.get(kTrial) == plan.files[0].content);
  CHECK(machine.get(kTrial).starts_with("version ~\n"));
  CHECK(machine.get(kTrial).find("\nversion ") == std::string::npos);
  CHECK(machine.get(kTrial).ends_with("options iommu=pt p2pd.trial=1 panic=30\n"));
  CHECK(machine.get(kCommandLine) == "root=UUID=1 ro quiet\n");
  CHECK(machine.get(kNew) == entry("6.12.57-amd64"));
  const std::string applied = machine.tree();
  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.tree() == applied);

  const auto committed = [&] {
    REQUIRE(fix.before_reboot(host, kPt));
    CHECK(machine.chosen() == "a-p2pd-trial.conf");
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == true);
    REQUIRE(fix.apply(host, kPt));  // from the entry that the trial was made of
    REQUIRE(fix.commit(host, kPt));
    const std::string tree = machine.tree();
    CHECK(machine.get(kTrial) == "absent");
    for (const Description::File& file : plan.files)
      if (file.path != "/" + kTrial) CHECK(machine.get(file.path.substr(1)) == file.content);
    CHECK(machine.get("efi/loader/entries/arch.conf").find("iommu") == std::string::npos);
    REQUIRE(fix.commit(host, kPt));
    CHECK(machine.tree() == tree);
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == false);
  };
  SECTION("the power goes before the reboot: the old default boots") { machine.boot(); }
  SECTION("armed, but undone before the reboot") {
    REQUIRE(fix.before_reboot(host, kPt));
    CHECK(machine.chosen() == "a-p2pd-trial.conf");
  }
  SECTION("tried, proven, committed") { committed(); }
  SECTION("the same, and kernel-install has made an entry anew since") {
    committed();
    std::string line = machine.get(kCommandLine);
    line.pop_back();
    machine.put(kNew, entry("6.12.57-amd64", line));
  }
  SECTION("two steps in one trial: both, or none") {
    REQUIRE(fix.apply(host, test::kAcs));
    CHECK(machine.get(kTrial).find("options iommu=pt " + test::kAcs.at("arguments")[0].get<std::string>()) !=
          std::string::npos);
  }
  machine.recorder.put_back();
  REQUIRE(fix.undo(host, kPt));
  CHECK(machine.chosen().empty());
  machine.boot();
  CHECK(machine.boots() == first);
  CHECK_FALSE(session.passes(kPt));
}

TEST_CASE("systemd-boot: arguments of the user's own stay", "[kernel_cmdline]") {
  Machine machine;
  const std::string own = entry("6.12.48-amd64", "root=UUID=1 ro iommu=pt vfio-pci.ids=10de:2684");
  machine.put(kOld, own);
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  REQUIRE(fix.apply(host, kPt));
  SECTION("of a trial that was never proven") {}
  SECTION("of one that was, cut by power in the commit") {
    REQUIRE(fix.before_reboot(host, kPt));
    machine.boot();
    REQUIRE(fix.commit(host, kPt));
    fs::remove(machine.directory / "var/lib/p2pd/boot-arguments");  // as if it had not come so far
    machine.put("var/lib/p2pd/boot-trial", kId + "-6.12.57-amd64.conf\n# arguments: iommu=pt\n");
    REQUIRE(fix.commit(host, kPt));
  }
  machine.recorder.put_back();
  REQUIRE(fix.undo(host, kPt));
  CHECK(machine.get(kOld) == own);
  CHECK(machine.get(kNew) == entry("6.12.57-amd64"));
}

TEST_CASE("systemd-boot: after an undo in the trial boot, a kernel gets no arguments of the trial",
          "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  REQUIRE(fix.apply(host, kPt));
  REQUIRE(fix.before_reboot(host, kPt));
  machine.boot();
  machine.recorder.put_back();
  REQUIRE(fix.undo(host, kPt));
  CHECK(machine.get(kCommandLine) == "root=UUID=1 ro quiet\n");
  CHECK(machine.get("etc/tmpfiles.d/p2pd-boot.conf") ==
        "# Written by p2pd.\nr! /etc/kernel/cmdline\nr! /etc/tmpfiles.d/p2pd-boot.conf\n");
  CHECK(says(fix.apply(host, kPt), "this boot is a trial that was undone"));
}

TEST_CASE("systemd-boot: what an earlier run made permanent stays", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  const auto make = [&](const Parameters& wanted) {
    REQUIRE(fix.apply(host, wanted));
    REQUIRE(fix.before_reboot(host, wanted));
    machine.boot();
    REQUIRE(fix.commit(host, wanted));
    machine.boot();
  };
  make(kPt);
  const std::string first = machine.boots();
  machine.recorder.before.clear();
  REQUIRE(fix.apply(host, test::kAcs));
  REQUIRE(fix.before_reboot(host, test::kAcs));
  machine.boot();
  CHECK(session.passes(kPt));  // in the trial, too
  CHECK(session.passes(test::kAcs));
  make(test::kAcs);
  CHECK(session.passes(test::kAcs));
  machine.recorder.put_back();
  REQUIRE(fix.undo(host, test::kAcs));
  machine.boot();
  CHECK(machine.boots() == first);
  CHECK(session.passes(kPt));
  CHECK_FALSE(session.passes(test::kAcs));
}

TEST_CASE("systemd-boot: without a safe trial nothing is written", "[kernel_cmdline]") {
  Machine machine;
  std::string why;
  SECTION("a default of loader.conf") {
    machine.put("efi/loader/loader.conf", "timeout 3\ndefault *\n");
    why = "the default of loader.conf or bootctl, \"*\", would also choose the trial entry";
  }
  SECTION("a default of bootctl") {
    machine.variable("LoaderEntryDefault", "A-*.conf");
    why = "\"A-*.conf\", would also choose the trial entry";
  }
  SECTION("an old loader") {
    machine.put(efi_variable_path("LoaderFeatures", kEfiLoader), "\6\0\0\0\x17\0\0\0\0\0\0\0"s);
    why = "this boot loader is too old to boot an entry once";
  }
  SECTION("the entry is gone") {
    fs::remove(machine.directory / kNew);
    why = "the entry that booted, is on no boot partition";
  }
  SECTION("the partition is not mounted") {
    fs::remove_all(machine.directory / "efi");
    fs::create_directory(machine.directory / "efi");
    why = "no partition with boot entries is mounted";
  }
  SECTION("a default of loader.conf as Windows writes it") {
    machine.put("boot/loader/loader.conf", "default \"*.conf\"\r\n");
    why = "\"*.conf\", would also choose the trial entry";
  }
  SECTION("an entry without tries") {
    fs::rename(machine.directory / kNew, machine.directory / (kNew.substr(0, kNew.size() - 5) + "+0-3.conf"));
    why = "the trial would be sorted before";
  }
  SECTION("an entry that starts a program") {
    machine.put(kNew, "title UKI\nefi /EFI/Linux/debian.efi\n");
    why = "does not load Linux itself";
  }
  SECTION("the loader does not say what it booted") {
    fs::remove(machine.directory / efi_variable_path("LoaderEntrySelected", kEfiLoader).substr(1));
    why = "does not say which entry it booted";
  }
  Session session(machine);
  NEEDS_ROOT(session);
  const std::string first = machine.tree();
  CHECK(says(fix.apply(*session.host, kPt), why));
  const auto plan = fix.describe(*session.host, kPt);
  CHECK((!plan && plan.error().text().find(why) != std::string::npos));
  CHECK(machine.tree() == first);
}

TEST_CASE("systemd-boot: a firmware that does not keep the choice is told", "[kernel_cmdline]") {
  Machine machine;
  machine.keeps = false;
  Session session(machine);
  NEEDS_ROOT(session);
  REQUIRE(fix.apply(*session.host, kPt));
  CHECK(says(fix.before_reboot(*session.host, kPt), "the firmware does not keep EFI variable LoaderEntryOneShot"));
}

namespace {

/// The same machine with a unified image; ukify writes the arguments of an addon as its content.
struct ImageMachine : Machine {
  ImageMachine() {
    put("efi/EFI/Linux/debian-6.12.57.efi", "an image");
    put("proc/sys/kernel/osrelease", "6.12.57\n");
    put("proc/cmdline", "root=UUID=1 ro quiet\n");
    variable("LoaderEntrySelected", "debian-6.12.57.efi");
    program("ukify");
    const auto ukify = [this](const Command& command) {
      put("run/p2pd/addon.efi", command.argv.at(2));
      return Result<CommandResult>(CommandResult{});
    };
    runner.on("mkdir -p /run/p2pd");
    runner.on("rm -f /run/p2pd/addon.efi", [this](const Command&) {
      fs::remove_all(directory / "run/p2pd");
      return Result<CommandResult>(CommandResult{});
    });
    for (const std::string key : {"", " --secureboot-private-key=/k --secureboot-certificate=/c"})
      for (const std::string words : {"'--cmdline=iommu=pt p2pd.trial=1 panic=30'", "--cmdline=iommu=pt"})
        runner.on("ukify build " + words + " --output=/run/p2pd/addon.efi" + key, ukify);
    const std::string trial = "/efi/EFI/Linux/a-p2pd-trial.efi";
    runner.on("cp /efi/EFI/Linux/debian-6.12.57.efi " + trial + ".new", [this](const Command& command) {
      fs::copy(directory / command.argv[1].substr(1), directory / command.argv[2].substr(1));
      return Result<CommandResult>(CommandResult{});
    });
    runner.on("cmp --silent /efi/EFI/Linux/debian-6.12.57.efi " + trial, [this](const Command& command) {
      CommandResult differs;
      differs.status = get(command.argv[2].substr(1)) == get(command.argv[3].substr(1)) ? 0 : 1;
      return Result<CommandResult>(differs);
    });
  }
};

}  // namespace

TEST_CASE("systemd-boot: a unified image is tried as a copy with an addon", "[kernel_cmdline]") {
  ImageMachine machine;
  SECTION("Secure Boot is off") {}
  SECTION("Secure Boot is on, and the machine's key signs") {
    machine.put(efi_variable_path("SecureBoot", kEfiGlobal), "\6\0\0\0\1"s);
    machine.put("etc/kernel/uki.conf", "[UKI]\nSecureBootPrivateKey=/k\nSecureBootCertificate = /c\n");
  }
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  const std::string first = machine.boots();
  REQUIRE(fix.describe(host, kPt));
  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi") == "an image");
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi.extra.d/p2pd.addon.efi") ==
        "--cmdline=iommu=pt p2pd.trial=1 panic=30");
  machine.put("efi/EFI/Linux/debian-6.12.57.efi", "an image with a new initrd");
  REQUIRE(fix.before_reboot(host, kPt));
  CHECK(machine.chosen() == "a-p2pd-trial.efi");
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi") == "an image with a new initrd");
  machine.variable("LoaderEntrySelected", "a-p2pd-trial.efi");
  machine.put("proc/cmdline", "root=UUID=1 ro quiet iommu=pt p2pd.trial=1 panic=30\n");
  (void)machine.choose("");
  REQUIRE(fix.commit(host, kPt));
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi") == "absent");
  CHECK(machine.get("efi/loader/addons/p2pd.addon.efi") == "--cmdline=iommu=pt");  // of each image
  CHECK(machine.get(kCommandLine) == "root=UUID=1 ro quiet\n");  // images of kernels to come could not be undone
  machine.recorder.put_back();
  machine.variable("LoaderEntrySelected", "debian-6.12.57.efi");
  machine.put("proc/cmdline", "root=UUID=1 ro quiet\n");
  REQUIRE(fix.undo(host, kPt));
  machine.put("efi/EFI/Linux/debian-6.12.57.efi", "an image");
  CHECK(machine.boots() == first);
  CHECK_FALSE(fs::exists(machine.directory / "efi/loader/addons"));
}

TEST_CASE("systemd-boot: an image whose trial was begun only gets its copy", "[kernel_cmdline]") {
  ImageMachine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  REQUIRE(fix.apply(*session.host, kPt));
  fs::remove(machine.directory / "efi/EFI/Linux/a-p2pd-trial.efi");  // killed before it was there
  REQUIRE(fix.apply(*session.host, kPt));
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi") == "an image");
}

TEST_CASE("systemd-boot: an undo without the partition fails", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  REQUIRE(fix.apply(*session.host, kPt));
  fs::rename(machine.directory / "efi", machine.directory / "mnt");
  CHECK(says(fix.prepare_undo(*session.host, kPt), "no partition with boot entries is mounted"));
  machine.recorder.put_back();
  CHECK(says(fix.undo(*session.host, kPt), "no partition with boot entries is mounted"));
}

TEST_CASE("systemd-boot: with Secure Boot and no key to sign an addon, nothing is written", "[kernel_cmdline]") {
  ImageMachine machine;
  machine.put(efi_variable_path("SecureBoot", kEfiGlobal), "\6\0\0\0\1"s);
  Session session(machine);
  NEEDS_ROOT(session);
  CHECK(says(systemd_boot_can_try(*session.host), "/etc/kernel/uki.conf names no key"));
  CHECK_FALSE(fix.describe(*session.host, kPt));
  CHECK(says(fix.apply(*session.host, kPt), "names no key"));
  CHECK(machine.get("efi/EFI/Linux/a-p2pd-trial.efi") == "absent");
}
