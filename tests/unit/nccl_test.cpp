// SPDX-License-Identifier: MIT
#include "machine/hardware/nccl.hpp"

#include <fmt/format.h>

#include "base/action.hpp"
#include "base/directories.hpp"
#include "catch.hpp"
#include "engine/undo.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kNccl;
extern const Action kNcclAction;
}  // namespace p2pd

using namespace p2pd;
using nlohmann::json;
using test::holds;

namespace fs = std::filesystem;

namespace {

constexpr char kFile[] = "etc/nccl.conf";
constexpr char kTwoSockets[] = "rtx4090-x8-two-socket";     // SYS, and below a switch
constexpr char kOneSocket[] = "rtx3090-x4-one-small-bar1";  // PHB
constexpr char kSwitch[] = "rtx4090-x2-switch-acs";         // PIX
constexpr char kAmdPair[] = "rtx4090-x2-healthy";           // PHB, AMD

/// A record with a runner that answers no command, and a report of a proof of its GPUs.
struct Machine : test::ChangedRecord {
  explicit Machine(const std::string& record) : ChangedRecord(record) {
    const auto devices = pci_devices(host).value();
    for (const PciDevice& device : devices)
      if (device.takes_part()) report["gpus"].push_back({{"address", device.address}, {"nvlink_gb_s", 0.0}});
    report["judgement"]["fit"] = {{{"use", "nccl"}, {"fit", "fit"}}};
    for (std::size_t from = 0; from < report["gpus"].size(); ++from)
      for (std::size_t to = 0; to < report["gpus"].size(); ++to)
        if (from != to)
          report["pairs"].push_back({{"from", from},
                                     {"to", to},
                                     {"nvlink_gb_s", 0.0},
                                     {"copy_gb_s", {{"median", 25.0}}},
                                     {"staged_gb_s", {{"median", 20.0}}}});
  }
  void prove() const { file(proof_report_file().substr(1), report.dump()); }
  Finding look() const { return kNccl.check(host, {}).value(); }
  std::string text() const { return host.files().read("/" + std::string(kFile)).value_or("absent"); }

  mutable test::FakeRunner runner;
  Host host{root(), runner};
  json report;
};

/// Block for a level, without its reason.
bool is_block(const std::string& text, const std::string& level) {
  return text.starts_with("# BEGIN p2pd\n# ") && text.ends_with("\nNCCL_P2P_LEVEL=" + level + "\n# END p2pd\n");
}

NcclPair pair_at(NcclReach reach, bool intel = false) { return {"GPU 0 -> GPU 1", reach, intel}; }

}  // namespace

TEST_CASE("nccl: the level by distance") {
  const auto need = [](std::vector<NcclPair> pairs, std::size_t gpus) { return nccl_need(pairs, gpus); };
  for (const NcclReach near : {NcclReach::unknown, NcclReach::nvl, NcclReach::pix, NcclReach::pxb}) {
    CHECK(need({pair_at(near, true)}, 4).by_itself);
    CHECK(need({pair_at(near)}, 4).level == near);
  }
  for (const NcclReach far : {NcclReach::phb, NcclReach::sys}) {
    CHECK_FALSE(need({pair_at(far)}, 4).by_itself);
    CHECK(need({pair_at(far)}, 2).by_itself);  // AMD
    CHECK_FALSE(need({pair_at(far, true)}, 2).by_itself);
    CHECK(need({pair_at(NcclReach::pxb), pair_at(far)}, 4).level == far);
  }
}

TEST_CASE("nccl: P2P across NUMA nodes that host memory beats is not asked for") {
  NcclPair far = pair_at(NcclReach::sys);
  far.copy_gb_s = 12;
  far.staged_gb_s = 20;
  NcclNeed need = nccl_need({pair_at(NcclReach::phb), far}, 4);
  CHECK(need.level == NcclReach::phb);
  CHECK_FALSE(need.by_itself);
  CHECK(need.why() ==
        "across NUMA nodes P2P is slower than copies through host memory on 1 of 1 pair (GPU 0 -> GPU 1: 12.0 against "
        "20.0 GB/s)");
  need = nccl_need({pair_at(NcclReach::pxb), far}, 4);
  CHECK(need.level == NcclReach::pxb);
  CHECK(need.by_itself);
  far.copy_gb_s = 19.5;  // noise
  CHECK(nccl_need({pair_at(NcclReach::phb), far}, 4).level == NcclReach::sys);
}

TEST_CASE("nccl: nothing is written where NCCL's own choice is right") {
  for (const char* record : {kSwitch, kAmdPair, "rtx3090-x2-guest"}) {
    INFO(record);
    Machine machine(record);
    machine.prove();
    CHECK(machine.look().verdict == Verdict::pass);
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(machine.text() == "absent");
  }
  CHECK(Machine("one-4090").look().verdict == Verdict::not_applicable);
}

TEST_CASE("nccl: two sockets whose link is slower than host memory are left to NCCL's own choice") {
  Machine machine(kTwoSockets);
  machine.prove();
  CHECK(machine.look().facts["level"] == "SYS");
  for (json& pair : machine.report["pairs"]) pair["copy_gb_s"]["median"] = 9.0;
  machine.prove();
  CHECK(machine.look().facts["level"] == "PIX");
  REQUIRE(kNcclAction.apply(machine.host, {}));
  CHECK(machine.text() == "absent");
}

TEST_CASE("nccl: NVLink needs no level, by the proof or by the driver") {
  Machine machine(kOneSocket);
  CHECK(machine.look().verdict == Verdict::fail);
  SECTION("a switch") {
    for (json& gpu : machine.report["gpus"]) gpu["nvlink_gb_s"] = 450.0;
    machine.prove();
  }
  SECTION("links between pairs") {
    for (json& pair : machine.report["pairs"]) pair["nvlink_gb_s"] = 50.0;
    machine.prove();
  }
  SECTION("the driver, before a proof") {
    json answer;
    for (const json& pair : machine.report["pairs"])
      answer["pairs"].push_back({{"from", machine.report["gpus"][pair["from"].get<std::size_t>()]["address"]},
                                 {"to", machine.report["gpus"][pair["to"].get<std::size_t>()]["address"]},
                                 {"nvlink", "OK"}});
    machine.runner.on("p2p-bench --driver-peers", answer.dump());
  }
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.look().facts["level"] == "NVL");
}

TEST_CASE("nccl: one block is written, twice without change, undone to the byte") {
  const auto [record, level] = GENERATE(std::pair(kTwoSockets, "SYS"), std::pair(kOneSocket, "PHB"));
  const std::string before = GENERATE(std::string("absent"), std::string(), std::string("# mine\nNCCL_DEBUG=WARN"),
                                      std::string("NCCL_IB_DISABLE=1\n"));
  INFO(record << ": " << before);
  Machine machine(record);
  machine.prove();
  if (before != "absent") machine.file(kFile, before);
  const test::TemporaryDirectory state;
  UndoStore undo = UndoStore::open(Root::open(state.path()).value(), machine.root()).value();
  Host host(machine.root(), machine.runner, &undo);
  undo.begin({1, "s", "nccl", "nccl", Parameters::object()});
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(holds(finding.summary, "recent NCCL uses P2P up to PXB only, and "));
  CHECK(finding.summary.ends_with(std::string("it needs NCCL_P2P_LEVEL=") + level));
  CHECK(finding.next.empty());

  const auto described = kNcclAction.describe(host, {}).value().files;
  REQUIRE(kNcclAction.apply(host, {}));
  const std::string after = machine.text();
  CHECK(described.at(0).content == after);
  const std::string kept = before == "absent" ? "" : before;
  REQUIRE(after.starts_with(kept));
  CHECK(is_block(after.substr(after.find("# BEGIN")), level));
  CHECK(machine.look().verdict == Verdict::pass);
  REQUIRE(kNcclAction.apply(host, {}));
  CHECK(machine.text() == after);

  REQUIRE(undo.note_result());
  CHECK(undo.restore_newest()->empty());
  CHECK(machine.text() == before);
}

TEST_CASE("nccl: undo takes out the block alone where an administrator changed the file since") {
  const std::string before = GENERATE(as<std::string>(), "absent", "NCCL_DEBUG=WARN\n",
                                      "# BEGIN p2pd\n# old\nNCCL_P2P_LEVEL=SYS\n# END p2pd\n");  // of an earlier run
  Machine machine(kOneSocket);
  machine.prove();
  if (before != "absent") machine.file(kFile, before);
  const test::TemporaryDirectory state;
  UndoStore undo = UndoStore::open(Root::open(state.path()).value(), machine.root()).value();
  Host host(machine.root(), machine.runner, &undo);
  undo.begin({1, "s", "nccl", "nccl", Parameters::object()});
  REQUIRE(kNcclAction.apply(host, {}));
  REQUIRE(undo.note_result());
  const std::string mine = "NCCL_SOCKET_IFNAME=eth0\n";
  machine.file(kFile, mine + machine.text() + mine);
  fs::permissions(machine.root().directory() / kFile, fs::perms(0600));
  for (int again = 0; again < 2; ++again) {  // killed before forget_newest()
    CHECK(undo.restore_newest().value() ==
          std::vector<std::string>{"/etc/nccl.conf was changed since by somebody else; those lines stay"});
    const std::string others = before.starts_with("NCCL_DEBUG") ? mine + before + mine : mine + mine;
    CHECK(machine.text() == others + (before.starts_with("# BEGIN") ? before : ""));
    CHECK(machine.root().stat("/" + std::string(kFile))->st_mode % 01000 == 0600);
  }
}

TEST_CASE("nccl: the block follows the proof") {
  Machine machine(kOneSocket);
  machine.file(kFile, "NCCL_DEBUG=WARN\n# BEGIN p2pd\n# old\nNCCL_P2P_LEVEL=SYS\n# END p2pd\nNCCL_IB_DISABLE=1\n");
  SECTION("another level") {
    machine.prove();
    CHECK(machine.look().verdict == Verdict::fail);
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(machine.text().starts_with("NCCL_DEBUG=WARN\nNCCL_IB_DISABLE=1\n# BEGIN p2pd\n"));
    CHECK(is_block(machine.text().substr(34), "PHB"));
  }
  SECTION("the same level for another reason is left") {
    machine.file(kFile, "# BEGIN p2pd\n# old\nNCCL_P2P_LEVEL=PHB\n# END p2pd\n");
    machine.prove();
    CHECK(machine.look().verdict == Verdict::pass);
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(holds(machine.text(), "# old"));
  }
  SECTION("not fit for NCCL") {
    machine.report["judgement"]["fit"] = {{{"use", "nccl"}, {"fit", "unfit"}}};
    machine.prove();
    CHECK(machine.look().verdict == Verdict::fail);
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(machine.text() == "NCCL_DEBUG=WARN\nNCCL_IB_DISABLE=1\n");
    CHECK(machine.look().verdict == Verdict::not_applicable);
  }
  SECTION("a file of p2pd alone goes with its block") {
    machine.file(kFile, "# BEGIN p2pd\nNCCL_P2P_LEVEL=SYS\n# END p2pd\n");
    for (json& gpu : machine.report["gpus"]) gpu["nvlink_gb_s"] = 450.0;
    machine.prove();
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(machine.text() == "absent");
    CHECK(machine.look().verdict == Verdict::pass);
  }
  SECTION("a block without its end is somebody's text") {
    machine.file(kFile, "# BEGIN p2pd\nNCCL_P2P_LEVEL=PHB\nNCCL_DEBUG=WARN\n");
    machine.prove();
    CHECK(machine.look().verdict == Verdict::pass);
    REQUIRE(kNcclAction.apply(machine.host, {}));
    CHECK(holds(machine.text(), "NCCL_DEBUG=WARN"));
  }
}

TEST_CASE("nccl: a proof of other GPUs says nothing") {
  Machine machine(kOneSocket);
  for (json& gpu : machine.report["gpus"]) gpu["nvlink_gb_s"] = 450.0;
  machine.report["gpus"][0]["address"] = "0000:ff:00.0";
  machine.prove();
  CHECK(machine.look().facts["level"] == "PHB");
  for (const char* broken :
       {"", "[]", R"({"gpus": 1, "pairs": {"a": 1}})", R"({"gpus": [{"address": 1}], "pairs": [7]})"}) {
    machine.file(proof_report_file().substr(1), broken);
    CHECK(machine.look().facts["level"] == "PHB");
  }
}

TEST_CASE("nccl: somebody's own line decides, and one that contradicts is named and left alone") {
  struct Row {
    const char* text;
    const char* contradiction;  ///< empty: none
  };
  const auto row = GENERATE(
      Row{"NCCL_P2P_LEVEL=PHB\n", ""}, Row{"NCCL_P2P_LEVEL=SYS", ""}, Row{"NCCL_P2P_LEVEL=3\n", ""},
      Row{"NCCL_P2P_LEVEL=9\n", ""}, Row{"NCCL_P2P_DISABLE=0\nNCCL_P2P_LEVEL=PHB\n", ""},
      Row{"NCCL_P2P_LEVEL=PHB\nNCCL_P2P_LEVEL=LOC\n", ""},  // the first assignment counts
      Row{"NCCL_P2P_LEVEL=LOC\nNCCL_P2P_LEVEL=PHB\n", "line 1: NCCL_P2P_LEVEL=LOC"},
      Row{"# a\n\nNCCL_P2P_LEVEL=PXB\n", "line 3: NCCL_P2P_LEVEL=PXB"},
      Row{"NCCL_P2P_LEVEL=2\n", "line 1: NCCL_P2P_LEVEL=2"},
      Row{"NCCL_P2P_LEVEL=PHB # to the CPU\n", "line 1: NCCL_P2P_LEVEL=PHB # to the CPU"},  // NCCL ignores that value
      Row{"NCCL_P2P_DISABLE=1\nNCCL_P2P_LEVEL=SYS\n", "line 1: NCCL_P2P_DISABLE=1"},
      Row{"# BEGIN p2pd\nNCCL_P2P_LEVEL=PHB\n# END p2pd\nNCCL_P2P_DISABLE=1\n", "line 4: NCCL_P2P_DISABLE=1"});
  INFO(row.text);
  Machine machine(kOneSocket);
  machine.prove();
  machine.file(kFile, row.text);
  const Finding finding = machine.look();
  const auto done = kNcclAction.apply(machine.host, {});
  CHECK(machine.text() == row.text);
  if (*row.contradiction == '\0') {
    CHECK(finding.verdict == Verdict::pass);
    CHECK(done);
    return;
  }
  CHECK(finding.verdict == Verdict::fail);
  CHECK(holds(finding.summary, std::string("/etc/nccl.conf ") + row.contradiction));
  CHECK_FALSE(finding.next.empty());
  REQUIRE_FALSE(done);
  CHECK(holds(done.error().message, std::string("/etc/nccl.conf ") + row.contradiction));
  CHECK_FALSE(done.error().next.empty());
  CHECK_FALSE(kNcclAction.describe(machine.host, {}));
}

TEST_CASE("nccl: assignments in the files of the environment") {
  const auto texts = [](std::string_view line) {
    std::vector<std::string> found;
    for (const NcclVariable& one : nccl_assignments(line)) found.push_back(one.name + "=" + one.value);
    return found;
  };
  using Texts = std::vector<std::string>;
  for (const char* line :
       {"NCCL_P2P_DISABLE=1", "export NCCL_P2P_DISABLE=1", "  NCCL_P2P_DISABLE=\"1\" # off",
        "FOO=1; NCCL_P2P_DISABLE='1';", "NCCL_P2P_DISABLE DEFAULT=1", "NCCL_P2P_DISABLE\tDEFAULT=\"1\"",
        "DefaultEnvironment=NCCL_P2P_DISABLE=1 A=b", "DefaultEnvironment=\"A=b\" \"NCCL_P2P_DISABLE=1\"",
        "[ -d /x ] && export NCCL_P2P_DISABLE=1\r"}) {
    INFO(line);
    CHECK(texts(line) == Texts{"NCCL_P2P_DISABLE=1"});
  }
  for (const char* line :
       {"", "# NCCL_P2P_DISABLE=1", "  #NCCL_P2P_DISABLE=1", ";DefaultEnvironment=NCCL_P2P_DISABLE=1",
        "A=b # NCCL_P2P_DISABLE=1", "MY_NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLED=1", "unset NCCL_P2P_DISABLE",
        "echo $NCCL_P2P_DISABLE", "NCCL_P2P_DISABLE OTHER=1"}) {
    INFO(line);
    CHECK(texts(line).empty());
  }
  CHECK(texts("export NCCL_P2P_LEVEL=LOC NCCL_P2P_DISABLE=0") == Texts{"NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=LOC"});
}

TEST_CASE("nccl: a line of the system's environment that keeps NCCL from P2P is named, and warned of") {
  struct Row {
    const char* file;
    const char* text;
    const char* contradiction;  ///< empty: none
  };
  const auto row =
      GENERATE(Row{"etc/environment", "PATH=/bin\nNCCL_P2P_DISABLE=1\n", "line 2: NCCL_P2P_DISABLE=1"},
               Row{"etc/environment", "NCCL_P2P_DISABLE=1\nNCCL_P2P_DISABLE=0\n", ""},  // the last counts
               Row{"etc/environment", "NCCL_P2P_LEVEL=LOC", "line 1: NCCL_P2P_LEVEL=LOC"},
               Row{"etc/environment", "NCCL_P2P_LEVEL=SYS\nNCCL_DEBUG=INFO\n", ""},
               Row{"etc/profile.d/nccl.sh", "# x\n\nexport NCCL_P2P_DISABLE=1\n", "line 3: NCCL_P2P_DISABLE=1"},
               Row{"etc/profile.d/nccl.csh", "NCCL_P2P_DISABLE=1\n", ""},  // not read by sh
               Row{"etc/security/pam_env.conf", "NCCL_P2P_DISABLE DEFAULT=1\n", "line 1: NCCL_P2P_DISABLE=1"},
               Row{"usr/lib/environment.d/90-nccl.conf", "NCCL_P2P_DISABLE=1\n", "line 1: NCCL_P2P_DISABLE=1"},
               Row{"etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=b NCCL_P2P_DISABLE=1\n",
                   "line 2: NCCL_P2P_DISABLE=1"},
               Row{"etc/systemd/system.conf.d/gpu.conf", "[Manager]\n;DefaultEnvironment=NCCL_P2P_DISABLE=1\n", ""});
  INFO(row.file << ": " << row.text);
  Machine machine(kSwitch);
  machine.prove();
  CHECK_FALSE(machine.look().facts.contains("warnings"));
  machine.file(row.file, row.text);
  const Finding finding = machine.look();
  const auto done = kNcclAction.apply(machine.host, {});
  if (*row.contradiction == '\0') {
    CHECK(finding.verdict == Verdict::pass);
    CHECK(done);
    return;
  }
  const std::string what = fmt::format("/{} {}", row.file, row.contradiction);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == what + " prevents NCCL from using proven P2P");
  CHECK(finding.facts["warnings"] == json{finding.summary + ". Remove that line: p2pd did not add it."});
  REQUIRE_FALSE(done);
  CHECK(holds(done.error().message, what));
  machine.report["judgement"]["fit"] = {{{"use", "nccl"}, {"fit", "unfit"}}};
  machine.prove();  // rightly
  CHECK_FALSE(machine.look().facts.contains("warnings"));
  CHECK(machine.look().verdict == Verdict::not_applicable);
}

TEST_CASE("nccl: every line that contradicts is named at once, a file in /etc masks its name in /usr/lib") {
  Machine machine(kSwitch);
  machine.file("etc/environment", "NCCL_P2P_DISABLE=1\n");
  machine.file(kFile, "NCCL_P2P_LEVEL=LOC\n");
  CHECK(machine.look().summary ==
        "/etc/environment line 1: NCCL_P2P_DISABLE=1 and /etc/nccl.conf line 1: NCCL_P2P_LEVEL=LOC prevent NCCL from "
        "using proven P2P");
  CHECK(machine.look().next == "Remove those lines: p2pd did not add them.");
  Machine masked(kSwitch);
  masked.file("usr/lib/environment.d/90-nccl.conf", "NCCL_P2P_DISABLE=1\n");
  masked.file("etc/environment.d/90-nccl.conf", "\n");
  fs::create_directories(masked.root().directory() / "etc/profile.d/folder.sh");
  CHECK(masked.look().verdict == Verdict::pass);
}

TEST_CASE("nccl: what looks like an assignment and is none for NCCL") {
  Machine machine(kOneSocket);
  machine.prove();
  machine.file(kFile, "#NCCL_P2P_DISABLE=1\n NCCL_P2P_DISABLE=1\nNCCL_P2P_DISABLE =1\nNCCL_P2P_DISABLE\n");
  CHECK(holds(machine.look().summary, "it needs NCCL_P2P_LEVEL=PHB"));
  REQUIRE(kNcclAction.apply(machine.host, {}));
  CHECK(machine.look().verdict == Verdict::pass);
}

TEST_CASE("nccl: P2P switched off is a contradiction where NCCL would use it by itself") {
  Machine machine(kSwitch);
  machine.file(kFile, "NCCL_P2P_LEVEL=LOC\n");
  CHECK(machine.look().verdict == Verdict::fail);
  CHECK_FALSE(kNcclAction.apply(machine.host, {}));
  machine.file(kFile, "NCCL_P2P_LEVEL=nonsense\n");  // ignored
  CHECK(machine.look().verdict == Verdict::pass);
  machine.report["judgement"]["fit"] = {{{"use", "nccl"}, {"fit", "unfit"}}};
  machine.prove();
  machine.file(kFile, "NCCL_P2P_DISABLE=1\n");  // rightly
  CHECK(machine.look().verdict == Verdict::not_applicable);
  CHECK(kNcclAction.apply(machine.host, {}));
}
