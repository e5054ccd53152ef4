// SPDX-License-Identifier: MIT
#include "machine/modules/module_install.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "catch.hpp"
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
