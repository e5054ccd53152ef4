// SPDX-License-Identifier: MIT
#include "machine/driver/gpu_holders.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kGpuHolders;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

const std::string kId = "3f2a91b0c4d5e6f708192a3b4c5d6e7f3f2a91b0c4d5e6f708192a3b4c5d6e7f";
constexpr char kFree[] =
    "nvidia_uvm 1 0 - Live 0x0\nnvidia_drm 1 0 - Live 0x0\nnvidia_modeset 1 1 nvidia_drm, Live 0x0\n"
    "nvidia 1 2 nvidia_uvm,nvidia_modeset, Live 0x0\n";
constexpr char kUsed[] = "nvidia_uvm 1 4 - Live 0x0\nnvidia 1 9 nvidia_uvm, Live 0x0\n";

struct Machine : ChangedRecord {
  explicit Machine(std::string_view modules = kFree) { file("proc/modules", modules); }
  Finding look() const { return ChangedRecord::look(kGpuHolders); }
  Finding look(const Parameters& with) const {
    FakeRunner runner;
    runner.on("docker inspect --format '{{.HostConfig.RestartPolicy.Name}}' 3f2a91b0c4d5", "always\n");
    return kGpuHolders.check(Host(root(), runner), with).value();
  }
};

const Parameters kIgnore = {{"ignore_services", true}};

GpuHolder classified(const std::string& comm, const std::string& cgroups) {
  const Machine machine;
  machine.session("c1", kGreeter);
  machine.session("2", kPerson);
  FakeRunner runner;
  GpuHolder holder;
  holder.comm = comm;
  REQUIRE(classify(Host(machine.root(), runner), holder, cgroups));
  return holder;
}

}  // namespace

TEST_CASE("gpu-holders: what a process is, from its control groups and its name") {
  const auto is = [](const std::string& comm, const std::string& cgroups, HolderKind kind, const std::string& name) {
    const GpuHolder holder = classified(comm, cgroups);
    CAPTURE(cgroups);
    CHECK(to_string(holder.kind) == to_string(kind));
    CHECK(holder.name == name);
  };
  is("python3", "0::/system.slice/docker-" + kId + ".scope\n", HolderKind::container, "docker 3f2a91b0c4d5");
  is("python3", "12:pids:/docker/" + kId + "\n1:name=systemd:/docker/" + kId + "\n", HolderKind::container,
     "docker 3f2a91b0c4d5");
  is("python3", "0::/machine.slice/libpod-" + kId + ".scope/container\n", HolderKind::container, "podman 3f2a91b0c4d5");
  is("vllm", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + kId + ".scope\n", HolderKind::container,
     "containerd 3f2a91b0c4d5");
  is("vllm", "0::/kubepods/besteffort/pod1/" + kId + "\n", HolderKind::container, "kubernetes 3f2a91b0c4d5");
  is("bash", "0::/lxc.payload.gpu/system.slice/x.service\n", HolderKind::container, "lxc gpu");
  is("bash", "0::/lxc/105/ns/docker-" + kId + ".scope\n", HolderKind::container, "lxc 105");
  is("nvidia-persiste", "0::/system.slice/nvidia-persistenced.service\n", HolderKind::persistenced,
     "nvidia-persistenced.service");
  is("Xorg", "0::/user.slice/user-1001.slice/session-9.scope\n", HolderKind::process, "session-9.scope");
  is("gdm-x", "0::/system.slice/gdm.service\n", HolderKind::display, "gdm.service");
  is("ollama", "0::/system.slice/ollama.service\n", HolderKind::unit, "ollama.service");
  is("python3", "0::/system.slice/ssh.service\n", HolderKind::process, "ssh.service");
  is("python3", "0::/system.slice/system-ssh.slice/ssh@0-10.0.0.1:22-10.0.0.2:40000.service\n", HolderKind::process,
     "ssh@0-10.0.0.1:22-10.0.0.2:40000.service");
  is("python3", "0::/system.slice/slurmd.service\n", HolderKind::process, "slurmd.service");
  is("python3", "0::/user.slice/user-1001.slice/user@1001.service/app.slice/app-x.scope\n", HolderKind::process,
     "app-x.scope");
  is("python3", "0::/user.slice/user-1001.slice/user@1001.service/x.service\n", HolderKind::process, "x.service");
  is("python3", "0::/user.slice/user-1000.slice/session-4.scope\n", HolderKind::process, "session-4.scope");  // ssh
  is("kwin_wayland", "0::/user.slice/user-1000.slice/session-2.scope\n", HolderKind::session,
     "session 2 of ada on seat0");
  is("gnome-shell", "0::/user.slice/user-1000.slice/user@1000.service/session.slice/x.service\n", HolderKind::session,
     "session 2 of ada on seat0");
  is("gnome-shell", "0::/user.slice/user-117.slice/session-c1.scope\n", HolderKind::display, "display-manager.service");
  is("python3", "0::/user.slice/user-10.slice/user@10.service/x.service\n", HolderKind::process, "x.service");
  is("python3", "", HolderKind::process, "");
  is("python3", "no colon\n:\n::\n0::/\n", HolderKind::process, "");
  is("python3", "0::/" + kId + "0\n", HolderKind::process, "");  // 65 digits are no container's id
  is("x", "0::/system.slice/\xff\x1b[31m.service\n", HolderKind::unit, "??[31m.service");
}

TEST_CASE("gpu-holders: nobody, somebody, and nothing to hold") {
  CHECK(ChangedRecord("no-gpu").look(kGpuHolders).verdict == Verdict::not_applicable);
  const Machine machine;
  CHECK(machine.look().verdict == Verdict::not_applicable);  // no process: not running
  machine.process(1, "systemd", "0::/init.scope\n", {"/dev/null", "socket:[1]", "anon_inode:[eventpoll]"});
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().summary == "none of 1 processes holds a GPU");

  machine.process(901, "nvidia-persiste", "0::/system.slice/nvidia-persistenced.service\n",
                  {"/dev/nvidiactl", "/dev/nvidia0"});
  machine.process(4711, "python3", "0::/user.slice/user-0.slice/session-1.scope\n",
                  {"/dev/nvidia1", "/dev/nvidia1", "/dev/nvidia-uvm"});
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "GPUs are in use by nvidia-persistenced.service, python3 (process 4711)");
  CHECK(finding.next == "Stop what uses them: systemctl stop nvidia-persistenced.service; end python3 (process 4711).");
  CHECK(finding.facts["holders"][1]["devices"] == nlohmann::json{"/dev/nvidia-uvm", "/dev/nvidia1"});
  CHECK(std::ranges::find_if(finding.evidence, [](const Evidence& seen) {
          return holds(seen.value, "nvidia: ") && holds(seen.value, "used by 2 modules");
        }) != finding.evidence.end());
}

TEST_CASE("gpu-holders: a render node counts where it is an NVIDIA GPU's") {
  const Machine machine;
  machine.process(7, "sway", "0::/system.slice/sddm.service\n", {"/dev/dri/renderD129", "/dev/dri/card0"});
  CHECK(machine.look().verdict == Verdict::pass);
  machine.file("sys/class/drm/renderD129/device/vendor", "0x10de\n");
  machine.file("sys/class/drm/card0/device/vendor", "0x1002\n");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.facts["holders"][0]["devices"] == nlohmann::json::array({"/dev/dri/renderD129"}));
  CHECK(holds(finding.next, "display-manager"));
}

TEST_CASE("gpu-holders: uses that no process explains are a fail, uncounted ones unknown") {
  const Machine machine(kUsed);
  machine.process(1, "systemd", "0::/init.scope\n", {});
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "in use by no visible process: nvidia_uvm (4), nvidia (8)");
  machine.file("proc/modules", "nvidia 1 - - Live 0x0\n");
  CHECK(machine.check(kGpuHolders).error().code == ErrorCode::not_found);
  machine.file("proc/modules", std::string("\0\xff garbage", 10));
  CHECK(machine.look().verdict == Verdict::not_applicable);  // no NVIDIA module among them, nor in sysfs
  machine.file("sys/module/nvidia/version", "1\n");
  CHECK_FALSE(machine.check(kGpuHolders));
}

TEST_CASE("gpu-holders: processes that only root may see") {
  if (::geteuid() != 0) return;  // runs as another user
  const Machine machine(kUsed);
  machine.process(1, "systemd", "0::/init.scope\n", {});
  machine.process(42, "python3", "0::/\n", {"/dev/nvidia0"});
  std::filesystem::permissions(machine.path(""), std::filesystem::perms(0755));
  std::filesystem::permissions(machine.path("proc/42/fd"), std::filesystem::perms(0700));
  const auto as_nobody = [&](std::string_view modules) {
    machine.file("proc/modules", modules);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresuid(65534, 65534, 65534) != 0) ::_exit(99);
      const auto found = machine.check(kGpuHolders);
      ::_exit(found ? static_cast<int>(found->verdict) : 10 + static_cast<int>(found.error().code));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  CHECK(as_nobody(kUsed) == 10 + static_cast<int>(ErrorCode::denied));
  CHECK(as_nobody(kFree) == static_cast<int>(Verdict::pass));  // every user can read the modules' counts
  machine.file("proc/modules", kUsed);
  CHECK(machine.look().verdict == Verdict::fail);
}

TEST_CASE("gpu-holders: hundreds of processes, and those that vanish") {
  const Machine machine;
  for (int pid = 2; pid < 202; ++pid)
    machine.process(pid, "worker", "0::/system.slice/docker-" + kId + ".scope\n", {"/dev/nvidia0"});
  std::atomic<bool> done = false;
  std::thread vanish([&] {
    for (int pid = 2; pid < 102; ++pid) machine.remove("proc/" + std::to_string(pid));
    done = true;
  });
  while (!done) CHECK(machine.check(kGpuHolders));
  vanish.join();
  const Finding finding = machine.look();
  CHECK(finding.summary == "GPUs are in use by container docker 3f2a91b0c4d5");
  CHECK(finding.facts["holder_count"] == 100);
}

TEST_CASE("gpu-holders: many different ones are counted, not listed") {
  const Machine machine;
  for (int pid = 10; pid < 130; ++pid) machine.process(pid, "job" + std::to_string(pid), "0::/\n", {"/dev/nvidia0"});
  CHECK(holds(machine.look().summary, "job15 (process 15) and 114 more"));
  CHECK(machine.look().evidence.size() == 6 + 4);
  CHECK(machine.look().facts["holders"].size() == 100);
  CHECK(machine.look().facts["holder_count"] == 120);
}

TEST_CASE("gpu-holders: this host's own processes can be walked") {
  ProcessRunner runner;
  const auto holders = gpu_holders(Host(Root::open("/").value(), runner));
  REQUIRE(holders);
  CHECK(holders->processes > 0);
}

TEST_CASE("gpu-holders: p2pd's own processes, and those that are ending, do not count where services do not") {
  const Machine machine(kUsed);
  FakeRunner runner;
  const std::string session = "0::/user.slice/user-0.slice/session-1.scope\n";
  const auto holder = [&](int pid, const std::string& comm, const std::string& cgroup, const std::string& rest) {
    machine.process(pid, comm, cgroup, {"/dev/nvidia0"});
    machine.file("proc/" + std::to_string(pid) + "/stat", std::to_string(pid) + " (" + comm + ") " + rest);
  };
  const auto verdict = [&] {
    return kGpuHolders.check(Host(machine.root(), runner), {{"ignore_services", true}}).value().verdict;
  };
  // state, parent, group, session, terminal, its group, flags; pending signals are the 31st field, SIGKILL is bit 8
  const std::string times =
      " 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 18446744073709551615 0 0 0 0 0 ";  // rsslim, the 25th, is more than a long holds
  const std::string ends = " 0 0 0 0\n";
  const std::string alive = "D 1 1 1 0 -1 4194304" + times + "0" + ends;
  holder(41, "p2p-bench", "0::/system.slice/p2pd-worker.service\n", alive);
  holder(42, ") Z 1 (", session, "D 1 1 1 0 -1 4194304" + times + "256" + ends);  // hangs in the driver, and was killed
  holder(43, "python3", session, "R 1 1 1 0 -1 4194308" + times + "0" + ends);    // PF_EXITING
  holder(44, "python3", session, "Z 1 1 1 0 -1 4194304" + times + "0" + ends);
  CHECK(verdict() == Verdict::pass);
  CHECK(machine.look().verdict == Verdict::fail);  // the modules cannot be removed
  for (const auto& [comm, cgroup, stat] :
       {std::tuple("p2p-bench", session, alive),
        {"python3", session, alive},
        {"python3", session, std::string("garbage")},
        {"x", std::string("0::/user.slice/user-0.slice/user@0.service/p2pd-worker.service\n"), alive}}) {
    holder(45, comm, cgroup, stat);
    CAPTURE(comm, cgroup, stat);
    CHECK(verdict() == Verdict::fail);
  }
}

TEST_CASE("gpu-holders: this process's children are p2pd's own") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::_exit(::read(pipe[0], &byte, 1) == 1 ? 0 : 1);
  }
  ProcessRunner runner;
  const Host host(Root::open("/").value(), runner);
  GpuHolder holder;
  holder.pid = child;
  read_stat(host, holder);
  CHECK(holder.own);
  CHECK_FALSE(holder.dying);
  REQUIRE(::write(pipe[1], "", 1) == 1);
  for (int i = 0; i < 1000 && !holder.dying; ++i, ::usleep(1000)) read_stat(host, holder);
  CHECK(holder.dying);  // a zombie
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("gpu-holders: a service that is started again does not count where the plan says so, a job does") {
  const Machine machine(kUsed);
  machine.process(40, "nvidia-persiste", "0::/system.slice/nvidia-persistenced.service\n", {"/dev/nvidia0"});
  machine.process(41, "server", "0::/system.slice/docker-" + kId + ".scope\n", {"/dev/nvidia0"});
  const auto look = [&](const char* policy, bool ignore) {
    FakeRunner runner;
    runner.on("docker inspect --format '{{.HostConfig.RestartPolicy.Name}}' 3f2a91b0c4d5", policy);
    return kGpuHolders.check(Host(machine.root(), runner), {{"ignore_services", ignore}}).value();
  };
  CHECK(look("always\n", false).verdict == Verdict::fail);
  CHECK(look("always\n", true).summary ==
        "only services hold GPUs, which are stopped and started again: nvidia-persistenced.service, "
        "container docker 3f2a91b0c4d5");
  CHECK(look("unless-stopped\n", true).verdict == Verdict::pass);
  for (const char* policy : {"no\n", "on-failure\n", ""}) {
    CAPTURE(policy);
    CHECK(look(policy, true).summary == "GPUs are in use by container docker 3f2a91b0c4d5");
  }
}

TEST_CASE("gpu-holders: a name that anybody can give to a process, a unit or a control group is no service",
          "[attack]") {
  const std::string login = "0::/user.slice/user-1000.slice/session-4.scope\n";
  const std::string manager = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/";
  const std::pair<const char*, std::string> rows[] = {
      {"nvidia-persiste", login},
      {"Xorg", login},
      {"gnome-shell", "0::/system.slice/jobs.service\n"},
      {"python3", manager + "nvidia-persistenced.service\n"},
      {"python3", manager + "gdm.service\n"},
      {"python3", manager + "docker-" + kId + ".scope\n"},
      {"python3", "0::/system.slice/jobs.service/nvidia-persistenced.service\n"},  // a unit chooses the names below it
      {"python3", "0::/system.slice/jobs.service/display-manager.service\n"},
  };
  for (const auto& [comm, cgroups] : rows) {
    CAPTURE(comm, cgroups);
    const Machine machine(kUsed);
    machine.process(40, comm, cgroups, {"/dev/nvidia0"});
    CHECK(machine.look(kIgnore).verdict == Verdict::fail);
  }
}

TEST_CASE("gpu-holders: a container of Proxmox VE has its name and its command, and is no service") {
  const Machine machine(kUsed);
  machine.file("etc/pve/lxc/105.conf", "hostname: llm\ndev0: /dev/nvidia0,gid=44\n\n[before]\nhostname: old\n");
  machine.process(41, "ollama", "0::/lxc/105/ns/system.slice/ollama.service\n", {"/dev/nvidia0"});
  machine.process(42, "python3", "0::/lxc/105/ns/system.slice/docker-" + kId + ".scope\n", {"/dev/nvidia0"});
  const Finding finding = machine.look(kIgnore);
  CHECK(finding.summary == "GPUs are in use by container 105 (llm)");
  CHECK(finding.next == "Stop what uses them: pct shutdown 105.");
  machine.file("etc/pve/lxc/105.conf", "hostname: a\x1b[31mb\n");
  CHECK(machine.look().summary == "GPUs are in use by container 105 (a?[31mb)");
  machine.remove("etc/pve/lxc/105.conf");
  CHECK(machine.look().summary == "GPUs are in use by container lxc 105");
}
