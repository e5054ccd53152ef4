// SPDX-License-Identifier: MIT
#include "machine/packages/package_backup.hpp"

#include <sys/stat.h>

#include <filesystem>

#include "base/action.hpp"
#include "base/sha256.hpp"
#include "catch.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/driver/driver_pins.hpp"
#include "machine/packages/apt.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kWayBack;
extern const Probe kPackagedDriver;
extern const Probe kDriverPins;
extern const Action kPackagedDriverAction;
extern const Action kDriverPinsAction;
extern const Action kWayBackAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const Parameters kWith = {{"entry", "test/main"}};
const std::string kLibc = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n\n";
const std::string kDeb = "not really one";

std::string cuda(const std::string& status = "install ok installed") {
  return "Package: libcuda1\nStatus: " + status + "\nArchitecture: amd64\nVersion: 570.1-1\n\n";
}

struct Machine : test::MadeTree {
  Machine() { status(kLibc + cuda()); }
  void status(const std::string& text) const { put("var/lib/dpkg/status", text); }
  /// libcuda1 with its .deb, and one configuration file.
  void stage() const {
    PackageBackup way;
    way.packages.push_back(
        {{"libcuda1", "amd64", "570.1-1"}, "libcuda1_570.1-1_amd64.deb", sha256_of(kDeb), "cache", true, false});
    way.kept = {"/etc/nvidia/options.conf"};
    way.modules = {"nvidia-current"};
    put("var/lib/p2pd/way-back/debs/libcuda1_570.1-1_amd64.deb", kDeb);
    put("var/lib/p2pd/way-back/kept/etc/nvidia/options.conf", "options\n");
    put("var/lib/p2pd/way-back/manifest.json", to_json_text(way));
  }
  Finding look(const Probe& probe, const Parameters& with = kWith) const { return probe.check(host, with).value(); }
};

}  // namespace

TEST_CASE("way-back: complete, or the package that lacks is named") {
  Machine machine;
  const auto lacks = [&](const std::string& what) {
    const Finding finding = machine.look(kWayBack);
    INFO(finding.summary);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.summary.find(what) != std::string::npos);
  };
  CHECK(machine.look(kWayBack, {{"entry", "none"}}).verdict == Verdict::not_applicable);
  lacks("none of them is staged");
  machine.stage();
  CHECK(machine.look(kWayBack).verdict == Verdict::pass);
  machine.status(kLibc + cuda() +
                 "Package: nvidia-smi\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n");
  lacks("nvidia-smi:amd64 1 is not staged");
  machine.status(kLibc + cuda());
  machine.put("var/lib/p2pd/way-back/debs/libcuda1_570.1-1_amd64.deb", "another");
  lacks("libcuda1:amd64");
  fs::remove(machine.directory / "var/lib/p2pd/way-back/debs/libcuda1_570.1-1_amd64.deb");
  lacks("libcuda1:amd64");
  for (const char* manifest : {"", "{", "[]", "{\"packages\": [{}]}", "{\"packages\": []}"}) {
    machine.put("var/lib/p2pd/way-back/manifest.json", manifest);
    lacks("manifest.json is damaged");
  }
  machine.status(kLibc);
  CHECK(machine.look(kWayBack).verdict == Verdict::pass);
}

TEST_CASE("packaged-driver: installed, purged, interrupted") {
  Machine machine;
  CHECK(machine.look(kPackagedDriver).summary == "1 packages belong to a driver");
  machine.status(kLibc + cuda("deinstall ok config-files"));
  CHECK(machine.look(kPackagedDriver).verdict == Verdict::pass);  // configuration alone brings no driver
  machine.stage();
  machine.put("var/lib/p2pd/way-back/purging", "");
  CHECK(machine.look(kPackagedDriver).verdict == Verdict::fail);  // but an interrupted purge is finished
  machine.status(kLibc);
  CHECK(machine.look(kPackagedDriver).summary == "a purge was interrupted at its end");
  const std::string left = "lib/modules/6.1/updates/dkms/nvidia-current.ko";  // a dkms was killed, too
  machine.put(left, "x");
  for (const char* usr : {"/", "/usr/"}) machine.runner.on("dpkg-query --search " + (usr + left), "", 1);
  CHECK(kPackagedDriverAction.apply(machine.host, kWith));
  CHECK_FALSE(fs::exists(machine.directory / left));
  CHECK(machine.look(kPackagedDriver).verdict == Verdict::pass);
}

TEST_CASE("packaged-driver: nothing is purged where apt would do more, or less, or not all could come back") {
  Machine machine;
  CHECK(kPackagedDriverAction.apply(machine.host, kWith).error().message.find("none of them is staged") !=
        std::string::npos);
  machine.stage();
  for (const auto& [said, wanted] :
       {std::pair{"Purg libcuda1 [1]\nPurg blender [1]\n", "apt would also remove blender"},
        {"Purg libcuda1 [1]\nInst other (1 x)\n", "apt would also install other"},
        {"", "apt refuses to remove libcuda1:amd64"}}) {
    Command purge = apt_get({"--allow-change-held-packages", "--no-install-recommends", "purge", "libcuda1:amd64"});
    purge.argv.insert(purge.argv.begin() + 1, "--simulate");
    machine.runner.on(purge.text(), said);
    const auto done = kPackagedDriverAction.apply(machine.host, kWith);
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(done.error().message.find(wanted) != std::string::npos);
  }
  CHECK(machine.runner.unexpected.empty());
  CHECK_FALSE(fs::exists(machine.directory / "var/lib/p2pd/way-back/purging"));
}

TEST_CASE("apt: an interrupted dpkg is repaired, in order, and a sound one left alone") {
  Machine machine;
  CHECK(repair_packages(machine.host, {}));
  CHECK(machine.runner.ran.empty());
  machine.status(kLibc + cuda("install reinstreq half-installed"));
  for (const Command& command :
       {dpkg({"--unpack", "/a.deb"}), dpkg({"--configure", "-a"}), apt_get({"--fix-broken", "install"})})
    machine.runner.on(command.text());
  CHECK(repair_packages(machine.host, {{"libcuda1:amd64", "/a.deb"}}));
  REQUIRE(machine.runner.ran.size() == 3);
  CHECK(machine.runner.ran[0] == dpkg({"--unpack", "/a.deb"}).text());
  CHECK(machine.runner.ran[2] == apt_get({"--fix-broken", "install"}).text());
  machine.put("var/lib/dpkg/updates/0007", "");  // the interrupted package is in no status yet
  CHECK(repair_packages(machine.host, {{"libcuda1:amd64", "/a.deb"}}));
  REQUIRE(machine.runner.ran.size() == 7);
  CHECK(machine.runner.ran[3] == dpkg({"--configure", "-a"}).text());
  CHECK(machine.runner.ran[4] == dpkg({"--unpack", "/a.deb"}).text());
  machine.runner.on(apt_get({"--fix-broken", "install"}).text(), "", 100, "E: no");
  CHECK(repair_packages(machine.host, {}).error().next.find("dpkg --configure -a") != std::string::npos);
}

TEST_CASE("package locks: who holds one is named once patience ends") {
  Machine machine;
  CHECK(wait_for_package_locks(machine.host, std::chrono::seconds(0)));  // a record without a table of locks
  machine.put("var/lib/dpkg/lock-frontend", "");
  struct stat info {};
  REQUIRE(::stat((machine.directory / "var/lib/dpkg/lock-frontend").c_str(), &info) == 0);
  machine.put("proc/locks", "1: POSIX  ADVISORY  WRITE 4711 00:00:" + std::to_string(info.st_ino) + " 0 EOF\n");
  machine.put("proc/4711/comm", "apt-get\n");
  const auto waited = wait_for_package_locks(machine.host, std::chrono::seconds(0));
  REQUIRE_FALSE(waited);
  CHECK(waited.error().code == ErrorCode::busy);
  CHECK(waited.error().message.find("process 4711 apt-get holds /var/lib/dpkg/lock-frontend") != std::string::npos);
}

TEST_CASE("driver-pins: written, seen, and not overruled") {
  Machine machine;
  CHECK(machine.look(kDriverPins).verdict == Verdict::fail);
  CHECK(kDriverPinsAction.describe(machine.host, kWith)->files.size() == 2);
  CHECK(kDriverPinsAction.apply(machine.host, kWith));
  CHECK(machine.look(kDriverPins).verdict == Verdict::pass);
  CHECK(kDriverPinsAction.describe(machine.host, kWith)->files.empty());
  machine.put("etc/apt/apt.conf.d/99mine", "#clear Unattended-Upgrade::Package-Blacklist;\n");
  CHECK(machine.look(kDriverPins).summary == "unattended-upgrades may install another driver");
  fs::remove(machine.directory / "etc/apt/apt.conf.d/99mine");
  machine.put("etc/apt/preferences", "Package: firefox nvidia-driver-570\nPin: version 570.*\nPin-Priority: 1001");
  CHECK(machine.look(kDriverPins).verdict == Verdict::fail);
  CHECK_FALSE(kDriverPinsAction.apply(machine.host, kWith));
  machine.put("etc/apt/preferences", "Package: nvidia-*\nPin: version *\nPin-Priority: -10\n");
  CHECK(machine.look(kDriverPins).verdict == Verdict::pass);
  machine.put("etc/apt/apt.conf.d/52p2pd-driver", "// mine\n");
  CHECK(kDriverPinsAction.apply(machine.host, kWith).error().message ==
        "/etc/apt/apt.conf.d/52p2pd-driver is in the way: p2pd did not write it");
  fs::remove(machine.directory / "var/lib/dpkg/status");
  CHECK(machine.look(kDriverPins).verdict == Verdict::not_applicable);
}

TEST_CASE(
    "way-back: what an earlier run had staged comes back with its own undo, over a kill, and is removed by none") {
  Machine machine;
  const std::string kept = "var/lib/p2pd/way-back-before/0/", place = "var/lib/p2pd/way-back/manifest.json";
  const auto there = [&](const std::string& name) { return fs::exists(machine.directory / name); };
  machine.put(place, "of this run");
  SECTION("an earlier one") {
    machine.put(kept + "way-back/manifest.json", "of the run before");
    for (int times = 0; times < 2; ++times) {
      REQUIRE(kWayBackAction.undo(machine.host, kWith));
      CHECK(machine.host.files().read("/" + place).value() == "of the run before");
    }
  }
  SECTION("none") {
    machine.put(kept + "none", "");
    for (int times = 0; times < 2; ++times) {
      REQUIRE(kWayBackAction.undo(machine.host, kWith));
      CHECK_FALSE(there(place));
    }
  }
  SECTION("of an older p2pd, which the engine removes") {
    REQUIRE(kWayBackAction.undo(machine.host, kWith));
    CHECK(there(place));
  }
  CHECK_FALSE(there(kept + "way-back"));
}
