// SPDX-License-Identifier: MIT
#include <iterator>

#include "base/action.hpp"
#include "fake_runner.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "made_bus.hpp"

namespace p2pd {
extern const Probe kAcsRedirection;
extern const Action kAcsRedirectionAction;
}  // namespace p2pd

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Two cards below one switch, 03 and 04, and one in a slot of its own, 05, if wanted.
void add_switch(MadeBus& bus, int root_acs, int down_acs, bool third) {
  bus.add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 4, .vendor = 0x1022, .acs = root_acs});
  bus.add({.address = "0000:01:00.0", .type = kUp, .below = 2, .last_below = 4, .vendor = 0x1000, .acs = 0x1d});
  for (int i = 0; i < 2; ++i) {
    bus.add({.address = fmt::format("0000:02:0{}.0", i),
             .type = kDown,
             .below = 3 + i,
             .last_below = 3 + i,
             .vendor = 0x1000,
             .acs = down_acs});
    bus.add({.address = fmt::format("0000:0{}:00.0", 3 + i)});
  }
  if (third) bus.add_slot(5, {}, {.acs = 0});
}

constexpr char kKept[] = "/var/lib/p2pd/acs";

/// The run that changes, or is undone.
struct Runs : ChangeRecorder {
  std::string now = "1-acs";
  Result<void> before_change(std::string_view, Restore) override { return {}; }
  std::string change() const override { return now; }
};

/// A running bus in sysfs, whose configuration space is regular files: two slots, one of which redirects.
struct Sysfs {
  Sysfs() {
    boot("one");
    add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 1, .vendor = 0x1022, .acs = 0x7d});
    add({.address = "0000:00:02.0", .type = kRoot, .below = 2, .last_below = 2, .vendor = 0x1022, .acs = 0x11});
    add({.address = "0000:00:03.0", .type = kRoot, .below = 3, .last_below = 3, .vendor = 0x1022, .acs = 0x1d});
    add({.address = "0000:01:00.0"});
    add({.address = "0000:02:00.0"});
  }
  void file(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((directory / path).parent_path());
    std::ofstream(directory / path, std::ios::binary) << content;
  }
  void boot(const std::string& id) const { file("proc/sys/kernel/random/boot_id", id + "\n"); }
  static std::string folder(const std::string& address) { return "sys/bus/pci/devices/" + address; }
  void add(const Function& function) const {
    const std::vector<std::uint8_t> bytes = MadeBus::config_of(function);
    const std::string at = folder(function.address);
    file(at + "/config", std::string(bytes.begin(), bytes.end()));
    file(at + "/vendor", fmt::format("{:#06x}\n", function.vendor));
    file(at + "/device", fmt::format("{:#06x}\n", function.device));
    file(at + "/class", function.type == kGpu ? "0x030000\n" : "0x060400\n");
    file(at + "/resource", "0x0 0x0 0x0\n");
  }
  void bind(const std::string& address, const std::string& driver) const {
    std::filesystem::create_symlink("../../../../bus/pci/drivers/" + driver, directory / (folder(address) + "/driver"));
  }
  std::string config(const std::string& address) const {
    std::ifstream in(directory / (folder(address) + "/config"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> configs() const {
    return {config("0000:00:01.0"), config("0000:00:02.0"), config("0000:00:03.0"), config("0000:01:00.0")};
  }
  int control(const std::string& address) const { return static_cast<unsigned char>(config(address)[0x306]); }
  Verdict verdict() const { return kAcsRedirection.check(host, Parameters::object())->verdict; }
  void refused(const std::string& why) {
    const auto done = kAcsRedirectionAction.apply(host, {});
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(contains(done.error().message, why));
    CHECK_FALSE(done.error().next.empty());
    CHECK(control("0000:00:01.0") == 0x7d);
    CHECK_FALSE(host.files().exists(kKept));
  }

  TemporaryDirectory directory;
  FakeRunner runner;
  Runs runs;
  Host host{Root::open(directory.path()).value(), runner, &runs};
};

nlohmann::json array(std::initializer_list<const char*> items) {
  return nlohmann::json(std::vector<std::string>(items.begin(), items.end()));
}

}  // namespace

TEST_CASE("acs-redirection: machine records") {
  for (const auto& [machine, verdict, redirecting] :
       std::vector<std::tuple<const char*, Verdict, std::size_t>>{{"h200-x4-vm", Verdict::not_applicable, 0},
                                                                  {"rtx4090-x2-acs-elsewhere", Verdict::pass, 0},
                                                                  {"rtx4090-x2-switch-acs", Verdict::fail, 2},
                                                                  {"no-gpu", Verdict::not_applicable, 0},
                                                                  {"one-4090", Verdict::not_applicable, 0},
                                                                  {"rtx3090-x4-epyc", Verdict::fail, 4},
                                                                  {"rtx4090-x2-am5", Verdict::fail, 2},
                                                                  {"rtx4090-x2-rebar-off", Verdict::pass, 0},
                                                                  {"rtx4090-x8-two-socket", Verdict::fail, 10},
                                                                  {"rtx5090-x2-genoa", Verdict::fail, 2}}) {
    CAPTURE(machine);
    const Finding finding = MadeBus::recorded(kAcsRedirection, machine);
    CHECK(finding.verdict == verdict);
    CHECK(finding.facts.value("redirecting", nlohmann::json()).size() == redirecting);
    CHECK(finding.next.empty() == (verdict != Verdict::fail));
  }
}

TEST_CASE("acs-redirection: a kernel that leaves what the firmware set despite its argument") {
  MadeBus bus;
  add_switch(bus, 0, 0x1d, false);
  bus.file("proc/cmdline", "ro iommu=pt pci=disable_acs_redir=02:00.0;0000:02:01.0,realloc\n");
  bus.file("proc/sys/kernel/osrelease", "6.11.0-26-generic\n");
  Finding finding = bus.look(kAcsRedirection);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(contains(finding.summary, "Linux 6.11.0-26-generic left it despite pci=disable_acs_redir"));
  CHECK(contains(finding.next, "setpci"));
  CHECK(bus.look(kAcsRedirection, {{"asked", true}}).verdict == Verdict::fail);
  CHECK(bus.look(kAcsRedirection, {{"asked", false}}).verdict == Verdict::pass);
  bus.file("proc/cmdline", "ro pci=disable_acs_redir=0000:02:00.0\n");  // one port of two
  CHECK(contains(bus.look(kAcsRedirection, {{"asked", true}}).summary, "1 of 2 ports"));
  finding = bus.look(kAcsRedirection, {{"asked", false}});
  CHECK(finding.verdict == Verdict::fail);
  CHECK(contains(finding.summary, "1 of 2 ports"));
  CHECK(contains(finding.next, "\"pci=disable_acs_redir=0000:02:00.0;0000:02:01.0\""));
  bus.file("proc/cmdline", "ro quiet\n");
  CHECK(bus.look(kAcsRedirection, {{"asked", true}}).verdict == Verdict::pass);
  CHECK(contains(finding.next, "Linux 6.11.0-26-generic may leave what the firmware set"));
}

TEST_CASE("acs-redirection: the argument keeps the ports that the running kernel clears") {
  const std::vector<AcsPort> ports = {{.address = "0000:00:01.0", .readable = true, .control = 0x11},
                                      {.address = "0000:00:02.0", .readable = true, .control = 0x1d}};
  CHECK(acs_argument(ports) == "pci=disable_acs_redir=0000:00:02.0");
  CHECK(acs_argument(ports, {"0000:00:01.0"}) == "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0");
  CHECK(acs_argument({ports[0]}, {"0000:00:01.0"}).empty());
  const auto asked = [](const char* line) { return ports_without_acs_redirect(parse_kernel_line(line)); };
  using Ports = std::vector<std::string>;
  CHECK(asked("pci=nomsi quiet").empty());
  CHECK(asked("pci=disable_acs_redir=00:01.0;0001:02:00.0,nomsi") == Ports{"0000:00:01.0", "0001:02:00.0"});
  CHECK(asked("pci=disable_acs_redir=00:01.0 pci=nomsi,disable_acs_redir=00:02.0") == Ports{"0000:00:02.0"});
}

TEST_CASE("acs-redirection: the kernels that may leave what the firmware set") {
  for (const auto& [release, keeps] : {std::pair{"6.10.14", false},
                                       {"6.11.0-26-generic", true},
                                       {"6.11.11", true},
                                       {"6.12.22", true},
                                       {"6.12.23", false},
                                       {"6.12.95+deb13-amd64", false},
                                       {"6.13.10", true},
                                       {"6.13.11", false},
                                       {"6.14.0-29-generic", true},
                                       {"6.14.2", false},
                                       {"6.15.0", false},
                                       {"5.12.1", false},
                                       {"7.12.0", false},
                                       {"6", false},
                                       {"x", false}}) {
    INFO(release);
    CHECK(may_keep_acs_redirect(release) == keeps);
  }
}

TEST_CASE("acs-redirection: only ports at which a pair parts count") {
  MadeBus bus;
  SECTION("below one switch, the port above it does not") {
    add_switch(bus, 0x1d, 0x01, false);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::pass);
    CHECK(finding.evidence.size() == 2);
    CHECK(finding.evidence[0].value == "control 0x0001");
  }
  SECTION("with a card elsewhere, it does") {
    add_switch(bus, 0x1d, 0x01, true);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.facts["redirecting"] == array({"0000:00:01.0"}));
    CHECK(contains(finding.summary, "through the IOMMU"));
    CHECK(contains(finding.next, "pci=disable_acs_redir=0000:00:01.0\""));
  }
  SECTION("ports of the switch") {
    add_switch(bus, 0, 0x1d, false);
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.facts["redirecting"] == array({"0000:02:00.0", "0000:02:01.0"}));
    CHECK(contains(finding.summary, "leaves the switch"));
    CHECK(contains(finding.next, "disable_acs_redir=0000:02:00.0;0000:02:01.0"));
    CHECK(contains(finding.next, "virtual machine"));
  }
}

TEST_CASE("acs-redirection: which bits redirect") {
  for (const auto& [bit, redirects] : std::vector<std::pair<int, bool>>{{0x01, false},
                                                                        {0x02, false},
                                                                        {0x04, true},
                                                                        {0x08, true},
                                                                        {0x10, false},
                                                                        {0x20, true},
                                                                        {0x40, false},
                                                                        {0x53, false}}) {
    CAPTURE(bit);
    MadeBus bus;
    bus.add_slot(1, {}, {.acs = bit});
    bus.add_slot(2, {}, {.acs = 0});
    const Finding finding = bus.look(kAcsRedirection);
    CHECK(finding.verdict == (redirects ? Verdict::fail : Verdict::pass));
    CHECK(finding.evidence[0].value == fmt::format("control 0x{:04x}{}", bit, redirects ? ", redirects" : ""));
  }
}

TEST_CASE("acs-redirection: absent is fine, unreadable is not") {
  MadeBus bus;
  bus.add_slot(1);
  bus.add_slot(2);
  const Finding none = bus.look(kAcsRedirection);
  CHECK(none.verdict == Verdict::pass);
  CHECK(none.evidence[0].value == "no such capability");

  bus.add_slot(3, {}, {.bytes = 256});
  const Finding finding = bus.look(kAcsRedirection);
  CHECK(finding.verdict == Verdict::unknown);
  CHECK(contains(finding.summary, "0000:00:03.0"));
  CHECK(contains(finding.next, "as root"));

  bus.add_slot(4, {}, {.acs = 0x0c});
  CHECK(bus.look(kAcsRedirection).verdict == Verdict::fail);

  const TemporaryDirectory empty;
  CHECK_FALSE(MadeBus::look_at(kAcsRedirection, empty.path()));
}

TEST_CASE("acs-redirection: cleared where GPUs part and nowhere else, and given back to the byte") {
  Sysfs bus;
  const std::vector<std::string> before = bus.configs();
  CHECK(bus.verdict() == Verdict::fail);
  CHECK(kAcsRedirectionAction.describe(bus.host, {})->commands ==
        std::vector<std::string>{"setpci -s 0000:00:01.0 ECAP_ACS+6.w=0051    # was 007d"});
  REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
  CHECK(bus.verdict() == Verdict::pass);
  CHECK(bus.control("0000:00:01.0") == 0x51);
  CHECK(bus.control("0000:00:02.0") == 0x11);
  CHECK(bus.control("0000:00:03.0") == 0x1d);  // no GPU is below that one
  const std::vector<std::string> after = bus.configs();
  for (std::size_t i = 0; i < before[0].size(); ++i)
    if (i != 0x306) CHECK(before[0][i] == after[0][i]);
  CHECK(bus.host.files().read("/var/lib/p2pd/acs/1-acs/one").value() == "0000:00:01.0 0x007d\n");
  CHECK(kAcsRedirectionAction.describe(bus.host, {})->commands.empty());
  REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
  CHECK(bus.configs() == after);
  REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));
  CHECK(bus.configs() == before);
  CHECK_FALSE(bus.host.files().exists(kKept));
  REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));  // as after a kill
  CHECK(bus.runner.ran.empty());
}

TEST_CASE(
    "acs-redirection: after a killed apply the first value stays kept, that of another boot is not written back") {
  Sysfs bus;
  bus.file("var/lib/p2pd/acs/1-acs/one", "0000:00:01.0 0x007f\n0000:09:00.0 0x001d\n");
  REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
  SECTION("on this boot; a port that is gone is left out") {
    REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));
    CHECK(bus.control("0000:00:01.0") == 0x7f);
  }
  SECTION("on the next one") {
    bus.boot("two");
    REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));
    CHECK(bus.control("0000:00:01.0") == 0x51);
    CHECK_FALSE(bus.host.files().exists(kKept));
  }
  SECTION("applied on the next one") {
    bus.boot("two");
    bus.add({.address = "0000:00:01.0", .type = kRoot, .below = 1, .last_below = 1, .vendor = 0x1022, .acs = 0x1d});
    REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
    CHECK(bus.host.files().read("/var/lib/p2pd/acs/1-acs/two").value() == "0000:00:01.0 0x001d\n");
  }
}

TEST_CASE("acs-redirection: the undo of a run leaves what an earlier one cleared") {
  Sysfs bus;
  REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
  bus.add({.address = "0000:00:02.0", .type = kRoot, .below = 2, .last_below = 2, .vendor = 0x1022, .acs = 0x1d});
  bus.runs.now = "2-acs";
  REQUIRE(kAcsRedirectionAction.apply(bus.host, {}));
  CHECK(bus.control("0000:00:01.0") == 0x51);
  CHECK(bus.control("0000:00:02.0") == 0x11);
  REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));
  CHECK(bus.control("0000:00:01.0") == 0x51);
  CHECK(bus.control("0000:00:02.0") == 0x1d);
  bus.runs.now = "1-acs";
  REQUIRE(kAcsRedirectionAction.undo(bus.host, {}));
  CHECK(bus.control("0000:00:01.0") == 0x7d);
  CHECK(bus.control("0000:00:02.0") == 0x1d);
  CHECK_FALSE(bus.host.files().exists(kKept));
}

TEST_CASE("acs-redirection: refused under lockdown, beside a guest, and where a port does not take it") {
  Sysfs bus;
  SECTION("lockdown") {
    bus.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    bus.refused("locked down (integrity)");
  }
  SECTION("a guest, anywhere") {
    bus.add({.address = "0000:03:00.0"});
    bus.bind("0000:03:00.0", "vfio-pci");
    bus.refused("0000:03:00.0 is bound to vfio-pci");
  }
  SECTION("no lockdown, another driver") {
    bus.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    bus.bind("0000:01:00.0", "nvidia");
    CHECK(kAcsRedirectionAction.apply(bus.host, {}));
  }
  SECTION("a link that leads out of the root, and functions that are not there") {
    std::filesystem::remove(bus.directory / (Sysfs::folder("0000:00:01.0") + "/config"));
    std::filesystem::create_symlink("/dev/null", bus.directory / (Sysfs::folder("0000:00:01.0") + "/config"));
    PciDevice device;
    for (const char* address : {"0000:00:01.0", "0000:09:00.0", "no address"}) {  // the first leads out of the root
      device.address = address;
      CHECK_FALSE(write_pci_word(bus.host, device, 0x306, 0));
    }
  }
}
