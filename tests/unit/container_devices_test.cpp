// SPDX-License-Identifier: MIT
#include <filesystem>

#include "base/action.hpp"
#include "base/directories.hpp"
#include "base/log.hpp"
#include "catch.hpp"
#include "engine/undo.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/driver/ready.hpp"
#include "machines.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kContainerDevices;
extern const Action kContainerDevicesAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kGenerate[] = "nvidia-ctk cdi generate --output=/var/cache/p2pd/.cdi.new/nvidia.yaml";

std::string specification(const std::string& version, const std::string& device = "\"0\"") {
  return "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: " + device +
         "\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\ncontainerEdits:\n  hooks:\n"
         "  - args:\n    - --link\n    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so\n    hookName: "
         "createContainer\n"
         "  mounts:\n  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so." +
         version + "\n    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so." + version +
         "\n  - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version +
         "\n  - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2\n";
}

struct Machine : test::MadeTree {
  Machine() {
    put("usr/bin/nvidia-ctk", "");
    fs::permissions(directory / "usr/bin/nvidia-ctk", fs::perms(0755));
    put("usr/lib/x86_64-linux-gnu/libcuda.so.570.86.16", "");
    fs::create_symlink("libcuda.so.570.86.16", directory / "usr/lib/x86_64-linux-gnu/libcuda.so.1");
  }
  void makes(const std::string& text, const std::string& command = kGenerate) {
    runner.on(command, [this, text](const Command&) {
      put("var/cache/p2pd/.cdi.new/nvidia.yaml", text);
      return Result<CommandResult>(CommandResult{});
    });
  }
  Finding look() const { return kContainerDevices.check(host, {}).value(); }
  std::string text(const char* path) const { return host.files().read(path).value_or(""); }
};

}  // namespace

TEST_CASE("cdi: what a specification names, in YAML and JSON") {
  CdiSpecification found = parse_cdi(specification("550.54.15", "GPU-1f2e"));
  CHECK(found.versions == std::set<std::string>{"550.54.15"});
  CHECK(found.devices == std::set<std::string>{"GPU-1f2e"});
  found = parse_cdi("{\n \"devices\": [\n {\n  \"name\": \"all\",\n \"x\": \"/usr/lib64/libcuda.so.535.1.2\"}]}");
  CHECK(found.versions == std::set<std::string>{"535.1.2"});
  CHECK(found.devices == std::set<std::string>{"all"});
  for (const char* nothing : {"", "name", "name:", "- name: ''", "libcuda.so.", "names: x", "libcuda.so.1"}) {
    found = parse_cdi(nothing);
    CHECK(found.versions.empty());
    CHECK(found.devices.empty());
  }
}

TEST_CASE("container-devices: stale, fresh, asked for") {
  Machine machine;
  CHECK(machine.look().verdict == Verdict::not_applicable);
  SECTION("a specification") {
    machine.put("etc/cdi/nvidia.yaml", specification("550.54.15"));
    CHECK(machine.look().summary == "/etc/cdi/nvidia.yaml names 550.54.15; the installed driver is 570.86.16");
    machine.put("etc/cdi/nvidia.yaml", specification("570.86.16"));
    CHECK(machine.look().verdict == Verdict::pass);
    machine.put("var/run/cdi/nvidia.yaml", "devices: []\n");
    CHECK(machine.look().summary == "/var/run/cdi/nvidia.yaml names no driver; the installed driver is 570.86.16");
    fs::remove(machine.directory / "usr/lib/x86_64-linux-gnu/libcuda.so.1");
    CHECK(machine.look().verdict == Verdict::not_applicable);
    fs::create_symlink("libcuda.so.570.86.16", machine.directory / "usr/lib/libcuda.so.1");
    machine.put("usr/lib/libcuda.so.570.86.16", "");
    fs::create_symlink("/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.16", machine.directory / "usr/local-link");
    CHECK(machine.look().verdict == Verdict::fail);
    fs::remove(machine.directory / "usr/bin/nvidia-ctk");
    CHECK(machine.look().verdict == Verdict::not_applicable);
  }
  SECTION("a runtime") {
    machine.put("etc/nvidia-container-runtime/config.toml", "[nvidia-container-runtime]\nmode = \"auto\"\n");
    machine.put("etc/docker/daemon.json", R"({"features": {"cdi": false}})");
    CHECK(machine.look().verdict == Verdict::not_applicable);
    machine.put("etc/docker/daemon.json", R"({"features": {"cdi": true}})");
    CHECK(machine.look().summary == "/etc/docker/daemon.json asks for CDI, and there is no specification");
    machine.put("etc/nvidia-container-runtime/config.toml", "  mode = \"cdi\"\n");
    CHECK(machine.look().verdict == Verdict::fail);
    machine.makes(specification("570.86.16"));
    REQUIRE(kContainerDevicesAction.apply(machine.host, {}));
    CHECK(machine.look().verdict == Verdict::pass);
  }
}

TEST_CASE("container-devices: made anew beside, checked, undone to the byte") {
  Machine machine;
  const test::TemporaryDirectory state;
  UndoStore undo =
      UndoStore::open(Root::open(state.path()).value(), Root::open(machine.host.files().directory()).value()).value();
  Host host(Root::open(machine.host.files().directory()).value(), machine.runner, &undo);
  undo.begin({1, "s", "container-devices", "container-devices", Parameters::object()});
  const std::string before = specification("550.54.15");
  machine.put("etc/cdi/nvidia.yaml", before);
  CHECK(kContainerDevicesAction.describe(host, {})->commands ==
        std::vector<std::string>{std::string(kGenerate) + "    # then, checked, /etc/cdi/nvidia.yaml"});
  SECTION("of another version: nothing is replaced") {
    machine.makes(specification("550.54.15"));
    const auto done = kContainerDevicesAction.apply(host, {});
    REQUIRE_FALSE(done);
    CHECK(done.error().next.find("nvidia-smi") != std::string::npos);
    CHECK(machine.text("/etc/cdi/nvidia.yaml") == before);
  }
  SECTION("without devices: nothing is replaced") {
    machine.makes("hostPath: libcuda.so.570.86.16\n");
    CHECK_FALSE(kContainerDevicesAction.apply(host, {}));
    CHECK(machine.text("/etc/cdi/nvidia.yaml") == before);
  }
  SECTION("nvidia-ctk fails") {
    machine.runner.on(kGenerate, "", 1, "failed to initialize NVML");
    CHECK(kContainerDevicesAction.apply(host, {}).error().message.find("NVML") != std::string::npos);
    CHECK(machine.text("/etc/cdi/nvidia.yaml") == before);
  }
  SECTION("fit") {
    machine.makes(specification("570.86.16"));
    REQUIRE(kContainerDevicesAction.apply(host, {}));
    CHECK(machine.text("/etc/cdi/nvidia.yaml") == specification("570.86.16"));
    CHECK(machine.look().verdict == Verdict::pass);
    REQUIRE(kContainerDevicesAction.apply(host, {}));
    CHECK(machine.runner.ran.size() == 1);
    CHECK(kContainerDevicesAction.describe(host, {})->commands.empty());
  }
  CHECK_FALSE(fs::exists(machine.directory / "var/cache/p2pd/.cdi.new"));
  REQUIRE(undo.note_result());
  CHECK(undo.restore_newest()->empty());
  CHECK(machine.text("/etc/cdi/nvidia.yaml") == before);
  CHECK_FALSE(fs::exists(machine.directory / "var"));
}

TEST_CASE("container-devices: devices keep the kind of name that they had") {
  Machine machine;
  for (const auto& [name, strategy] : {std::pair{"GPU-1f2e", " --device-name-strategy=uuid"},
                                       {"gpu0", " --device-name-strategy=type-index"},
                                       {"all", ""}}) {
    machine.put("etc/cdi/nvidia.yaml", specification("550.54.15", name));
    machine.makes(specification("570.86.16", name), std::string(kGenerate) + strategy);
    CHECK(kContainerDevicesAction.apply(machine.host, {}));
  }
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("cdi: p2pd's own device holds the settings while this machine is ready") {
  const test::ChangedRecord record("rtx4090-x8-two-socket");
  test::FakeRunner runner;
  Host host(record.root(), runner);
  const Proof ready{.limited = false, .fit_for = {"copies", "nccl"}, .summary = ""};
  const auto edits = [&] {
    const auto specification = nlohmann::json::parse(host.files().read(kOwnCdi).value());
    CHECK(specification["cdiVersion"] == "0.3.0");
    CHECK(specification["kind"] == "p2pd.org/p2p");
    CHECK(specification["devices"].size() == 1);
    CHECK(specification["devices"][0]["name"] == "ready");
    return specification["devices"][0]["containerEdits"];
  };
  record.file("run/cdi/vendor.json", "{}");
  REQUIRE(announce(host, ready));
  CHECK(edits() ==
        nlohmann::json{
            {"env", {"P2PD_FIT_FOR=copies,nccl", "NCCL_P2P_LEVEL=SYS", "NCCL_GRAPH_REGISTER=0", "GGML_CUDA_P2P=1"}}});
  SECTION("nccl.conf where p2pd wrote it") {
    record.file("etc/nccl.conf", "NCCL_DEBUG=WARN\n");
    REQUIRE(announce(host, ready));
    CHECK_FALSE(edits().contains("mounts"));
    record.file("etc/nccl.conf", "# BEGIN p2pd\nNCCL_P2P_LEVEL=SYS\n# END p2pd\n");
    REQUIRE(announce(host, ready));
    REQUIRE(edits()["mounts"].size() == 1);
    CHECK(edits()["mounts"][0] == nlohmann::json{{"hostPath", "/etc/nccl.conf"},
                                                 {"containerPath", "/etc/nccl.conf"},
                                                 {"options", {"ro", "nosuid", "nodev", "bind"}}});
  }
  SECTION("what the last full proof knows") {
    record.file(proof_report_file().substr(1), R"({"gpus": [{"name": "A"}, {"name": "B"}, 7]})");
    REQUIRE(announce(host, ready));
    CHECK(edits()["env"].back() == "CUDA_DEVICE_ORDER=PCI_BUS_ID");
  }
  SECTION("fit for nothing that has a setting") {
    REQUIRE(announce(host, {.limited = false, .fit_for = {}, .summary = ""}));
    CHECK(edits()["env"] == nlohmann::json{"P2PD_FIT_FOR=", "NCCL_P2P_DISABLE=1"});
  }
  SECTION("limited") {
    REQUIRE(announce(host, {.limited = true, .fit_for = {"copies"}, .summary = ""}));
    CHECK_FALSE(host.files().exists(kOwnCdi));
  }
  REQUIRE(withdraw_ready(host));
  CHECK(host.files().list("/run/cdi").value() == std::vector<std::string>{"vendor.json"});
}

TEST_CASE("cdi: without p2pd's own device a machine is ready all the same, and the log says why") {
  static std::string said;
  log::listen([](std::string_view text) { said += text; });
  const test::ChangedRecord record("rtx4090-x2-healthy");
  test::FakeRunner runner;
  Host host(record.root(), runner);
  record.file("run/cdi", "a file in the place of the directory");
  REQUIRE(announce(host, {.limited = false, .fit_for = {"nccl"}, .summary = ""}));
  CHECK(host.files().exists(ready_file()));
  CHECK(test::holds(said, "no container can ask for p2pd.org/p2p=ready: /run/cdi"));
  REQUIRE(withdraw_ready(host));
  CHECK_FALSE(host.files().exists(ready_file()));
}

TEST_CASE("container-devices: a container of Proxmox VE that has GPUs has libraries of its own") {
  const Machine machine;
  machine.put("etc/pve/lxc/104.conf", "hostname: web\nmp0: /srv,mp=/dev\n");
  CHECK_FALSE(machine.look().facts.contains("warnings"));
  machine.put("etc/pve/lxc/105.conf", "hostname: llm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional\n");
  CHECK(machine.look().facts["warnings"] ==
        nlohmann::json{"container 105 (llm) uses the GPUs with NVIDIA libraries of its own: when P2P is proven, "
                       "install those of the host's driver in it"});
}
