// SPDX-License-Identifier: MIT
// EFI variables (machine/boot/efi_variable.hpp), and the check of Secure Boot, which reads them.
#include <fstream>

#include "catch.hpp"
#include "machine/boot/efi_variable.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kSecureBoot;
}

namespace fs = std::filesystem;
using namespace p2pd;
using namespace std::string_literals;

namespace {

constexpr char kLockdown[] = "sys/kernel/security/lockdown";
constexpr char kEnforce[] = "sys/module/module/parameters/sig_enforce";

struct Machine : test::MadeTree {
  Machine() { gpu("84 26"); }  // an RTX 4090
  void variable(std::string_view name, std::string_view vendor, const std::string& data) const {
    put(efi_variable_path(name, vendor), "\x06\0\0\0"s + data);
  }
  void secure_boot(bool on) const { variable("SecureBoot", kEfiGlobal, on ? "\x01"s : "\0"s); }
  Result<Finding> look() { return kSecureBoot.check(host, Parameters::object()); }
  Verdict verdict() { return look().value().verdict; }
};

}  // namespace

TEST_CASE("secure-boot: what the kernel does decides, not the firmware's switch") {
  Machine machine;
  machine.secure_boot(true);
  machine.put(kLockdown, "[none] integrity confidentiality\n");
  machine.put(kEnforce, "N\n");
  CHECK(machine.verdict() == Verdict::pass);
  CHECK(machine.look()->facts["secure_boot"] == true);
  machine.put(kLockdown, "none [integrity] confidentiality\n");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.facts["lockdown"] == "integrity");
  CHECK(finding.next.find("mokutil --import") != std::string::npos);
  machine.put(kLockdown, "[none] integrity confidentiality\n");
  machine.put(kEnforce, "Y\n");
  machine.secure_boot(false);
  CHECK(machine.verdict() == Verdict::fail);
}

TEST_CASE("secure-boot: without securityfs only what is certain is told") {
  Machine machine;
  CHECK_FALSE(machine.look());  // no files
  machine.put(kEnforce, "N\n");
  CHECK(machine.verdict() == Verdict::pass);  // no EFI: no lockdown by Secure Boot
  machine.secure_boot(true);
  CHECK_FALSE(machine.look());
  machine.put("sys/kernel/security/lsm", "lockdown,capability");
  CHECK(machine.verdict() == Verdict::pass);  // securityfs is there, lockdown is not
  fs::remove_all(machine.directory / "sys/kernel");
  machine.secure_boot(false);
  CHECK(machine.verdict() == Verdict::pass);
  machine.put("proc/cmdline", "quiet lockdown=confidentiality\n");
  CHECK(machine.verdict() == Verdict::fail);
  machine.put("proc/cmdline", "quiet\n");
  fs::remove_all(machine.directory / "sys/module");
  CHECK_FALSE(machine.look());
  machine.put("proc/cmdline", "module.sig_enforce\n");
  CHECK(machine.verdict() == Verdict::fail);
}

TEST_CASE("secure-boot: broken files are no pass") {
  Machine machine;
  machine.put(kEnforce, "N\n");
  SECTION("lockdown without a choice") { machine.put(kLockdown, "none integrity\n"); }
  SECTION("lockdown turned around") { machine.put(kLockdown, "]none[\n"); }
  SECTION("lockdown of nothing") { machine.put(kLockdown, "[]\n"); }
  SECTION("empty lockdown") { machine.put(kLockdown, ""); }
  SECTION("sig_enforce") { machine.put(kEnforce, "maybe\n"); }
  SECTION("a variable cut off") { machine.put(efi_variable_path("SecureBoot", kEfiGlobal), "\x06"s); }
  SECTION("a variable of two bytes") { machine.variable("SecureBoot", kEfiGlobal, "\x01\x01"s); }
  CHECK_FALSE(machine.look());
}

TEST_CASE("secure-boot: a key of this system, enrolled or not") {
  Machine machine;
  machine.secure_boot(true);
  machine.put(kLockdown, "none [integrity] confidentiality\n");
  const std::string certificate = "\x30\x82\x01\0the key"s;
  CHECK(
      machine.look()->next.starts_with("Run \"sudo apt-get install dkms && sudo dkms generate_mok\" and \"sudo mokutil "
                                       "--import /var/lib/dkms/mok.pub\", then reboot"));
  machine.put("usr/sbin/update-secureboot-policy", "#!/bin/sh\n");
  fs::permissions(machine.directory / "usr/sbin/update-secureboot-policy", fs::perms(0755));
  CHECK(
      machine.look()->next.starts_with("Run \"sudo update-secureboot-policy --new-key\" and \"sudo mokutil --import "
                                       "/var/lib/shim-signed/mok/MOK.der\""));
  machine.put("var/lib/shim-signed/mok/MOK.der", certificate);
  machine.put("var/lib/shim-signed/mok/MOK.priv", "key");
  CHECK(machine.look()->facts["local_key"]["enrolled"] == false);
  CHECK(
      machine.look()->next.starts_with("Run \"sudo mokutil --import /var/lib/shim-signed/mok/MOK.der\", then reboot"));
  machine.variable("MokNew", kEfiShim, certificate);
  CHECK(machine.look()->next.starts_with("A mokutil enrolment is pending: reboot"));
  const std::string place = GENERATE(as<std::string>(), "MokListRT", "db");
  machine.variable(place, place == "db" ? kEfiImages : kEfiShim, "header" + certificate + "more");
  CHECK(machine.verdict() == Verdict::pass);
  CHECK(machine.look()->facts["local_key"]["enrolled"] == true);
  CHECK(machine.look()->summary.find("; /var/lib/shim-signed/mok/MOK.der is enrolled: its key signs") !=
        std::string::npos);
  machine.put("var/lib/shim-signed/mok/MOK.priv", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
  CHECK(machine.verdict() == Verdict::fail);
  CHECK(machine.look()->next.find("MOK.priv is encrypted") != std::string::npos);
}

TEST_CASE("secure-boot: cards that NVIDIA's own driver gives P2P need no module built here") {
  Machine machine;
  machine.secure_boot(true);
  machine.put(kLockdown, "none [integrity] confidentiality\n");
  machine.gpu("30 22");  // RTX A6000
  CHECK(machine.verdict() == Verdict::not_applicable);
  machine.gpu("99 99");  // not known: reported to be safe
  CHECK(machine.verdict() == Verdict::fail);
}

TEST_CASE("EFI variables: attributes are taken off, what is not whole is an error") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  fs::create_directories(directory / "sys/firmware/efi/efivars");
  const auto put = [&](const std::string& bytes) {
    std::ofstream(directory / efi_variable_path("SecureBoot", kEfiGlobal), std::ios::binary) << bytes;
  };
  CHECK(efi_variable_path("SecureBoot", kEfiGlobal) ==
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
  CHECK_FALSE(efi_variable(host, "SecureBoot", kEfiGlobal).value());
  CHECK_FALSE(efi_flag(host, "SecureBoot", kEfiGlobal).value());
  put("\x06\0\0\0\x01"s);
  CHECK(efi_variable(host, "SecureBoot", kEfiGlobal).value() == "\x01"s);
  CHECK(efi_flag(host, "SecureBoot", kEfiGlobal).value() == true);
  put("\x06\0\0\0\0"s);
  CHECK(efi_flag(host, "SecureBoot", kEfiGlobal).value() == false);
  for (const std::string& bytes : {""s, "\x06\0\0"s}) {
    put(bytes);
    CHECK_FALSE(efi_variable(host, "SecureBoot", kEfiGlobal));
  }
  for (const std::string& bytes :
       {"\x06\0\0\0"s, "\x06\0\0\0\x02"s, "\x06\0\0\0\x01\x01"s, std::string(2U << 20, 'x')}) {
    put(bytes);
    CHECK_FALSE(efi_flag(host, "SecureBoot", kEfiGlobal));
  }
}

TEST_CASE("EFI text is UTF-16 up to its end") {
  CHECK(efi_text("G\0R\0U\0B\0\0\0x\0"s) == "GRUB");
  CHECK(efi_text("a\0\x1b\0\x3b\x04"s) == "a??");
  CHECK(efi_text("a\0b"s) == "a");
  CHECK(efi_text("").empty());
}
