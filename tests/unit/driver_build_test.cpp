// SPDX-License-Identifier: MIT
#include "buildable.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("driver-build: built once, a hit the second time, undone without a trace") {
  Buildable world;
  const std::string before = world.picture();
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
  REQUIRE(world.apply(kDriverBuildAction));
  const Finding finding = world.check(kDriverBuild).value();
  INFO(to_json(finding).dump(1));
  CHECK(finding.verdict == Verdict::pass);
  CHECK(check_build(world.host(), world.builds()[0]).value()["modules"]["nvidia-uvm"]["srcversion"] ==
        "0123456789ABCDEF");
  const std::string after = world.picture();
  CHECK(world.runner.count("make") == 1);
  REQUIRE(world.apply(kDriverBuildAction));
  CHECK(world.runner.count("make") == 1);
  CHECK(world.picture() == after);
  CHECK(fs::exists(world.directory / (world.builds()[0].directory + "/build.log")));
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-build: every bootable kernel with headers is built for, and the newest must have them") {
  Buildable world;
  world.kernel("6.1.0-2-amd64");
  world.file("boot/vmlinuz-5.10.0-1-amd64", "");  // old, without headers
  REQUIRE(world.apply(kDriverBuildAction));
  CHECK(world.runner.count("make") == 2);
  CHECK(world.check(kDriverBuild)->summary == "modules of test/main are built for 6.1.0-1-amd64, 6.1.0-2-amd64");
  world.file("boot/vmlinuz-6.12.0-1-amd64", "");
  const Finding finding = world.check(kDriverBuild).value();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.next == "apt-get install linux-headers-6.12.0-1-amd64");
  CHECK(world.failed_apply().next == finding.next);
  CHECK(world.runner.count("make") == 2);
}

TEST_CASE("driver-build: a kernel that makes warnings errors is built for without that, and the preview says so") {
  Buildable world;
  const std::string config = fmt::format("boot/config-{}", kRelease);
  CHECK(kDriverBuildAction.describe(world.host(), world.with)->notes.empty());
  const auto text = [&](const std::string& path) { return world.host().files().read("/" + path).value(); };
  world.file(config, text(config) + "CONFIG_OBJTOOL_WERROR=y\n# CONFIG_WERROR is not set\n");
  CHECK(kDriverBuildAction.describe(world.host(), world.with)->notes ==
        std::vector<std::string>{"6.1.0-1-amd64 makes warnings errors (CONFIG_OBJTOOL_WERROR): p2pd builds without "
                                 "that; others' DKMS builds may fail"});
  // kbuild: the options of the kernel are assigned in a file that a make below includes
  world.source("kernel.mk",
               "CONFIG_OBJTOOL_WERROR=y\nCONFIG_WERROR=y\nstrict-$(CONFIG_OBJTOOL_WERROR) += --werror\n"
               "strict-$(CONFIG_WERROR) += -Werror\ncheck:\n\t$(if $(strict-y),$(error strict: $(strict-y)),:)\n");
  world.source("Makefile",
               "all:\n\t$(MAKE) -f kernel.mk check\n" + text("srv/source/Makefile") + "kernel-open/nvidia.ko: all\n");
  world.pin();
  const auto applied = world.apply(kDriverBuildAction);
  INFO((applied ? "" : applied.error().message));
  CHECK(applied);
}

TEST_CASE("driver-build: one more kernel is one more build, another compiler or rule is another build") {
  Buildable world;
  REQUIRE(world.apply(kDriverBuildAction));
  const std::string first = world.builds()[0].directory;
  world.file(fmt::format("lib/modules/{}/build/Module.symvers", kRelease), "0x1 x\n");
  CHECK(world.builds()[0].directory != first);  // rebuilt under the same release
  world.file(fmt::format("lib/modules/{}/build/Module.symvers", kRelease), "");
  world.file(fmt::format("boot/config-{}", kRelease), "CONFIG_CC_VERSION_TEXT=\"gcc-99 (Debian 99.2.0-14) 99.2.0\"\n");
  CHECK(world.builds()[0].directory != first);
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
  CHECK(world.failed_apply().next == "apt-get install gcc-99");
}

TEST_CASE("driver-build: a compat header is forced in where the kernel's headers hold the pattern, and only there") {
  Buildable world;
  world.drop_in["compat_rules"]["test-rule"] = {
      {"header", "include/linux/pci.h"}, {"pattern", "exclude_bars"}, {"include", "test-rule.h"}, {"why", "x"}};
  world.release()["compat"] = {"test-rule"};
  world.source("kernel-open/nvidia.c",
               Buildable::code("RELEASE") + "#ifndef COMPAT\n#error the new argument is missing\n#endif\n");
  world.pin();
  CHECK(world.failed_apply().message.find("#error the new argument is missing") != std::string::npos);
  world.file(fmt::format("lib/modules/{}/build/include/linux/pci.h", kRelease), "int exclude_bars;\n");
  CHECK(world.failed_apply().message == "there is no compat header test-rule.h");
  world.file("etc/p2pd/compat/test-rule.h", "#define COMPAT 1\n");
  REQUIRE(world.apply(kDriverBuildAction));
  CHECK(world.check(kDriverBuild)->facts["builds"][0]["rules"] == nlohmann::json{"test-rule"});
  world.file("etc/p2pd/compat/test-rule.h", "#define COMPAT 2\n");
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);  // made from other inputs
}

TEST_CASE("driver-build: a header that is gone from the kernel is made up for, where the source includes it") {
  Buildable world;
  world.drop_in["compat_rules"]["test-rule"] = {{"header", "include/linux/old.h"},
                                                {"pattern", "old_function"},
                                                {"gone", true},
                                                {"include", "linux/old.h"},
                                                {"why", "x"}};
  world.release()["compat"] = {"test-rule"};
  world.source("kernel-open/nvidia.c",
               Buildable::code("RELEASE") + "#ifdef COMPAT\n#error forced in\n#endif\n#include <linux/old.h>\n");
  world.pin();
  world.file("etc/p2pd/compat/linux/old.h", "#define COMPAT 1\n");
  world.file(fmt::format("lib/modules/{}/build/include/linux/old.h", kRelease), "int old_function;\n");
  CHECK(world.failed_apply().message.find("linux/old.h: No such file or directory") !=
        std::string::npos);  // nothing is forced in
  for (const bool there : {true, false}) {
    if (there) world.file(fmt::format("lib/modules/{}/build/include/linux/old.h", kRelease), "int new_function;\n");
    if (!there) fs::remove(world.directory / fmt::format("lib/modules/{}/build/include/linux/old.h", kRelease));
    const auto applied = world.apply(kDriverBuildAction);
    INFO((applied ? "" : applied.error().message));
    REQUIRE(applied);
    CHECK(world.check(kDriverBuild)->facts["builds"][0]["rules"] == nlohmann::json{"test-rule"});
  }
}

TEST_CASE("driver-build: a build that fails late leaves nothing but a log, which the error names") {
  Buildable world;
  const std::string before = world.picture();
  world.source("kernel-open/nvidia-peermem.c", Buildable::code("RELEASE") + "#error late\nint x = y;\n");
  world.pin();
  const Error error = world.failed_apply();
  CHECK(error.message.find("nvidia-peermem.c:4:2: error: #error late") != std::string::npos);
  const std::string log = build_log_of(build_name(world.entry(), kRelease));
  CHECK(error.next.find(log) != std::string::npos);
  CHECK(fs::exists(world.directory / log));
  CHECK(world.nothing_built());
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
}

TEST_CASE("driver-build: four modules, or those of another kernel, are no build") {
  Buildable world;
  world.source("kernel-open/nvidia-drm.c", Buildable::code("\"5.10.0-1-amd64\""));
  world.pin();
  CHECK(world.failed_apply().message.find("is for kernel '5.10.0-1-amd64 SMP mod_unload', not 6.1.0-1-amd64") !=
        std::string::npos);
  CHECK(world.nothing_built());
  world.source("Makefile", "modules:\n\ttouch kernel-open/nvidia.ko\n");
  world.pin();
  CHECK(world.failed_apply().message.find("the build succeeded, but") == 0);
  CHECK(world.nothing_built());
}

TEST_CASE("driver-build: no space left, and a killed make, are told as such") {
  Buildable world;
  world.source("Makefile", "modules:\n\tcat Makefile > /dev/full\n");
  world.pin();
  CHECK(world.failed_apply().message.find("No space left on device") != std::string::npos);
  world.source("Makefile", "modules:\n\t@kill -9 $$PPID\n");
  world.pin();
  CHECK(world.failed_apply().message.find("ended with status 137") != std::string::npos);
  CHECK(world.nothing_built());
  const SmallDisk disk(world.directory / "var/cache/p2pd/builds", "size=1m");
  if (!disk) return;
  CHECK(world.failed_apply().message.find("/var/cache/p2pd/builds has 1 MiB free") == 0);
}

TEST_CASE("driver-build: a damaged module is no pass and is built anew, as is what a kill left") {
  Buildable world;
  const std::string before = world.picture();
  REQUIRE(world.apply(kDriverBuildAction));
  const std::string directory = world.builds()[0].directory.substr(1);
  std::ofstream(world.directory / (directory + "/nvidia.ko"), std::ios::app) << "x";
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
  world.file(unfinished("/" + directory).substr(1) + "/source/junk", "x");
  REQUIRE(world.apply(kDriverBuildAction));
  CHECK(world.check(kDriverBuild)->verdict == Verdict::pass);
  for (const std::string record : {"", "{", "[]", "{\"made_of\": 1}", "{\"modules\": {}}"}) {
    world.file(directory + "/build.json", record);
    CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
  }
  world.file(unfinished("/" + directory).substr(1) + "/source/junk", "x");
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-build: a record of an older p2pd, without build ids, is one of this build") {
  Buildable world;
  REQUIRE(world.apply(kDriverBuildAction));
  const std::string path = world.builds()[0].directory.substr(1) + "/build.json";
  std::ifstream file(world.directory / path);
  nlohmann::json record = nlohmann::json::parse(file);
  CHECK(record["modules"]["nvidia"].value("build_id", "").size() == 40);
  record["modules"]["nvidia"]["build_id"] = "3fa2";
  world.file(path, record.dump());
  CHECK(world.check(kDriverBuild)->verdict == Verdict::fail);
  for (nlohmann::json& module : record["modules"]) module.erase("build_id");
  world.file(path, record.dump());
  CHECK(world.check(kDriverBuild)->verdict == Verdict::pass);
}

TEST_CASE("driver-build: an edited source is not built") {
  Buildable world;
  world.file(source_of(world.entry()) + "/kernel-open/nvidia.c", "edited\n");
  CHECK(world.failed_apply().message.starts_with("the source: "));
  CHECK(world.runner.count("make") == 0);
}

TEST_CASE("driver-build: kbuild against installed kernel headers, with the compat header that they need") {
  Buildable world;
  std::string release;
  std::error_code none;
  for (const auto& found : fs::directory_iterator("/lib/modules", none))
    if (fs::exists(found.path() / "build/Makefile")) release = found.path().filename();
  if (release.empty()) {
    WARN("not run: no linux-headers are installed");
    return;
  }
  const fs::path real = fs::path("/lib/modules") / release;
  const auto text_of = [&](const std::string& header) {
    std::ifstream file(fs::exists(real / "build" / header) ? real / "build" / header : real / "source" / header);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const char* name : {"boot", "lib"}) fs::remove_all(world.directory / name);
  world.kernel(release);
  const std::string config = text_of(".config");
  world.file("boot/config-" + release, config);
  world.file("lib/modules/" + release + "/build/include/linux/pci.h", text_of("include/linux/pci.h"));
  const bool needs_rule = text_of("include/linux/pci.h").find("exclude_bars") != std::string::npos;
  const auto compiler = parse_compiler(config.substr(config.find("CONFIG_CC_VERSION_TEXT")));
  if (!compiler || !fs::exists("/usr/bin/" + compiler->text())) {
    WARN("not run: the compiler of " << release << " is not installed");
    return;
  }
  world.program_named(compiler->text());
  world.source("Makefile",
               "modules:\n\t$(MAKE) -C /lib/modules/$(KERNEL_UNAME)/build M=$(CURDIR)/kernel-open CC=$(CC) modules\n");
  std::string objects = "obj-m :=";
  for (const std::string_view module : kModuleNames) {
    objects += fmt::format(" {}.o", module);
    world.source(fmt::format("kernel-open/{}.c", module),
                 "#include <linux/module.h>\nMODULE_LICENSE(\"GPL\");\nMODULE_VERSION(\"1\");\n");
  }
  world.source("kernel-open/Kbuild", objects + "\n");
  world.source(
      "kernel-open/nvidia.c",
      "#include <linux/module.h>\n#include <linux/pci.h>\nMODULE_LICENSE(\"GPL\");\nMODULE_VERSION(\"1\");\n"
      "int resize(struct pci_dev *dev);\nint resize(struct pci_dev *dev) { return pci_resize_resource(dev, 1, 5); }\n");
  world.pin();
  if (needs_rule) {
    const Error error = world.failed_apply();
    CHECK(error.message.find("error: too few arguments to function") != std::string::npos);
  }
  world.release()["compat"] = {"pci-resize-exclude-bars"};
  const auto applied = world.apply(kDriverBuildAction);
  INFO((applied ? "" : applied.error().message));
  REQUIRE(applied);
  const Finding finding = world.check(kDriverBuild).value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["builds"][0]["rules"].size() == (needs_rule ? 1 : 0));
}
