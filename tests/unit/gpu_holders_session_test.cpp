// SPDX-License-Identifier: MIT
// gpu-holders: users' desktops at the screens of the machine, which a restart would end.
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kGpuHolders;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kUsed[] = "nvidia_uvm 1 4 - Live 0x0\nnvidia 1 9 nvidia_uvm, Live 0x0\n";
const Parameters kIgnore = {{"ignore_services", true}};

struct Machine : ChangedRecord {
  explicit Machine(std::string_view modules = "nvidia 1 0 - Live 0x0\n") { file("proc/modules", modules); }
  Finding look(const Parameters& with) const {
    FakeRunner runner;
    return kGpuHolders.check(Host(root(), runner), with).value();
  }
};

}  // namespace

TEST_CASE("gpu-holders: a person's desktop is that person's to end, a login screen is nobody's") {
  const Machine machine(kUsed);
  machine.process(40, "gdm-session-wor", "0::/system.slice/gdm.service\n", {"/dev/nvidiactl"});
  machine.process(41, "gnome-shell",
                  "0::/user.slice/user-117.slice/user@117.service/session.slice/org.gnome.Shell@wayland.service\n",
                  {"/dev/nvidia0"});
  machine.session("c1", kGreeter);
  CHECK(machine.look(kIgnore).verdict == Verdict::pass);
  CHECK(machine.look(kIgnore).summary ==
        "only services hold GPUs, which are stopped and started again: display server gdm-session-wor, display server "
        "gnome-shell");

  machine.session("2", kPerson);
  const Finding finding = machine.look(kIgnore);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "session 2 of ada on seat0 is open: a restart would end it");
  CHECK(holds(finding.next, "Log out there"));
  CHECK(holds(finding.next, "sessions: end"));
  CHECK(machine.look({{"ignore_services", true}, {"sessions", "busy"}}).verdict == Verdict::fail);

  machine.process(42, "gnome-shell",
                  "0::/user.slice/user-1000.slice/user@1000.service/session.slice/org.gnome.Shell@wayland.service\n",
                  {"/dev/nvidia0"});
  CHECK(machine.look(kIgnore).summary == finding.summary);  // reported once
  const Finding ends = machine.look({{"ignore_services", true}, {"sessions", "end"}});
  CHECK(ends.verdict == Verdict::pass);
  CHECK(holds(ends.summary, "session 2 of ada on seat0"));
  CHECK(ends.facts["ends"] ==
        nlohmann::json{"display server gdm-session-wor", "display server gnome-shell", "session 2 of ada on seat0"});
}

TEST_CASE("gpu-holders: a person's desktop keeps the machine from a restart where no NVIDIA module is loaded, too") {
  const Machine machine("");
  machine.session("2", kPerson);
  CHECK(machine.look(kIgnore).verdict == Verdict::fail);
  CHECK(machine.look({{"ignore_services", true}, {"sessions", "end"}}).verdict == Verdict::not_applicable);
}

TEST_CASE("gpu-holders: a session that is no person's desktop at a seat keeps nothing") {
  for (const char* session :
       {kGreeter,
        "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=1\nTYPE=tty\nCLASS=user\n",                      // ssh
        "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=0\nTYPE=tty\nCLASS=user\nSEAT=seat0\nVTNR=2\n",  // a console
        "UID=1000\nUSER=ada\nSTATE=closing\nREMOTE=0\nTYPE=x11\nCLASS=user\nSEAT=seat0\n",         // logged out
        "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=0\nTYPE=unspecified\nCLASS=manager\n", "", "garbage",
        "CLASS=user\n"}) {
    CAPTURE(session);
    const Machine machine;
    machine.process(1, "systemd", "0::/init.scope\n", {});
    machine.session("2", session);
    machine.file("run/systemd/sessions/2.ref", "");
    CHECK(machine.look(kIgnore).verdict == Verdict::pass);
  }
}

TEST_CASE("gpu-holders: a job beside a person's desktop is told, too") {
  const Machine machine(kUsed);
  machine.process(50, "train", "0::/user.slice/user-1000.slice/session-7.scope\n", {"/dev/nvidia0"});
  machine.session("2", kPerson);
  machine.session("7", "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=1\nTYPE=tty\nCLASS=user\n");
  CHECK(machine.look(kIgnore).summary ==
        "GPUs are in use by train (process 50); session 2 of ada on seat0 is open: a restart would end it");
  CHECK(machine.look({{"ignore_services", true}, {"sessions", "end"}}).summary ==
        "GPUs are in use by train (process 50)");
}

TEST_CASE("gpu-holders: the display manager is the unit that display-manager.service names") {
  const Machine machine(kUsed);
  machine.process(40, "Hyprland", "0::/system.slice/greetd.service\n", {"/dev/nvidia0"});
  CHECK(machine.look(kIgnore).verdict == Verdict::fail);
  machine.link("etc/systemd/system/display-manager.service", "/usr/lib/systemd/system/greetd.service");
  CHECK(machine.look(kIgnore).verdict == Verdict::pass);
}
