// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// A running host with loaded modules and services; its commands do to them what the real ones do.
struct LoadedMachine {
  explicit LoadedMachine(const std::vector<std::string>& modules) {
    for (const char* service : {"nvidia-persistenced.service", "display-manager.service"}) {
      const std::string name = service;
      runner.on("systemctl is-active " + name, [this, name](const Command&) { return ended(active[name] ? 0 : 3); });
      runner.on("systemctl stop " + name, [this, name](const Command&) { return set(name, false); });
      runner.on("systemctl start " + name, [this, name](const Command&) { return set(name, true); });
    }
    for (const char* module : {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"}) {
      std::string name = module;
      std::ranges::replace(name, '-', '_');
      runner.on(std::string("modprobe ") + module, [this, name](const Command&) { return load(name); });
    }
    for (const std::string& module : modules) (void)load(module);
    for (const char* module : {"nvidia_drm", "nvidia_peermem", "nvidia_uvm", "nvidia_modeset", "nvidia", "nouveau"}) {
      const std::string name = module;
      runner.on("rmmod " + name, [this, name](const Command&) {
        if (name == busy) return Result<CommandResult>(CommandResult{1, "", "rmmod: ERROR: Module is in use\n"});
        std::filesystem::remove_all(directory / "sys/module" / name);
        return ended(0);
      });
    }
  }
  static Result<CommandResult> ended(int status) { return CommandResult{status, "", ""}; }
  Result<CommandResult> set(const std::string& service, bool runs) {
    active[service] = runs;
    return ended(0);
  }
  Result<CommandResult> load(const std::string& name) {
    std::filesystem::create_directories(directory / "sys/module" / name);
    std::ofstream(directory / "sys/module" / name / "initstate") << "live\n";
    return ended(0);
  }
  std::vector<std::string> loaded() {
    std::vector<std::string> names;
    for (const DriverModule& module : driver_modules(host())) names.push_back(module.name);
    return names;
  }
  Host host() { return Host(*live_root_, runner); }
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << text;
  }
  /// A process of these control groups has a GPU open.
  void holds(const std::string& comm, const std::string& cgroups) {
    const std::string process = "proc/" + std::to_string(++last_process_);
    put(process + "/comm", comm + "\n");
    put(process + "/cgroup", cgroups);
    std::filesystem::create_directories(directory / process / "fd");
    std::filesystem::create_symlink("/dev/nvidia0", directory / process / "fd/3");
  }
  /// A container of docker's with a restart policy has one open.
  void container() {
    holds("server", kScope);
    known_to_docker("unless-stopped\n");
  }
  /// One of docker's has no GPU open; `mount` is mounted in it.
  void idle_container(const std::string& mount, const std::string& policy = "always\n") {
    put("proc/90/mountinfo", "701 695 0:5 / / rw - overlay overlay rw\n702 701 " + mount + " ro - devtmpfs udev rw\n");
    put("proc/90/cgroup", kScope);
    known_to_docker(policy);
  }
  void known_to_docker(const std::string& policy) {
    const std::string docker = "docker 000000000000";
    active[docker] = true;
    runner.on("docker inspect --format '{{.HostConfig.RestartPolicy.Name}}' 000000000000", policy);
    runner.on("docker stop 000000000000", [this, docker](const Command&) { return set(docker, false); });
    runner.on("docker start 000000000000", [this, docker](const Command&) { return set(docker, true); });
  }

  TemporaryDirectory directory;
  FakeRunner runner;
  std::map<std::string, bool> active;
  std::string busy;

 private:
  const std::string kScope = "0::/system.slice/docker-" + std::string(52, '0') + "3f2a91b0c4d5.scope\n";
  std::optional<Root> live_root_ = live_root(directory.path());
  int last_process_ = 76;
};

/// A running host is made by a chroot.
inline bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("not root: not tested");
  return false;
}

}  // namespace p2pd::test
