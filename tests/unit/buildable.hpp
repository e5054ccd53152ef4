// SPDX-License-Identifier: MIT
#pragma once

#include "machine/catalogue/patched_source.hpp"
#include "machine/fetch/git_tree.hpp"
#include "machine/modules/module_build.hpp"
#include "staged.hpp"

namespace p2pd {
extern const Probe kDriverBuild;
extern const Action kDriverBuildAction;
}  // namespace p2pd

namespace p2pd::test {

inline constexpr char kRelease[] = "6.1.0-1-amd64";

/// "12" where /usr/bin/gcc-12 is installed.
inline std::string installed_gcc_major() {
  for (int major = 30; major > 7; --major)
    if (std::filesystem::exists(fmt::format("/usr/bin/gcc-{}", major))) return std::to_string(major);
  return {};
}

/// A host with a staged source that obeys `make modules`: five files of a .modinfo section, compiled in no time.
struct Buildable : Staged {
  Buildable() : gcc(installed_gcc_major()) {
    program_named("gcc-" + gcc);
    kernel(kRelease);
    source("Makefile",
           "M = nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem\n"
           "modules: $(M:%=kernel-open/%.ko)\n"
           "kernel-open/%.ko: kernel-open/%.c\n"
           "\t$(CC) $(KCFLAGS) -r -nostdlib -Wl,--build-id -DRELEASE='\"$(KERNEL_UNAME)\"' -o $@ $<\n");
    for (const std::string_view module : kModuleNames) source(fmt::format("kernel-open/{}.c", module), code("RELEASE"));
    pin();
  }
  static std::string code(const std::string& release) {
    return "static const char a[] __attribute__((section(\".modinfo\"), used)) = \"vermagic=\" " + release +
           " \" SMP mod_unload\";\n"
           "static const char b[] __attribute__((section(\".modinfo\"), used)) = \"srcversion=0123456789ABCDEF\";\n"
           "static const char c[] __attribute__((section(\".modinfo\"), used)) = \"version=9.9.9\";\n";
  }
  void kernel(const std::string& release) const {
    file("boot/vmlinuz-" + release, "");
    file("boot/config-" + release,
         fmt::format("CONFIG_CC_VERSION_TEXT=\"gcc-{} (Debian {}.2.0-14) {}.2.0\"\n", gcc, gcc, gcc));
    file("lib/modules/" + release + "/build/Makefile", "");
    file("lib/modules/" + release + "/build/include/linux/pci.h",
         "int pci_resize_resource(struct pci_dev *, int, int);\n");
  }
  void source(const std::string& path, const std::string& content) const { file("srv/source/" + path, content); }
  /// Stages what source() wrote, as driver-source would.
  void pin() {
    const std::string tree = git_tree_id(Root::open(directory.path()).value(), "/srv/source").value();
    patch()["commit"] = git_object_id("commit", tree);
    const std::string staged = source_of(entry());
    std::filesystem::create_directories((directory / staged).parent_path());
    std::filesystem::copy(directory / "srv/source", directory / staged, std::filesystem::copy_options::recursive);
    const nlohmann::json record = {
        {"release", "9.9.9"}, {"base_commit", release()["commit"]}, {"commit", patch()["commit"]}, {"tree", tree}};
    file(source_record_of(entry()), record.dump());
  }
  std::vector<ModuleBuild> builds() {
    const Host machine = host();
    return wanted_builds(machine, catalogue(machine).value(), entry()).value();
  }
  Error failed_apply() {
    const auto applied = apply(kDriverBuildAction);
    REQUIRE_FALSE(applied);
    UNSCOPED_INFO(applied.error().message << " next: " << applied.error().next);
    return applied.error();
  }
  /// Neither a build nor what becomes one.
  bool nothing_built() const {
    const std::filesystem::path at = directory / "var/cache/p2pd/builds";
    return !std::filesystem::exists(at) || std::filesystem::is_empty(at);
  }

  std::string gcc;
};

}  // namespace p2pd::test
