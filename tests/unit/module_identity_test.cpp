// SPDX-License-Identifier: MIT

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>

#include "catch.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/module_file.hpp"
#include "made_module.hpp"
#include "made_tree.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kFile[] = "/lib/modules/6.1.0/updates/dkms/nvidia.ko";

/// Modules made by the compiler and the linker. Their sources are the same; the object that they link is not.
struct LinkedModules : MadeTree {
  LinkedModules() {
    put("sources.c",
        "static const char info[] __attribute__((section(\".modinfo\"), used)) = \"srcversion=0123456789ABCDEF\";\n"
        "int prebuilt(void);\nint init(void) { return prebuilt(); }\n");
    put("prebuilt.c", "int prebuilt(void) { return VALUE; }\n");
    made = sh("cc -c sources.c -o sources.o && for value in 1 2; do cc -c -DVALUE=$value prebuilt.c -o "
              "prebuilt$value.o || exit; done") &&
           link("one", "sources.o prebuilt1.o") && link("two", "sources.o prebuilt2.o");
  }
  bool sh(const std::string& commands) const {
    return std::system(fmt::format("cd '{}' && {{ {}; }}", directory.path().string(), commands).c_str()) == 0;
  }
  bool link(const std::string& name, const std::string& objects) const {
    return sh(fmt::format("ld -r --build-id=sha1 {} -o {}.ko", objects, name));
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(directory / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Writes the sysfs files of a loaded module.
  void load(const std::string& name) const {
    put("sys/module/nvidia/srcversion", "0123456789ABCDEF\n");
    REQUIRE(sh("mkdir -p sys/module/nvidia/notes && objcopy -O binary --only-section=.note.gnu.build-id " + name +
               ".ko sys/module/nvidia/notes/.note.gnu.build-id"));
  }
  ModuleIdentity identity(const std::string& name) const {
    return module_identities(host, {"/" + name + ".ko"}).value().front();
  }

  bool made = false;
};

}  // namespace

TEST_CASE("module identity: the notes of a build id") {
  const std::string good = build_id_note("\x3f\xa2\xb1\xc4");
  CHECK(parse_build_id(good) == "3fa2b1c4");
  CHECK(parse_build_id(good + "what comes behind") == "3fa2b1c4");
  CHECK(parse_build_id(good + build_id_note("\x01\x02\x03", 3)) == "3fa2b1c4010203");
  CHECK(parse_build_id(build_id_note(std::string("\x01\x02\x03\0", 4), 3) + good) ==
        "0102033fa2b1c4");  // aligned to 4 bytes
  CHECK(parse_build_id(build_id_note(std::string(20, '\xff'))).size() == 40);
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(parse_build_id(std::string_view(good).substr(0, size)).empty());
  for (const Elf64_Word size : {5U, 0x7fffffffU, 0xfffffffdU, 0xffffffffU})
    CHECK(parse_build_id(build_id_note("\x3f\xa2\xb1\xc4", size)).empty());
  for (const std::size_t at : {0U, 3U, 8U, 12U, 15U}) {  // length of the name, type, name
    std::string wrong = good;
    wrong[at] = '\x7f';
    CHECK(parse_build_id(wrong).empty());
  }
  std::string many;
  for (int i = 0; i < 1000; ++i) many += good;
  CHECK(parse_build_id(many).size() < 4096);
}

TEST_CASE("module identity: the build id decides, srcversion where one has none") {
  const ModuleIdentity one{"aa", "1"}, other{"bb", "1"}, without{"", "1"}, nothing;
  CHECK(one.is({"aa", "2"}));
  CHECK_FALSE(one.is(other));
  CHECK(one.is(without));
  CHECK(without.is(other));
  CHECK_FALSE(without.is({"", "2"}));
  CHECK_FALSE(nothing.is(nothing));
  CHECK(one.text(other) == "build id aa");
  CHECK(one.text(without) == "srcversion 1");
  CHECK(ModuleIdentity{std::string(40, 'c'), "1"}.text(one) == "build id cccccccccccc...");
  CHECK(to_json(one) == nlohmann::json{{"srcversion", "1"}, {"build_id", "aa"}});
  CHECK(to_json(without) == nlohmann::json{{"srcversion", "1"}});
}

TEST_CASE("module identity: modules that differ only in a prebuilt object are different") {
  const LinkedModules modules;
  REQUIRE(modules.made);
  const ModuleIdentity one = modules.identity("one"), two = modules.identity("two");
  CHECK(one.srcversion == two.srcversion);
  CHECK(one.build_id.size() == 40);
  CHECK_FALSE(one.is(two));
  modules.load("one");
  CHECK(loaded_identity(modules.host, "nvidia").is(one));
  CHECK_FALSE(loaded_identity(modules.host, "nvidia").is(two));

  REQUIRE(modules.sh("strip --strip-debug one.ko && printf '~Module signature appended~\\n' >> one.ko"));
  CHECK(modules.identity("one").is(one));
  // the first note is that of an object that both link
  REQUIRE(modules.sh("ld -r --build-id=sha1 sources.o -o noted.o"));
  REQUIRE(modules.link("noted1", "noted.o prebuilt1.o"));
  REQUIRE(modules.link("noted2", "noted.o prebuilt2.o"));
  CHECK(modules.identity("noted1").by_build_id(modules.identity("noted2")));
  CHECK_FALSE(modules.identity("noted1").is(modules.identity("noted2")));
  modules.load("noted1");
  CHECK(loaded_identity(modules.host, "nvidia").is(modules.identity("noted1")));
}

TEST_CASE("module identity: a kernel that is built without build ids") {
  const LinkedModules modules;
  REQUIRE(modules.made);
  REQUIRE(modules.sh("ld -r --build-id=none sources.o prebuilt1.o -o none.ko"));
  CHECK(modules.identity("none").build_id.empty());
  CHECK(modules.identity("none").is(modules.identity("two")));
  CHECK(loaded_identity(modules.host, "nvidia-uvm").build_id.empty());
  modules.put("sys/module/nvidia_uvm/notes/.note.gnu.build-id", build_id_note("\x3f"));
  CHECK(loaded_identity(modules.host, "nvidia-uvm").build_id == "3f");
}

TEST_CASE("module identity: a compressed module is unpacked where its program is there") {
  LinkedModules modules;
  REQUIRE(modules.made);
  const ModuleIdentity plain = modules.identity("one");
  const std::string file = std::string(kFile) + ".zst";
  modules.put(file.substr(1), "packed");
  modules.runner.on("modinfo -F srcversion " + file, "0123456789ABCDEF\n");
  CHECK(module_identities(modules.host, {file}).value().front().build_id.empty());
  modules.put("usr/bin/zstd");
  fs::permissions(modules.directory / "usr/bin/zstd", fs::perms(0755));
  for (const std::string& answer : {std::string(),
                                    std::string("\x7f"
                                                "ELF"),
                                    std::string(100, 'x')}) {
    modules.runner.on("zstd -dcq " + file, answer);
    CHECK(module_build_id(modules.host, file).empty());
  }
  modules.runner.on("zstd -dcq " + file, modules.bytes("one.ko"));
  CHECK(module_build_id(modules.host, file) == plain.build_id);
  modules.runner.on("zstd -dcq " + file, modules.bytes("one.ko"), 1);
  CHECK(module_build_id(modules.host, file).empty());
}
