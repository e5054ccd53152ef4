// SPDX-License-Identifier: MIT
#include <algorithm>

#include "base/action.hpp"
#include "loaded_machine.hpp"
#include "machine/driver/gpu_holders.hpp"

namespace p2pd {
extern const Action kDriverModulesAction;
extern const Action kModulesUnloadAction;
extern const Action kModulesLoadAction;
}  // namespace p2pd

using namespace p2pd;
using Machine = test::LoadedMachine;
using test::is_root;
using Commands = std::vector<std::string>;

namespace {

const Parameters kEntry{{"entry", "test/main"}};

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
  CHECK_FALSE(machine.active["nvidia-persistenced.service"]);  // the new modules are not proven yet
  REQUIRE(kModulesUnloadAction.run_rests(host));
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
    machine.holds("Xorg", "0::/system.slice/display-manager.service\n");
    Host host = machine.host();
    REQUIRE(kModulesUnloadAction.apply(host, kEntry));
    CHECK(machine.loaded() == kAll);
    CHECK(machine.active["display-manager.service"]);
    CHECK_FALSE(host.files().exists(kStoppedServices));
  }
}

TEST_CASE("modules-unload: Nova stays until the reboot, since only that resets the GPUs' firmware") {
  if (!is_root()) return;
  Machine machine({"nova_core"});
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  CHECK(kModulesUnloadAction.describe(host, kEntry)->commands.empty());
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded() == std::vector<std::string>{"nova_core"});
  CHECK(machine.active["nvidia-persistenced.service"]);
}

TEST_CASE("modules-unload: undo loads what is installed by then, after a kill in between too") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  Host again = machine.host();  // another process
  REQUIRE(kModulesUnloadAction.undo(again, kEntry));
  REQUIRE(kModulesUnloadAction.run_rests(again));
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK(machine.loaded() == kAll);
  const std::size_t commands = machine.runner.ran.size();
  REQUIRE(kModulesUnloadAction.undo(again, kEntry));
  REQUIRE(kModulesUnloadAction.run_rests(again));
  CHECK(machine.runner.ran.size() == commands);
}

TEST_CASE("modules-unload: what was stopped is started again after the reboot that ends a rollback") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  machine.container();
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  machine.runner.on("modprobe nvidia", [](const Command&) {  // it is not installed at that point of the rollback
    return Result<CommandResult>(
        CommandResult{1, "", "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1.0-55-amd64\n"});
  });
  REQUIRE(kModulesUnloadAction.undo(host, kEntry));
  CHECK(machine.loaded().empty());
  CHECK_FALSE(machine.active["docker 000000000000"]);
  const auto rests = kModulesUnloadAction.run_rests(host);
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK_FALSE(machine.active["docker 000000000000"]);  // there is no driver for it
  REQUIRE_FALSE(rests);
  CHECK(rests.error().message == "not started again: docker 000000000000 (no NVIDIA driver is loaded)");
  CHECK(rests.error().next.ends_with("docker start 000000000000"));
  CHECK(host.files().exists(kStoppedServices));
  Host after = machine.host();  // docker does not start a stopped one at boot
  machine.runner.on("modprobe nvidia", [&](const Command&) { return machine.load("nvidia"); });
  REQUIRE(kModulesUnloadAction.run_rests(after));
  CHECK(machine.loaded() == kAll);
  CHECK(machine.active["docker 000000000000"]);
  CHECK_FALSE(host.files().exists(kStoppedServices));
}

TEST_CASE("modules-unload: where a run rests, modules on trial are not loaded for what waits for them") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.container();
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  machine.put("etc/modprobe.d/00-p2pd-trial.conf", "install nvidia /bin/false\n");
  CHECK_FALSE(kModulesUnloadAction.run_rests(host));
  CHECK(machine.loaded().empty());
  CHECK(host.files().read(kStoppedServices).value() == "docker 000000000000\n");
}

TEST_CASE("modules-unload: one that does not start again is named, the others are started, and each once") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  machine.container();
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  machine.runner.on("systemctl start nvidia-persistenced.service", "", 1,
                    "Unit nvidia-persistenced.service not found.\n");
  const auto done = kModulesUnloadAction.run_rests(host);
  REQUIRE_FALSE(done);
  CHECK(done.error().message.find("nvidia-persistenced.service (") != std::string::npos);
  CHECK(done.error().message.find("not found") != std::string::npos);
  CHECK(done.error().next.find("systemctl start nvidia-persistenced.service") != std::string::npos);
  CHECK(machine.active["docker 000000000000"]);
  const std::size_t commands = machine.runner.ran.size();
  REQUIRE(kModulesUnloadAction.run_rests(host));
  CHECK(machine.runner.ran.size() == commands);
}

TEST_CASE("modules-unload: a kill between two starts leaves the rest to be started") {
  if (!is_root()) return;
  Machine machine({"nvidia"});
  machine.active["nvidia-persistenced.service"] = true;
  machine.container();
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  machine.runner.on("docker start 000000000000",
                    [](const Command&) -> Result<CommandResult> { return fail(ErrorCode::interrupted, "killed"); });
  CHECK(kModulesUnloadAction.run_rests(host).error().code == ErrorCode::interrupted);
  CHECK(host.files().read(kStoppedServices).value() == "docker 000000000000\n");
}

TEST_CASE("modules-unload: a container that its runtime would restart is stopped and started again") {
  if (!is_root()) return;
  Machine machine(kAll);
  const std::string docker = "docker 000000000000";
  machine.container();
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded().empty());
  CHECK_FALSE(machine.active[docker]);
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  REQUIRE(kModulesUnloadAction.run_rests(host));
  CHECK(machine.active[docker]);
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("modules-unload: a container that has GPUs and uses none is restarted, and noted for a boot on trial") {
  if (!is_root()) return;
  const std::string docker = "docker 000000000000";
  for (const char* mount : {"0:5 /nvidia0 /dev/nvidia0", "8:1 /usr/lib/libcuda.so.550.54 /usr/lib/libcuda.so.550.54"}) {
    CAPTURE(mount);
    Machine machine(kAll);
    machine.idle_container(mount);
    Host host = machine.host();
    REQUIRE(kDriverModulesAction.before_reboot(host, kEntry));
    CHECK(host.files().read(kStoppedServices).value() == docker + "\n");
    CHECK(machine.active[docker]);
    REQUIRE(kModulesUnloadAction.apply(host, kEntry));
    CHECK_FALSE(machine.active[docker]);
    REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
    REQUIRE(kModulesUnloadAction.run_rests(host));
    CHECK(machine.active[docker]);
    CHECK_FALSE(host.files().exists(kStoppedServices));
  }
  for (const auto& [mount, policy] :
       {std::pair("0:5 /nvidia0 /dev/nvidia0", "no\n"), {"0:5 /sda /dev/sda", "always\n"}}) {
    CAPTURE(mount, policy);
    Machine machine(kAll);
    machine.idle_container(mount, policy);
    Host host = machine.host();
    REQUIRE(kModulesUnloadAction.apply(host, kEntry));
    CHECK(machine.active[docker]);
    CHECK(machine.loaded().empty());
  }
}

TEST_CASE("modules-unload: a kill between two services forgets neither") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["nvidia-persistenced.service"] = machine.active["display-manager.service"] = true;
  machine.holds("Xorg", "0::/system.slice/display-manager.service\n");
  machine.runner.on("systemctl stop display-manager.service",
                    [](const Command&) -> Result<CommandResult> { return fail(ErrorCode::interrupted, "killed"); });
  Host host = machine.host();
  CHECK(kModulesUnloadAction.apply(host, kEntry).error().code == ErrorCode::interrupted);
  CHECK_FALSE(machine.active["nvidia-persistenced.service"]);
  machine.runner.on("systemctl stop display-manager.service",
                    [&](const Command&) { return machine.set("display-manager.service", false); });
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  REQUIRE(kModulesUnloadAction.run_rests(host));
  CHECK(machine.active["nvidia-persistenced.service"]);
  CHECK(machine.active["display-manager.service"]);
}

TEST_CASE("modules-unload: a display manager is not stopped under a person who is logged in") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["display-manager.service"] = true;
  machine.holds("gdm-session-wor", "0::/system.slice/gdm.service\n");
  machine.put("run/systemd/sessions/2", "UID=1000\nUSER=ada\nSTATE=active\nTYPE=x11\nCLASS=user\nSEAT=seat0\n");
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded() == kAll);
  CHECK(std::ranges::count_if(machine.runner.ran,
                              [](const std::string& ran) { return ran.find(" stop ") != ran.npos; }) == 0);
}

TEST_CASE("modules-unload: what a process holds is left to the reboot, and no service is stopped for nothing") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["nvidia-persistenced.service"] = true;
  machine.holds("python3", "0::/user.slice/user-1000.slice/session-4.scope\n");
  Host host = machine.host();
  REQUIRE(kModulesUnloadAction.apply(host, kEntry));
  CHECK(machine.loaded() == kAll);
  CHECK(std::ranges::count(machine.runner.ran, "systemctl stop nvidia-persistenced.service") == 0);
}

TEST_CASE("modules-unload: plan names what is stopped, and who is logged in") {
  if (!is_root()) return;
  Machine machine(kAll);
  machine.active["nvidia-persistenced.service"] = machine.active["display-manager.service"] = true;
  machine.holds("Xorg", "0::/system.slice/lightdm.service\n");
  machine.container();
  const auto plan = kModulesUnloadAction.describe(machine.host(), kEntry);
  REQUIRE(plan);
  CHECK(plan->commands == Commands{"systemctl stop nvidia-persistenced.service",
                                   "systemctl stop display-manager.service", "docker stop 000000000000",
                                   "rmmod nvidia_drm", "rmmod nvidia_uvm", "rmmod nvidia_modeset", "rmmod nvidia"});
  CHECK(plan->summary.find("nvidia-persistenced.service, display-manager.service, docker 000000000000") !=
        std::string::npos);
  machine.put("run/systemd/sessions/2", "UID=1000\nUSER=ada\nSTATE=active\nTYPE=x11\nCLASS=user\nSEAT=seat0\n");
  CHECK(kModulesUnloadAction.describe(machine.host(), kEntry)->summary.find("session 2 of ada on seat0") !=
        std::string::npos);
}

TEST_CASE(
    "modules-load: while the new modules are banned, each is loaded past its own install line, after those it needs") {
  if (!is_root()) return;
  Machine machine({});
  machine.put("etc/modprobe.d/00-p2pd-trial.conf", "# Written by p2pd\ninstall nvidia /bin/false\n");
  const Commands loads = {"modprobe --ignore-install nvidia", "modprobe --ignore-install nvidia-uvm",
                          "modprobe --ignore-install nvidia-modeset", "modprobe --ignore-install nvidia-drm"};
  for (const std::string& command : loads) machine.runner.on(command);
  Host host = machine.host();
  REQUIRE(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(machine.runner.ran == loads);
}

TEST_CASE("modules-unload: of an image nothing is loaded") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  Host host(Root::open(directory.path()).value(), runner);
  CHECK(kModulesUnloadAction.apply(host, kEntry));
  CHECK(kModulesLoadAction.apply(host, Parameters::object()));
  CHECK(kModulesUnloadAction.run_rests(host));
  CHECK(runner.ran.empty());
}
