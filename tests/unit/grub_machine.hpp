// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "grub_fixture.hpp"
#include "machine/boot/grub.hpp"
#include "temporary.hpp"

namespace p2pd::test {

inline const std::string kCustom = "boot/grub/custom.cfg", kConfig = "boot/grub/grub.cfg", kEnv = "boot/grub/grubenv";

/// Keeps the first state of every path, as the engine does.
struct Recorder : ChangeRecorder {
  Root* root = nullptr;
  std::map<std::string, FileState> before;
  std::map<std::string, Restore> how;
  Result<void> before_change(std::string_view path, Restore restore) override {
    if (before.emplace(path, root->capture(path).value()).second) how.emplace(path, restore);
    return {};
  }
  void put_back() {
    for (auto file = before.rbegin(); file != before.rend(); ++file) REQUIRE(root->put(file->first, file->second));
  }
};

/// A Debian host of a few files with a GRUB that works: its commands do on the files what the real ones do.
struct GrubMachine {
  GrubMachine() {
    put(kConfig, kDebianGrub);
    put("etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
    for (const char* version : {"6.1.0-50", "6.1.0-49"})
      for (const char* name : {"vmlinuz-", "initrd.img-"}) put(std::string("boot/") + name + version + "-amd64", "");
    put("proc/locks", "");  // nobody installs packages
    put("usr/sbin/grub-mkconfig", "");
    std::filesystem::permissions(directory / "usr/sbin/grub-mkconfig", std::filesystem::perms::owner_all);
    runner.on("grub-probe --target=abstraction /boot/grub").on("grub-probe --target=fs /boot/grub", "ext2\n");
    runner.on("grub-script-check", [this](const Command& command) {
      checked.push_back(command.input);
      return Result<CommandResult>(
          CommandResult{script_status, "", script_status == 0 ? "" : "Syntax error at line 7"});
    });
    runner.on("grub-mkconfig", [this](const Command&) { return Result<CommandResult>({0, generate(), ""}); });
    runner.on("grub-reboot p2pd-trial", [this](const Command&) { return environment("next_entry=p2pd-trial\n"); });
    runner.on("grub-editenv /boot/grub/grubenv unset next_entry", [this](const Command&) { return environment(""); });
  }

  void put(const std::string& path, std::string_view text) const { directory.put(path, text); }
  std::string get(const std::string& path) const {
    std::ifstream file(directory / path);
    return file ? std::string(std::istreambuf_iterator<char>(file), {}) : "absent";
  }
  Result<CommandResult> environment(const std::string& lines) const {
    put(kEnv, "# GRUB Environment Block\n" + lines + "#####");
    return CommandResult{};
  }
  /// The fixture with what the files of /etc/default, read by a real sh, make of GRUB_CMDLINE_LINUX_DEFAULT.
  std::string generate() const {
    const std::string etc = (directory / "etc/default").string();
    const std::string script = ". " + etc + "/grub; for x in " + etc +
                               "/grub.d/*.cfg; do [ ! -e $x ] || . $x; done; "
                               "printf %s \"$GRUB_CMDLINE_LINUX_DEFAULT\" >" +
                               etc + "/../../result";
    REQUIRE(std::system(script.c_str()) == 0);
    const std::string line = get("result");
    std::filesystem::remove(directory / "result");
    std::string config = kDebianGrub;
    for (std::size_t at = 0; (at = config.find("200 quiet\n", at)) != std::string::npos; at += 4)
      config.replace(at + 4, 5, line);
    return config;
  }
  /// Every file with its content and mode.
  std::string tree() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path())) {
      const std::string name = std::filesystem::relative(entry.path(), directory.path());
      struct stat info {};
      REQUIRE(::stat(entry.path().c_str(), &info) == 0);
      files[name] = std::to_string(info.st_mode) + (entry.is_regular_file() ? " " + get(name) : "");
    }
    std::string out;
    for (const auto& [name, text] : files) out += name + " " + text + "\n";
    return out;
  }
  /// Boots: GRUB picks an entry, clears the one-time choice, and its linux line becomes /proc/cmdline.
  void boot() const {
    auto environment = parse_grub_environment(get(kEnv));
    GrubMenu menu = parse_grub(get(kConfig)).value();
    if (std::filesystem::exists(directory / kCustom)) menu = parse_grub(get(kCustom), std::move(menu)).value();
    if (!environment["next_entry"].empty()) menu.default_entry = environment["next_entry"];
    if (environment.contains("next_entry") && std::filesystem::exists(directory / kEnv))
      put(kEnv, "# GRUB Environment Block\nnext_entry=\n#####");
    const GrubEntry* entry = default_grub_entry(menu, environment).value();
    std::string line;
    for (const std::string& word : entry->loads.at(0).words) line += (line.empty() ? "BOOT_IMAGE=" : " ") + word;
    put("proc/cmdline", line + "\n");
  }

  TemporaryDirectory directory;
  FakeRunner runner;
  Recorder recorder;
  int script_status = 0;
  std::vector<std::string> checked;  ///< what grub-script-check was given
};

}  // namespace p2pd::test
