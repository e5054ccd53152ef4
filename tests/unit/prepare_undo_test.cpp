// SPDX-License-Identifier: MIT
// Before the first undo of a rollback, each change makes sure that its undo can succeed.
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "actions/registry.hpp"
#include "base/sha256.hpp"
#include "grub_machine.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/package_backup.hpp"
#include "staged.hpp"
#include "toolkit_machine.hpp"

namespace p2pd {
extern const Action kDefaultKernelAction;
extern const Action kDriverModulesAction;
extern const Action kDriverUpdateAction;
extern const Action kDriverUserspaceAction;
extern const Action kInitramfsAction;
extern const Action kPackagedDriverAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

using Words = std::vector<std::string>;

const std::string kBackup = "var/lib/p2pd/way-back", kDebs = kBackup + "/debs/";
const std::string kCuda = "libcuda1_570.1-1_amd64.deb", kDkms = "nvidia-kernel-dkms_570.1-1_amd64.deb";
const std::string kConf = "etc/nvidia/options.conf", kUnits = "dpkg-query --listfiles libcuda1:amd64";
constexpr std::uintmax_t kHuge = std::uintmax_t{8} << 40;  // more than a test's disk has

/// What a rollback does before it undoes anything.
Result<void> prepare(const Action& action, Host& host, const Parameters& with = {{"entry", "test/main"}}) {
  return action.prepare_undo == nullptr ? Result<void>() : action.prepare_undo(host, with);
}

void hold_lock(const MadeTree& machine) {
  machine.put("var/lib/dpkg/lock-frontend", "");
  struct stat info {};
  REQUIRE(::stat((machine.directory / "var/lib/dpkg/lock-frontend").c_str(), &info) == 0);
  machine.put("proc/locks", fmt::format("1: POSIX  ADVISORY  WRITE 4711 00:00:{} 0 EOF\n", info.st_ino));
  machine.put("proc/4711/comm", "apt-get\n");
}

void need_busy(const Result<void>& done) {
  REQUIRE_FALSE(done);
  CHECK(done.error().code == ErrorCode::busy);
  CHECK(done.error().message == "packages are being installed: process 4711 apt-get holds /var/lib/dpkg/lock-frontend");
}

struct ChangeOf : ChangeRecorder {
  Result<void> before_change(std::string_view, Restore) override { return {}; }
  std::string change() const override { return name; }
  std::string name = "0";
};

/// A machine whose driver's packages p2pd has purged, after it made a backup of them.
struct Purged : MadeTree {
  Purged() {
    status();
    way.packages = {{{"libcuda1", "amd64", "570.1-1"}, kCuda, sha256_of("cuda"), "archive", true, false},
                    {{"nvidia-kernel-dkms", "amd64", "570.1-1"}, kDkms, sha256_of("dkms"), "rebuilt", false, true}};
    way.kept = {"/" + kConf};
    back_up();
    put(kConf, "options\n");
    put("usr/lib/.keep", "");
    put("boot/vmlinuz-6.1.0-1-amd64", "");
    put("boot/initrd.img-6.1.0-1-amd64", "");
    for (const std::string& name : {kCuda, kDkms})
      runner.on("dpkg-deb --field /" + kDebs + name + " Installed-Size", "1024\n");
    runner.on("apt-mark auto libcuda1:amd64").on("apt-mark hold nvidia-kernel-dkms:amd64");
    for (const Words& names : {Words{kCuda, kDkms}, {kCuda}, {kDkms}})
      apt(names, [this] { status("570.1-1", "570.1-1"); });
  }
  void back_up(const std::string& at = kBackup) const {
    put(at + "/debs/" + kCuda, "cuda");
    put(at + "/debs/" + kDkms, "dkms");
    put(at + "/kept/" + kConf, "options\n");
    put(at + "/manifest.json", to_json_text(way));
  }
  /// Versions that are installed; empty: none.
  void status(const std::string& cuda = {}, const std::string& dkms = {}) const {
    std::string text = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n\n";
    for (const auto& [name, version] : {std::pair{"libcuda1", cuda}, {"nvidia-kernel-dkms", dkms}})
      if (!version.empty())
        text += fmt::format("Package: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}\n\n", name,
                            version);
    put("var/lib/dpkg/status", text);
  }
  Command install(const Words& names) const {
    PackageBackup these = way;
    std::erase_if(these.packages, [&](const auto& one) { return std::ranges::find(names, one.deb) == names.end(); });
    return install_from(these);
  }
  void apt(const Words& names, const std::function<void()>& does) {
    runner.on(simulation(names)).on(install(names).text(), [does](const Command&) {
      does();
      return Result<CommandResult>(CommandResult{});
    });
  }
  std::string simulation(const Words& names) const {
    Command command = install(names);
    command.argv.insert(command.argv.begin() + 1, "--simulate");
    return command.text();
  }
  /// Sets what apt's lists have of libcuda1, and what a download of it yields; "": no network.
  void archive(const std::string& listed, const std::string& yields) {
    const std::string id = "libcuda1:amd64=570.1-1", downloads = "var/cache/p2pd/.debs.new";
    runner.on("apt-cache show " + id,
              fmt::format("Package: libcuda1\nVersion: 570.1-1\nArchitecture: amd64\nSHA256: {}\n", sha256_of(listed)));
    runner.on("chown _apt /" + downloads);
    Command get = apt_get({"download", id});
    get.argv.insert(get.argv.begin(), {"env", "--chdir=/" + downloads});
    runner.on(get.text(), [=, this](const Command&) {
      if (!yields.empty()) put(downloads + "/" + kCuda, yields);
      return Result<CommandResult>(CommandResult{yields.empty() ? 100 : 0, "", "E: no network"});
    });
    runner.on(fmt::format("cp --no-dereference --reflink=auto -- /{0}/{1} /{2}/.debs.new", downloads, kCuda, kBackup),
              [=, this](const Command&) {
                put(kBackup + "/.debs.new/" + kCuda, yields);
                return Result<CommandResult>(CommandResult{});
              });
  }
  std::string text(const std::string& path) const { return host.files().read("/" + path).value_or("absent"); }
  std::string last() const { return runner.ran.empty() ? "nothing" : runner.ran.back(); }
  long ran(const std::string& text) const { return std::ranges::count(runner.ran, text); }
  bool changed_packages() const {
    return std::ranges::any_of(runner.ran, [](const std::string& text) {
      return text.find(" install ") != text.npos && text.find("--simulate") == text.npos;
    });
  }
  /// Checks that a rollback is refused, with these texts, and that no package was changed.
  void refused(const std::string& message, const std::string& next = {}) {
    const auto done = prepare(kPackagedDriverAction, host);
    REQUIRE_FALSE(done);
    INFO(done.error().text());
    CHECK(done.error().message.find(message) != std::string::npos);
    CHECK(done.error().next.find(next) != std::string::npos);
    CHECK_FALSE(changed_packages());
  }

  PackageBackup way;
  ChangeOf recorder;
  Host host{Root::open(directory.path()).value(), runner, &recorder};
};

}  // namespace

TEST_CASE("prepare undo: each fix whose undo can fail for a reason that can be known before looks first") {
  const std::map<std::string, std::string> none = {
      {"acs-redirection", "writes registers of the running machine"},
      {"modules-load", "unloads, or leaves the modules to the reboot"},
      {"modules-unload", "loads the driver that is there by then, or leaves it to the reboot"},
      {"persistenced", "stops a unit"},
      {"way-back", "renames a directory"},
  };
  for (const Action& action : actions()) {
    INFO(action.id);
    if (action.undo == nullptr)
      CHECK(action.prepare_undo == nullptr);  // the engine restores files, and looks at what they need
    else
      CHECK((action.prepare_undo == nullptr) == none.contains(std::string(action.id)));
  }
}

TEST_CASE("prepare undo: packages that are as they were staged can come back, and nothing is changed by looking") {
  Purged machine;
  REQUIRE(prepare(kPackagedDriverAction, machine.host));
  CHECK(machine.last() == machine.simulation({kCuda, kDkms}));
  CHECK_FALSE(machine.changed_packages());
  REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
  CHECK(machine.ran(machine.install({kCuda, kDkms}).text()) == 1);
  CHECK(machine.ran("apt-mark hold nvidia-kernel-dkms:amd64") == 1);
  REQUIRE(prepare(kPackagedDriverAction, machine.host));  // after a kill at the end of undo
  REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
  CHECK(machine.ran(machine.install({kCuda, kDkms}).text()) == 1);
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: a damaged .deb that no archive has is named, with what to do") {
  Purged machine;
  machine.archive("cuda", "");
  SECTION("damaged, without network") {
    machine.put(kDebs + kCuda, "damaged");
    machine.refused("/" + kDebs + kCuda + " is damaged, and libcuda1:amd64 570.1-1 cannot be fetched again",
                    "put a file with the SHA-256 " + sha256_of("cuda") + " there, or install libcuda1 by apt");
  }
  SECTION("missing, and the archives have another file of this version") {
    machine.archive("another", "another");
    fs::remove(machine.directory / (kDebs + kCuda));
    machine.refused("/" + kDebs + kCuda + " is missing, and libcuda1:amd64 570.1-1 cannot be fetched again");
  }
  SECTION("the archive sends a wrong file") {
    machine.archive("cuda", "wrong");
    machine.put(kDebs + kCuda, "damaged");
    machine.refused("cannot be fetched again");
    CHECK(machine.text(kDebs + kCuda) == "damaged");
  }
  SECTION("built from installed files") {
    machine.runner.on("apt-cache show nvidia-kernel-dkms:amd64=570.1-1", "", 100);
    machine.put(kDebs + kDkms, "damaged");
    machine.refused("nvidia-kernel-dkms:amd64 570.1-1 was built from installed files: no archive has it");
  }
  CHECK_FALSE(fs::exists(machine.directory / (kBackup + "/.debs.new")));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: a lost .deb is fetched again") {
  Purged machine;
  const std::string cached = "/var/cache/apt/archives/" + kCuda;
  SECTION("from the archives") {
    machine.archive("cuda", "cuda");
    machine.put(kDebs + kCuda, "damaged");
  }
  SECTION("from apt's cache, with the whole directory lost but one file") {
    machine.runner.on("apt-cache show libcuda1:amd64=570.1-1", "", 100);
    machine.put(cached, "cuda");
    fs::remove(machine.directory / (kDebs + kCuda));
    machine.runner.on("cp --reflink=auto " + cached + " /" + kBackup + "/.debs.new", [&](const Command&) {
      machine.put(kBackup + "/.debs.new/" + kCuda, "cuda");
      return Result<CommandResult>(CommandResult{});
    });
  }
  REQUIRE(prepare(kPackagedDriverAction, machine.host));
  CHECK(machine.text(kDebs + kCuda) == "cuda");
  CHECK_FALSE(fs::exists(machine.directory / (kBackup + "/.debs.new")));
  CHECK_FALSE(machine.changed_packages());
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: packages that a person has installed meanwhile count as restored") {
  Purged machine;
  fs::remove(machine.directory / (kDebs + kCuda));  // not needed any more
  SECTION("one at a newer version, whose configuration and marks stay") {
    machine.status("580.1-1");
    machine.runner.on(kUnits, "/.\n/" + kConf + "\n/usr/lib/libcuda.so.1\n");
    machine.put(kConf, "mine\n");
    fs::remove(machine.directory / (kBackup + "/kept/" + kConf));
    machine.apt({kDkms}, [&] { machine.status("580.1-1", "570.1-1"); });
    REQUIRE(prepare(kPackagedDriverAction, machine.host));
    REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
    CHECK(machine.ran(machine.install({kDkms}).text()) == 1);
    CHECK(machine.ran("apt-mark auto libcuda1:amd64") == 0);
    CHECK(machine.text(kConf) == "mine\n");
  }
  SECTION("all of them: apt has nothing to do") {
    machine.status("570.1-1", "570.1-1");
    REQUIRE(prepare(kPackagedDriverAction, machine.host));
    REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
    CHECK_FALSE(machine.changed_packages());
  }
  SECTION("the rest does not fit beside it") {
    machine.status("580.1-1");
    machine.runner.on(kUnits, "/.\n");
    machine.runner.on(machine.simulation({kDkms}), "", 100, "nvidia-kernel-dkms : Depends: libcuda1 (= 570.1-1)");
    machine.refused("apt refuses to install the driver's packages again",
                    "Install these packages by apt, at any version");
  }
  SECTION("a half-done undo is continued") {
    machine.status("570.1-1");
    REQUIRE(prepare(kPackagedDriverAction, machine.host));
    REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
    CHECK(machine.ran(machine.install({kDkms}).text()) == 1);
    CHECK(machine.ran("apt-mark auto libcuda1:amd64") == 1);
  }
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: an undo that dpkg was killed in is finished, also before it is simulated") {
  Purged machine;
  machine.put("var/lib/dpkg/status",
              "Package: libcuda1\nStatus: install reinstreq half-installed\nArchitecture: amd64\nVersion: 570.1-1\n\n");
  machine.runner.on(dpkg({"--unpack", "/" + kDebs + kCuda}).text());
  machine.runner.on(dpkg({"--configure", "-a"}).text(), [&](const Command&) {
    machine.status("570.1-1");
    return Result<CommandResult>(CommandResult{});
  });
  machine.runner.on(apt_get({"--fix-broken", "install"}).text());
  REQUIRE(prepare(kPackagedDriverAction, machine.host));
  CHECK(machine.last() == machine.simulation({kDkms}));
  REQUIRE(kPackagedDriverAction.undo(machine.host, {}));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: locks, room and kept files of the packages") {
  Purged machine;
  SECTION("a held lock is waited for by the engine, not here") {
    hold_lock(machine);
    need_busy(prepare(kPackagedDriverAction, machine.host));
    need_busy(prepare(kDriverUpdateAction, machine.host));
  }
  SECTION("/boot is full") {
    fs::resize_file(machine.directory / "boot/initrd.img-6.1.0-1-amd64", kHuge);
    machine.refused("/boot has ", "Make room there");
  }
  SECTION("/usr is full, unless the undo of a runfile makes room") {
    machine.runner.on("dpkg-deb --field /" + kDebs + kDkms + " Installed-Size", fmt::format("{}\n", kHuge >> 10));
    machine.refused(" MiB free, and ", "Make room there");
    machine.put("var/lib/nvidia/log", "9.9.9\nx\n1: /usr/lib/libcuda.so.9.9.9\n1\n");
    machine.put("usr/lib/libcuda.so.9.9.9", "");
    fs::resize_file(machine.directory / "usr/lib/libcuda.so.9.9.9", kHuge);
    CHECK(prepare(kPackagedDriverAction, machine.host));
  }
  SECTION("configuration is missing") {
    fs::remove(machine.directory / (kBackup + "/kept/" + kConf));
    machine.refused("/" + kBackup + "/kept/" + kConf + " is missing", "Put the file there that /" + kConf);
  }
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: without a readable backup the driver that a person installed suffices") {
  Purged machine;
  machine.put(kBackup + "/manifest.json", "{");
  machine.refused("manifest.json is damaged", "install a driver's packages by apt, and remove /" + kBackup);
  machine.status("580.1-1");
  machine.refused("manifest.json is damaged");
  fs::remove_all(machine.directory / kBackup);
  CHECK(prepare(kPackagedDriverAction, machine.host));
  CHECK(kPackagedDriverAction.undo(machine.host, {}));
  machine.status();
  machine.refused("the packages of the driver cannot be installed again");
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: each run has its own backup, also one that a newer run has moved") {
  Purged machine;
  const std::string moved = "var/lib/p2pd/way-back-before/2-way-back/way-back";
  machine.back_up(moved);
  machine.put(kBackup + "/manifest.json", "{");  // of run 2
  machine.way.directory = "/" + moved;
  for (const std::string& name : {kCuda, kDkms})
    machine.runner.on("dpkg-deb --field /" + moved + "/debs/" + name + " Installed-Size", "1024\n");
  machine.runner.on(machine.simulation({kCuda, kDkms}));
  machine.recorder.name = "2-purge";
  machine.refused("manifest.json is damaged");
  machine.recorder.name = "1-purge";
  CHECK(prepare(kPackagedDriverAction, machine.host));
  CHECK(machine.last() == machine.simulation({kCuda, kDkms}));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: packages of an update go back to the old version") {
  Purged machine;
  machine.status("580.1-1", "570.1-1");
  REQUIRE(prepare(kDriverUpdateAction, machine.host));
  CHECK(machine.last() == machine.simulation({kCuda}));
  REQUIRE(kDriverUpdateAction.undo(machine.host, {}));
  CHECK(machine.ran(machine.install({kCuda}).text()) == 1);
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: packages of a fix can be removed once newer ones are") {
  ToolkitMachine machine;
  REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
  const Words remove = {"--allow-change-held-packages", "--no-install-recommends", "remove",    "cuda-config",
                        "cuda-nvcc-12-8:amd64",         "cuda-toolkit-12-8:amd64", "zlib:amd64"};
  const std::string all = "Remv cuda-config\nRemv cuda-nvcc-12-8\nRemv cuda-toolkit-12-8\nRemv zlib\n";
  machine.apt(remove, all + "Remv g++\n", [] { FAIL("it removed them"); });
  const auto done = prepare(kCudaToolkitAction, machine.host, kWith);
  REQUIRE_FALSE(done);
  CHECK(done.error().message == "taking packages away: apt would also remove g++");
  machine.put("var/lib/p2pd/build-tools.d/7-tools/packages", "purge g++\n");
  CHECK(prepare(kCudaToolkitAction, machine.host, kWith));
  hold_lock(machine);
  need_busy(prepare(kCudaToolkitAction, machine.host, kWith));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("prepare undo: room in /boot for each initramfs") {
  MadeTree machine;
  const std::string kept = "var/lib/p2pd/initramfs/0/6.1.0-1-amd64", image = "boot/initrd.img-6.1.0-1-amd64";
  machine.put(kept, "");
  machine.put(kept + ".ours", "/" + image + "\n" + sha256_of("ours") + "\n");
  machine.put(image, "ours");
  machine.put("boot/vmlinuz-6.1.0-1-amd64", "");
  CHECK(prepare(kInitramfsAction, machine.host));
  fs::resize_file(machine.directory / kept, kHuge);
  CHECK(prepare(kInitramfsAction, machine.host).error().message.find("/boot has ") == 0);
  fs::remove(machine.directory / "boot/vmlinuz-6.1.0-1-amd64");
  CHECK(prepare(kInitramfsAction, machine.host));  // a removed kernel needs none
}

TEST_CASE("prepare undo: archives of the driver before") {
  MadeTree machine;
  const std::string tar = "/var/lib/p2pd/before-modules/0/modules.tar";
  CHECK(prepare(kDriverModulesAction, machine.host));
  machine.put(tar.substr(1), "x");
  machine.runner.on("tar --list --file=" + tar);
  CHECK(prepare(kDriverModulesAction, machine.host));
  machine.runner.on("tar --list --file=" + tar, "", 2, "tar: Unexpected EOF in archive");
  const auto done = prepare(kDriverModulesAction, machine.host);
  CHECK(done.error().message.find(tar + " is damaged: ") == 0);
  CHECK(done.error().next.find("\"tar -cf " + tar + " -T /dev/null\"") != std::string::npos);
}

TEST_CASE("prepare undo: a program that removes the user space of a runfile") {
  Staged machine;
  const std::string runfile = "var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-9.9.9.run",
                    place = "var/lib/p2pd/before-runfile/0/";
  machine.release()["runfile"]["sha256"] = sha256_of("runfile");
  machine.file("usr/lib/.keep", "");
  Host host = machine.host();
  const auto look = [&] { return prepare(kDriverUserspaceAction, host, machine.with); };
  CHECK(look());  // it was not begun
  machine.file(place + "coming", "9.9.9\n");
  CHECK(look());  // it is already removed
  machine.file("var/lib/nvidia/log", "9.9.9\nx\n");
  CHECK(look().error().message == "/" + runfile + ", which removes the user space of 9.9.9, is damaged or missing");
  machine.file(runfile, "damaged");
  CHECK_FALSE(look());
  machine.file(runfile, "runfile");
  CHECK(look());
  machine.file(runfile, "damaged");
  machine.file("usr/bin/nvidia-uninstall", "");
  CHECK(look());
  machine.file("var/lib/p2pd/before-runfile/installing", "");
  CHECK_FALSE(look());
  machine.file(runfile, "runfile");
  CHECK(look());
  machine.file(place + "9.9.8.tar", "no archive");
  CHECK(look().error().message.find("/" + place + "9.9.8.tar is damaged") == 0);
}

TEST_CASE("prepare undo: grub.cfg can be generated where it has to be") {
  GrubMachine machine;
  GrubSession session(machine, false);
  const auto look = [&](const Action& action) { return prepare(action, *session.host, kPt); };
  machine.runner.on("grub-mkconfig", "", 1, "/etc/grub.d/10_linux: syntax error");
  CHECK(look(kKernelCmdlineAction));  // it has none of the arguments
  machine.put(kConfig, with(kDebianGrub, "115200 quiet", "115200 quiet iommu=pt"));
  const auto done = look(kKernelCmdlineAction);
  REQUIRE_FALSE(done);
  CHECK(done.error().message.find("10_linux: syntax error") != std::string::npos);
  CHECK(look(kDefaultKernelAction));
  machine.put(kConfig, with(kDebianGrub, "set default=\"0\"",
                            "set default=\"gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503\""));
  CHECK_FALSE(look(kDefaultKernelAction));
  machine.runner.on("grub-mkconfig", kDebianGrub);
  CHECK(look(kDefaultKernelAction));
}
