// SPDX-License-Identifier: MIT
#include "machine/modules/module_install.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "catch.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/modules/module_signing.hpp"
#include "made_module.hpp"
#include "made_tree.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kPlace[] = "lib/modules/6.1.0-1-amd64/";
constexpr char kFile[] = "/lib/modules/6.1.0-1-amd64/updates/nvidia.ko";

CatalogueEntry entry() {
  CatalogueEntry out;
  out.id = "test/main";
  out.commit = std::string(40, '1');
  out.base_version = "9.9.9";
  out.kernel_min = Version{5, 13};
  out.compat = {"known", "unknown", "lost", "gone"};
  return out;
}

Catalogue all() {
  Catalogue out;
  out.compat_rules["known"] = {"include/linux/pci.h", "it's", "known.h", ""};
  out.compat_rules["unknown"] = {"include/linux/mm.h", "gone", "", ""};
  out.compat_rules["lost"] = {"include/linux/string.h", "lost", "lost.h", "", true};
  out.compat_rules["gone"] = {"include/linux/old.h", "old", "linux/old.h", "", true};
  out.kernels[Version{9, 9, 9}] = {{"9.9.9", "6.13.1", {6, 13, 1}, {}, "x.c:1: error: no"}};
  return out;
}

struct World : MadeTree {
  void owners(const std::string& file, const std::string& package = {}) {
    for (const std::string& path : {file, "/usr" + file})
      runner.on("dpkg-query --search " + path, package.empty() ? "" : package + ": " + path + "\n",
                package.empty() ? 1 : 0);
  }
};

/// Output of a shell command; "failed" if it fails.
std::string shell(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  return ::pclose(pipe) == 0 ? out : "failed";
}

/// A running machine with p2pd's modules in updates/p2pd, and with a key for signing modules.
struct SigningMachine : MadeTree {
  SigningMachine() {
    nlohmann::json record = {{"made_of", {{"release", "9.9.9"}, {"commit", entry().commit}}}};
    std::string dep;
    for (const std::string_view module : kModuleNames) {
      put(file(module), MadeModule{.srcversion = "AAAA", .release = "6.1.0-1-amd64"}.bytes());
      record["modules"][module] = {{"srcversion", "AAAA"}};
      dep += fmt::format("updates/p2pd/{}.ko:\n", module);
    }
    put(std::string(kPlace) + "updates/p2pd/build.json", record.dump());
    put(std::string(kPlace) + "modules.dep", dep);
    make_key("var/lib/dkms/mok");
  }
  static std::string file(std::string_view module) { return fmt::format("{}updates/p2pd/{}.ko", kPlace, module); }
  void refuses(bool refuses) const {
    put("sys/kernel/security/lockdown", refuses ? "none [integrity]\n" : "[none] integrity\n");
    put(efi_variable_path("SecureBoot", kEfiGlobal), std::string("\x06\0\0\0", 4) + (refuses ? '\1' : '\0'));
  }
  void make_key(const std::string& name) const {
    put(name + ".key", "");
    const std::string path = (directory / name).string();
    REQUIRE(shell("openssl req -new -x509 -newkey rsa:2048 -nodes -subj /CN=a/ -outform DER -keyout " + path +
                  ".key -out " + path + ".pub 2>&1 && openssl x509 -inform DER -in " + path + ".pub -out " + path +
                  ".pem") != "failed");
  }
  void enrol(const std::string& name) const {
    const std::string certificate = shell("cat " + (directory / (name + ".pub")).string());
    put(efi_variable_path("MokListRT", kEfiShim), std::string("\x06\0\0\0", 4) + "header" + certificate);
  }
  /// Signs every module as scripts/sign-file of Linux does.
  void sign(const std::string& name) const {
    const std::string key = (directory / name).string();
    for (const std::string_view module : kModuleNames) {
      const std::string path = (directory / file(module)).string();
      const std::string signature =
          shell("openssl cms -sign -binary -noattr -nocerts -outform DER -md sha256 -signer " + key + ".pem -inkey " +
                key + ".key -in " + path);
      REQUIRE(signature != "failed");
      std::string end(12, '\0');  // struct module_signature
      end[2] = 2;                 // PKCS#7
      end[10] = static_cast<char>(signature.size() / 256);
      end[11] = static_cast<char>(signature.size() % 256);
      std::ofstream(path, std::ios::binary | std::ios::app) << signature << end << "~Module signature appended~\n";
    }
  }
  /// Reason why the modules are not installed; "refused: ..." if for want of a signature.
  std::string lacking() {
    for (const std::string_view module : kModuleNames)
      runner.on(fmt::format("modinfo -F sig_key /{}", file(module)),
                shell("modinfo -F sig_key " + (directory / file(module)).string()));
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {  // only below a root of its own a host is a running one that opens its modules by their names
      fs::create_directory(directory / "proc");
      if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("/proc", (directory / "proc").c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0 ||
          ::chroot(directory.path().c_str()) != 0 || ::chdir("/") != 0)
        ::_exit(1);
      const Host live(Root::open("/").value(), runner);
      const auto found = installed_modules(live, entry(), "6.1.0-1-amd64", false);
      const std::string text = !found ? found.error().text() : (found->refused ? "refused: " : "") + found->lacking;
      ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
    }
    ::close(ends[1]);
    std::string text(4096, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], text.data(), text.size()), 0)));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    return text;
  }
};

}  // namespace

TEST_CASE("dkms: what is handed to it is sound shell, and says what fits") {
  const std::string script = dkms_build_script(all(), entry()), conf = dkms_conf(entry());
  for (const std::string& text : {script, conf}) {
    TemporaryDirectory directory;
    std::ofstream(directory.path() / "text") << text;
    CHECK(std::system(("sh -n " + (directory.path() / "text").string()).c_str()) == 0);
    CHECK(text.find('@') == std::string::npos);
  }
  CHECK(script.find("    at_least 5.13 || return 1\n    ! at_least 6.13 || return 1\n") != std::string::npos);
  CHECK(script.find("holds 'include/linux/pci.h' 'it'\\''s'; then flags=\"$flags -include $here/compat/known.h\"") !=
        std::string::npos);
  CHECK(script.find("    flags=\"-I $here/compat\"\n") != std::string::npos);
  CHECK(script.find("if ! holds 'include/linux/string.h' 'lost'; then flags=\"$flags -include $here/compat/lost.h\"") !=
        std::string::npos);
  CHECK(script.find("old.h") == std::string::npos);
  CHECK(script.find("holds 'include/linux/mm.h' 'gone'; then return 1; fi") != std::string::npos);
  CHECK(conf.find("PACKAGE_NAME=\"p2pd-nvidia\"\nPACKAGE_VERSION=\"9.9.9\"\n") != std::string::npos);
}

TEST_CASE("modules: a file that a power cut left half is not installed") {
  World world;
  const std::string built = "9.9.9/6.1.0-1-amd64/x86_64", dkms = "var/lib/dkms/p2pd-nvidia/";
  world.put(dkms_source(entry()).substr(1) + "/dkms.conf", dkms_conf(entry()));
  for (const std::string_view module : kModuleNames)
    world.put(fmt::format("{}{}/module/{}.ko", dkms, built, module), std::string("\x7f") + "ELF\x02");
  fs::create_directory_symlink(built, world.directory / (dkms + "kernel-6.1.0-1-amd64-x86_64"));
  const auto found = installed_modules(world.host, entry(), "6.1.0-1-amd64", true);
  REQUIRE(found);
  CHECK(found->lacking ==
        "/var/lib/dkms/p2pd-nvidia/9.9.9/6.1.0-1-amd64/x86_64/module/nvidia.ko: the file is truncated");
}

TEST_CASE("modules: what p2pd installed is of a release and a patch, by DKMS or beside its modules") {
  World world;
  const std::string beside = std::string(kPlace) + "updates/p2pd/build.json";
  CHECK_FALSE(installed_build(world.host));
  world.put(beside,
            R"({"made_of": {"release": "9.9.8", "commit": "2222"}, "modules": {"nvidia": {"srcversion": "A"}}})");
  CHECK(installed_build(world.host)->release == "9.9.8");
  CHECK(installed_build(world.host)->commit == "2222");
  world.put(dkms_source(entry()).substr(1) + "/dkms.conf", dkms_conf(entry()));
  CHECK(installed_build(world.host)->release == "9.9.9");
  CHECK(installed_build(world.host)->commit == entry().commit);

  const auto lacking = [&](const std::string& release, const std::string& commit) {
    world.put(beside, nlohmann::json{{"made_of", {{"release", release}, {"commit", commit}}},
                                     {"modules", nlohmann::json::object()}}
                          .dump());
    return installed_modules(world.host, entry(), "6.1.0-1-amd64", false)->lacking;
  };
  const std::string none = "6.1.0-1-amd64: they are not installed";
  CHECK(lacking("9.9.8", entry().commit) == none);  // the same patch on another release
  CHECK(lacking("9.9.9", "2222") == none);
  CHECK(lacking("9.9.9", entry().commit) != none);
}

TEST_CASE("modules: what was built is installed, by build id where the record has one") {
  World world;
  nlohmann::json record = {{"made_of", {{"release", "9.9.9"}, {"commit", entry().commit}}},
                           {"modules", nlohmann::json::object()}};
  std::string dep;
  for (const std::string_view module : kModuleNames) {
    const MadeModule made{.srcversion = "AAAA", .notes = build_id_note("\x3f\xa2"), .release = "6.1.0-1-amd64"};
    world.put(fmt::format("{}updates/p2pd/{}.ko", kPlace, module), made.bytes());
    record["modules"][module] = {{"srcversion", "AAAA"}, {"build_id", "3fa2"}};
    dep += fmt::format("updates/p2pd/{}.ko:\n", module);
  }
  world.put(std::string(kPlace) + "modules.dep", dep);
  const auto installed = [&] {
    world.put(std::string(kPlace) + "updates/p2pd/build.json", record.dump());
    return installed_modules(world.host, entry(), "6.1.0-1-amd64", false).value();
  };
  CHECK(installed().lacking.empty());
  CHECK(installed().by_build_id);
  record["modules"]["nvidia"]["build_id"] = "91bc";
  CHECK(installed().lacking == "/lib/modules/6.1.0-1-amd64/updates/p2pd/nvidia.ko is another build (build id 3fa2)");
  record["modules"]["nvidia"].erase("build_id");  // of an older p2pd
  CHECK(installed().lacking.empty());
  CHECK_FALSE(installed().by_build_id);
}

TEST_CASE("modules: who would miss a file") {
  World world;
  world.put(std::string(kPlace) + "updates/nvidia.ko", "x");
  world.owners(kFile);
  CHECK(owner_of_module(world.host, "6.1.0-1-amd64", kFile).value().empty());
  world.put("var/lib/dkms/nvidia/1/6.1.0-1-amd64/x86_64/module/nvidia.ko", "x");
  fs::create_directory_symlink("1/6.1.0-1-amd64/x86_64",
                               world.directory / "var/lib/dkms/nvidia/kernel-6.1.0-1-amd64-x86_64");
  CHECK(owner_of_module(world.host, "6.1.0-1-amd64", kFile).value() == "DKMS module nvidia");
  world.owners(kFile, "nvidia-kernel");
  CHECK(owner_of_module(world.host, "6.1.0-1-amd64", kFile).value() == "package nvidia-kernel");
  const auto aside = put_aside(world.host, "6.1.0-1-amd64", kFile);
  REQUIRE_FALSE(aside);
  CHECK(aside.error().next == "Purge that package: nvidia-kernel");
  CHECK(fs::exists(world.directory / (std::string(kPlace) + "updates/nvidia.ko")));
}

TEST_CASE("modules: what was put aside comes back, and nothing of ours stays") {
  World world;
  world.put(std::string(kPlace) + "updates/nvidia.ko", "theirs");
  world.put(std::string(kPlace) + "modules.dep", "updates/nvidia.ko:\n");
  world.owners(kFile);
  REQUIRE(put_aside(world.host, "6.1.0-1-amd64", kFile));
  CHECK_FALSE(fs::exists(world.directory / (std::string(kPlace) + "updates/nvidia.ko")));
  world.put("lib/p2pd-modules/6.1.0-1-amd64/nvidia.ko", "ours");
  fs::create_directory_symlink("../../../p2pd-modules/6.1.0-1-amd64",
                               world.directory / (std::string(kPlace) + "updates/p2pd"));
  world.put("lib/modules/6.3/updates/p2pd/nvidia.ko", "ours, of an older p2pd");
  world.put("lib/modules/6.3/modules.dep", "updates/p2pd/nvidia.ko:\n");
  world.put("lib/modules/6.4/modules.order", "");  // restored by undo: no modules.dep yet
  fs::create_directories(world.directory / "lib/modules/6.4/updates");
  fs::create_directory_symlink("../../../p2pd-modules/6.4", world.directory / "lib/modules/6.4/updates/p2pd");
  world.put("lib/modules/6.2/updates/dkms/nvidia-uvm.ko.xz", "ours");
  world.put("lib/modules/6.2/modules.dep", "updates/dkms/nvidia-uvm.ko.xz:\n");
  fs::create_directories(world.directory / "var/lib/dkms/p2pd-nvidia");
  fs::create_directory_symlink("9/6.2/x86_64", world.directory / "var/lib/dkms/p2pd-nvidia/kernel-6.2-x86_64");
  world.put("usr/src/p2pd-nvidia-9/dkms.conf", "");
  world.put("usr/src/nvidia-9/dkms.conf", "");
  world.put("lib/modules/6.5/modules.dep",
            "updates/dkms/nvidia-current-open.ko:\n");  // its package was removed meanwhile
  for (const char* kernel : {"6.2", "6.3", "6.4", "6.5"}) world.runner.on(std::string("depmod ") + kernel);
  for (int again = 0; again < 2; ++again) {
    const auto cleared = clear_modules(world.host);
    INFO((cleared ? "" : cleared.error().message));
    REQUIRE(cleared);
  }
  CHECK(fs::exists(world.directory / (std::string(kPlace) + "updates/nvidia.ko")));
  for (const char* path : {"updates/p2pd", "updates/.p2pd-aside.nvidia.ko.old"})
    CHECK_FALSE(fs::exists(fs::symlink_status(world.directory / (std::string(kPlace) + path))));
  for (const char* path : {"modules/6.2/updates", "modules/6.3/updates", "modules/6.4/updates", "p2pd-modules"})
    CHECK_FALSE(fs::exists(world.directory / "lib" / path));
  for (const char* kernel : {"6.4", "6.5"})
    CHECK(std::ranges::count(world.runner.ran, std::string("depmod ") + kernel) > 0);
  CHECK_FALSE(fs::exists(world.directory / "var/lib/dkms/p2pd-nvidia"));
  CHECK_FALSE(fs::exists(world.directory / "usr/src/p2pd-nvidia-9"));
  CHECK(fs::exists(world.directory / "usr/src/nvidia-9"));
  CHECK(world.runner.unexpected.empty());
}

TEST_CASE("modules: the key that this system signs with") {
  MadeTree tree;
  CHECK_FALSE(signing_key(tree.host));
  tree.put("var/lib/shim-signed/mok/MOK.priv", "");
  tree.put("var/lib/shim-signed/mok/MOK.der", "");
  CHECK(signing_key(tree.host)->key == "/var/lib/shim-signed/mok/MOK.priv");
  tree.put("etc/dkms/framework.conf", "# mok_signing_key=/no\nmok_signing_key=\"/k\"\nmok_certificate=/c\n");
  CHECK(signing_key(tree.host)->key == "/k");
  CHECK(signing_key(tree.host)->certificate == "/c");
}

TEST_CASE("modules: those that the kernel refuses for want of a signature are not installed") {
  if (::geteuid() != 0) {
    WARN("not root: a running host cannot be shown to p2pd here, not tested");
    return;
  }
  SigningMachine machine;
  machine.refuses(false);
  machine.enrol("var/lib/dkms/mok");
  CHECK(machine.lacking().empty());  // Secure Boot is off: a machine that is ready stays ready
  machine.refuses(true);             // its owner turns it on
  const std::string nvidia = "/lib/modules/6.1.0-1-amd64/updates/p2pd/nvidia.ko";
  CHECK(machine.lacking() == "refused: " + nvidia + " is not signed: with Secure Boot on, the kernel refuses it");
  SECTION("nobody enrolled the key: the check secure-boot has the next step") {
    fs::remove(machine.directory / efi_variable_path("MokListRT", kEfiShim));
    machine.put(efi_variable_path("db", kEfiImages), std::string("\x07\0\0\0", 4) + "others");
    CHECK(machine.lacking().empty());
  }
  SECTION("there is no key") {
    fs::remove(machine.directory / "var/lib/dkms/mok.pub");
    CHECK(machine.lacking().empty());
  }
  SECTION("a kernel that does not care") {
    machine.put("sys/kernel/security/lockdown", "[none] integrity\n");
    machine.put("sys/module/module/parameters/sig_enforce", "N\n");
    CHECK(machine.lacking().empty());
  }
  SECTION("they are signed again") {
    machine.sign("var/lib/dkms/mok");
    CHECK(machine.lacking().empty());
  }
  SECTION("they are signed with another key") {
    machine.make_key("other");
    machine.sign("other");
    CHECK(machine.lacking() ==
          "refused: " + nvidia + " is signed with a key that is not enrolled: the kernel refuses it");
  }
}

TEST_CASE("modules: they are signed whenever there is a key") {
  MadeTree tree;
  BuildTarget target;
  target.release = "6.1.0-1-amd64";
  tree.put("new/nvidia.ko", "x");
  tree.put("new/build.json", "x");
  const auto sign = [&] { return sign_modules(tree.host, target, "/new"); };
  CHECK(sign());
  CHECK(tree.runner.ran.empty());  // no key is made where nothing asks for one
  tree.put("var/lib/dkms/mok.key");
  tree.put("var/lib/dkms/mok.pub");
  const std::string command = "kmodsign sha512 /var/lib/dkms/mok.key /var/lib/dkms/mok.pub /new/nvidia.ko";
  tree.runner.on(command);
  CHECK(sign());
  CHECK(tree.runner.ran == std::vector<std::string>{command});
  tree.runner.on(command, "", 1, "no such key");
  CHECK(sign());  // Secure Boot is off
  tree.put(efi_variable_path("SecureBoot", kEfiGlobal), std::string("\x06\0\0\0\1", 5));
  const auto refused = sign();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text().find("the modules are not signed") != std::string::npos);
}
