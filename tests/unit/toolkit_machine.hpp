// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/action.hpp"
#include "catch.hpp"
#include "machine/driver/cuda_toolkit.hpp"
#include "machine/packages/apt.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kCudaToolkit;
extern const Action kCudaToolkitAction;
}  // namespace p2pd

namespace p2pd::test {

inline const Parameters kWith = {{"version", "12-8"}};
inline const std::string kBefore =
    "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21\n\n"
    "Package: cuda-config\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 12.7\n\n"
    "Package: zlib\nStatus: install ok installed\nArchitecture: i386\nVersion: 1\n\n";

inline constexpr const char* kLists = "var/lib/apt/lists/archive_Packages";

inline std::string package(const std::string& name, const char* architecture,
                           const char* status = "install ok installed") {
  return "Package: " + name + "\nStatus: " + status + "\nArchitecture: " + architecture + "\nVersion: 12.8\n\n";
}

inline Command command(std::vector<std::string> words, const char* option = nullptr) {
  Command command = apt_get(std::move(words));
  if (option != nullptr) command.argv.insert(command.argv.begin() + 1, option);
  return command;
}

/// A Debian without a CUDA toolkit, whose apt-get installs one.
struct ToolkitMachine : MadeTree {
  ToolkitMachine() {
    status(kBefore);
    put("usr/local/.keep", "");
    put("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    put(kLists, "");
    apt({"--no-install-recommends", "install", "cuda-toolkit-12-8"},
        "Inst cuda-config [12.7] (12.8 x)\nInst cuda-nvcc-12-8 (12.8 x)\nInst zlib (1 x)\n"
        "Inst cuda-toolkit-12-8 (12.8 x)\nConf cuda-nvcc-12-8 (12.8 x)\n",
        [this] { install(); });
  }
  /// Sets the output of apt-get's simulation, and the effect of apt-get.
  void apt(const std::vector<std::string>& words, const std::string& says, const std::function<void()>& does) {
    runner.on(command(words, "--simulate").text(), says);
    std::string show = "apt-cache show";
    for (const auto& [name, version] : parse_apt_plan(says).installs) show += fmt::format(" {}={}", name, version);
    runner.on(show, "Package: x\nInstalled-Size: 12\nVersion: 12.8\n");
    runner.on(command(words, "--download-only").text());
    runner.on(command(words).text(), [does](const Command&) {
      does();
      return Result<CommandResult>(CommandResult{});
    });
  }
  void status(const std::string& text) const { put("var/lib/dpkg/status", text); }
  void nvcc() const {
    put("usr/local/cuda-12.8/bin/nvcc", "");
    std::filesystem::permissions(directory / "usr/local/cuda-12.8/bin/nvcc", std::filesystem::perms(0755));
  }
  void install() const {
    nvcc();
    status(package("dpkg", "amd64") + package("cuda-config", "all") + package("cuda-nvcc-12-8", "amd64") +
           package("zlib", "i386") + package("zlib", "amd64") + package("cuda-toolkit-12-8", "amd64"));
  }
  Finding look(const Parameters& with = kWith) const { return kCudaToolkit.check(host, with).value(); }
  std::string text(const char* path) const { return host.files().read(path).value_or(""); }
};

}  // namespace p2pd::test
