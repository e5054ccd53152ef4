// SPDX-License-Identifier: MIT
#include <algorithm>
#include <fstream>
#include <map>

#include "base/action.hpp"
#include "base/driver/loaded_driver.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "live_root.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Action kModulesUnloadAction;
extern const Action kModulesLoadAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using Commands = std::vector<std::string>;

namespace {

const Parameters kEntry{{"entry", "test/main"}};

/// A running host with loaded modules and services; its commands do to them what the real ones do.
struct Machine {
  explicit Machine(const std::vector<std::string>& modules) {
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
        fs::remove_all(directory / "sys/module" / name);
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
    fs::create_directories(directory / "sys/module" / name);
    std::ofstream(directory / "sys/module" / name / "initstate") << "live\n";
    return ended(0);
  }
  std::vector<std::string> loaded() {
    std::vector<std::string> names;
    for (const DriverModule& module : driver_modules(host())) names.push_back(module.name);
    return names;
  }
  Host host() { return Host(*live_root_, runner); }

  test::TemporaryDirectory directory;
  test::FakeRunner runner;
  std::map<std::string, bool> active;
  std::string busy;

 private:
  std::optional<Root> live_root_ = test::live_root(directory.path());
};

/// A running host is made by a chroot.
bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("not root: not tested");
  return false;
}

const std::vector<std::string> kAll = {"nvidia_drm", "nvidia_uvm", "nvidia_modeset", "nvidia"};

}  // namespace

TEST_CASE("modules-unload: users come out before what they use, and the services come back with the new modules") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded().empty());
  CHECK_FALSE(machine.active["nvidia-persistenced.service"]);
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(machine.loaded() == kAll);
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK_FALSE(machine.active["display-manager.service"]);  // it did not run before
  CHECK_FALSE(host.files().exists(kStoppedServices));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("modules-unload: what is in use stays for the reboot, and everything runs as before") {
  if (!is_root()) return;
  for (const std::string& busy : kAll) {
    CAPTURE(busy);
    Machine machine(kAll);
    machine.busy = busy;
    machine.active["display-manager.service"] = true;
    Host host = machine.host();
    REQUIRE(kModulesUnloadAction.apply(host, kEntry));
    CHECK(machine.loaded() == kAll);
    CHECK(machine.active["display-manager.service"]);
    CHECK_FALSE(host.files().exists(kStoppedServices));
  }
}

TEST_CASE("modules-unload: undo loads what is installed by then, after a kill in between too") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  Host again = machine.host();  // another process
  REQUIRE(kModulesUnloadAction.undo(again, kEntry));
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK(machine.loaded() == kAll);
  const std::size_t commands = machine.runner.ran.size();
  REQUIRE(kModulesUnloadAction.undo(again, kEntry));
  CHECK(machine.runner.ran.size() == commands);
}

TEST_CASE("modules-unload: undo does not fail for a driver that is not installed at that point of the way back") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  machine.runner.on("modprobe nvidia", [](const Command&) {
    return Result<CommandResult>(CommandResult{1, "", "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1.0-55-amd64\n"});
  });
  REQUIRE(kModulesUnloadAction.undo(host, kEntry));
  CHECK(machine.loaded().empty());
  CHECK_FALSE(host.files().exists(kStoppedServices));
}

TEST_CASE("modules-unload: undo does not hide that a service does not start with the driver that is loaded") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  machine.runner.on("systemctl start nvidia-persistenced.service", [](const Command&) { return Machine::ended(1); });
  CHECK_FALSE(kModulesUnloadAction.undo(host, kEntry));
  CHECK(machine.loaded() == kAll);
  CHECK(host.files().exists(kStoppedServices));
}

TEST_CASE("modules-unload: a container that its runtime would restart is stopped and started again") {
  if (!is_root()) return;
  Machine machine(kAll);
  const std::string id = std::string(52, '0') + "3f2a91b0c4d5", docker = "docker 000000000000";
  const fs::path process = machine.directory / "proc/77";
  fs::create_directories(process / "fd");
  fs::create_symlink("/dev/nvidia0", process / "fd/3");
  std::ofstream(process / "comm") << "server\n";
  std::ofstream(process / "cgroup") << "0::/system.slice/docker-" + id + ".scope\n";
  machine.active[docker] = true;
  machine.runner.on("docker inspect --format '{{.HostConfig.RestartPolicy.Name}}' 000000000000", "always\n");
  machine.runner.on("docker stop 000000000000", [&](const Command&) { return machine.set(docker, false); });
  machine.runner.on("docker start 000000000000", [&](const Command&) { return machine.set(docker, true); });
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded().empty());
  CHECK_FALSE(machine.active[docker]);
  fs::remove_all(process);
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(machine.active[docker]);
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("modules-unload: a kill between two services forgets neither") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["nvidia-persistenced.service"] = machine.active["display-manager.service"] = true;
  machine.runner.on("systemctl stop display-manager.service",
                    [](const Command&) -> Result<CommandResult> { return fail(ErrorCode::interrupted, "killed"); });
  Host host = machine.host();
  CHECK(kModulesUnloadAction.apply(host, kEntry).error().code == ErrorCode::interrupted);
  CHECK_FALSE(machine.active["nvidia-persistenced.service"]);
  machine.runner.on("systemctl stop display-manager.service", [&](const Command&) {
    return machine.set("display-manager.service", false);
  });
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK(machine.active["display-manager.service"]);
}

TEST_CASE("modules-unload: of an image nothing is loaded") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  Host host(Root::open(directory.path()).value(), runner);
  CHECK(kModulesUnloadAction.apply(host, kEntry));
  CHECK(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(runner.ran.empty());
}
