// SPDX-License-Identifier: MIT
#include "machine/modules/dkms.hpp"

#include "catch.hpp"
#include "made_tree.hpp"

using namespace p2pd;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDkmsModules = "var/lib/dkms/nvidia-current-open/535.1/6.1.0-1-amd64/x86_64/module/";

struct World : test::MadeTree {
  World() {
    for (const char* name : {"nvidia-current-open.ko", "nvidia-current-open-uvm.ko.xz", "notes"})
      put(std::string(kDkmsModules) + name, "x");
    fs::create_symlink("/usr/src/nvidia-current-open-535.1",
                       directory / "var/lib/dkms/nvidia-current-open/535.1/source");
    fs::create_symlink("535.1/6.1.0-1-amd64/x86_64",
                       directory / "var/lib/dkms/nvidia-current-open/kernel-6.1.0-1-amd64-x86_64");
  }
  bool has(const std::string& path) const { return fs::exists(directory / path); }
};

}  // namespace

TEST_CASE("dkms: what a killed removal left goes, and nothing else") {
  World world;
  const fs::path tree = world.directory / "var/lib/dkms";
  world.put("var/lib/dkms/torn/1/build/f", "");
  world.put("var/lib/dkms/torn/2/source/f", "");
  world.put("var/lib/dkms/torn/original_module/6.2/f", "");
  world.put("var/lib/dkms/gone/1/6.2/f", "");
  world.put("var/lib/dkms/mok.key", "");
  fs::create_symlink("1/6.2/x86_64", tree / "torn/kernel-6.2-x86_64");
  fs::create_symlink("2/6.1/x86_64", tree / "torn/kernel-6.1-x86_64");
  REQUIRE(forget_torn_dkms(world.host));
  for (const char* path : {"torn/1", "gone"}) CHECK_FALSE(fs::exists(tree / path));
  CHECK_FALSE(fs::is_symlink(tree / "torn/kernel-6.2-x86_64"));
  CHECK(fs::is_symlink(tree / "torn/kernel-6.1-x86_64"));
  for (const char* path : {"torn/2/source/f", "torn/original_module/6.2/f", "mok.key"}) CHECK(fs::exists(tree / path));
}

TEST_CASE("dkms: which modules it built of a package's source") {
  const World world;
  CHECK(built_by_dkms(world.host, {"/usr/src/nvidia-current-open-535.1/dkms.conf", "/usr/bin/x"}) ==
        std::vector<std::string>{"nvidia-current-open", "nvidia-current-open-uvm"});
  CHECK(built_by_dkms(world.host, {"/usr/src/nvidia-current-open-535.2/dkms.conf"}).empty());
  CHECK(built_by_dkms(test::MadeTree().host, {"/dkms.conf"}).empty());
}

TEST_CASE("dkms: the files that a killed installation left go, those of a module that DKMS has stay") {
  World world;
  const std::vector<std::string> modules = {"nvidia-current-open", "nvidia-current-open-uvm"};
  const std::string place = "lib/modules/6.1.0-1-amd64/updates/dkms/";
  for (const char* name : {"nvidia-current-open.ko", "nvidia-current-open-uvm.ko.xz", "zfs.ko"}) {
    world.put(place + name, "x");
    for (const char* usr : {"", "/usr"})
      world.runner.on("dpkg-query --search " + std::string(usr) + "/" + place + name, "", 1);
  }
  REQUIRE(discard_torn_modules(world.host, modules));
  for (const char* name : {"nvidia-current-open.ko", "nvidia-current-open-uvm.ko.xz", "zfs.ko"})
    CHECK(world.has(place + name));

  fs::remove(world.directory / "var/lib/dkms/nvidia-current-open/kernel-6.1.0-1-amd64-x86_64");
  world.put("lib/modules/6.1.0-1-amd64/modules.dep", "updates/dkms/nvidia-current-open.ko:\nupdates/dkms/zfs.ko:\n");
  world.put("lib/modules/6.2/modules.dep", "kernel/a.ko:\n");
  world.runner.on("depmod 6.1.0-1-amd64", "", 1);
  CHECK_FALSE(discard_torn_modules(world.host, modules));  // and depmod runs again after a failure
  world.runner.on("depmod 6.1.0-1-amd64");
  REQUIRE(discard_torn_modules(world.host, modules));
  CHECK_FALSE(world.has(place + "nvidia-current-open.ko"));
  CHECK_FALSE(world.has(place + "nvidia-current-open-uvm.ko.xz"));
  CHECK(world.has(place + "zfs.ko"));
  CHECK(world.runner.unexpected.empty());
}
