// SPDX-License-Identifier: MIT
#include "base/action.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "grub_machine.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kKernelCmdline;
extern const Action kKernelCmdlineAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using Machine = test::GrubMachine;
using test::kConfig;
using test::kCustom;
using test::kDebianGrub;
using test::kEnv;
using test::Recorder;
using test::with;
using Lines = std::vector<std::string>;

namespace {

const Action& fix = kKernelCmdlineAction;
const Parameters kPt{{"arguments", {"iommu=pt"}}};
const Parameters kAcs{{"arguments", {"pci=disable_acs_redir=0000:00:01.0;0000:00:02.0"}}};
const std::string kDropIn = "etc/default/grub.d/zz-p2pd.cfg";

/// The machine as a running host, or as an image; a test that needs the former ends where it is not root.
struct Session {
  explicit Session(Machine& machine, bool live = true) : machine_(machine) {
    root = live ? test::live_root(machine.directory.path())
                : std::optional<Root>(Root::open(machine.directory.path()).value());
    if (!root) return;
    machine.recorder.root = &*root;
    host.emplace(*root, machine.runner, &machine.recorder);
    REQUIRE(host->live() == live);
  }
  ~Session() { CHECK(machine_.runner.unexpected == Lines{}); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Finding check(const Parameters& parameters) const { return kKernelCmdline.check(*host, parameters).value(); }
  bool passes(const Parameters& parameters) const { return check(parameters).verdict == Verdict::pass; }

  Machine& machine_;
  std::optional<Root> root;
  std::optional<Host> host;
};

#define NEEDS_ROOT(session)                                                    \
  if (!(session).root) {                                                       \
    WARN("not root: a running host cannot be shown to p2pd here, not tested"); \
    return;                                                                    \
  }

bool says(const Result<void>& result, const std::string& text) {
  return !result && (result.error().message + " " + result.error().next).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("kernel-cmdline reads what the kernel runs with", "[kernel_cmdline]") {
  Machine machine;
  machine.put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro iommu=on p2pd.trial=1\n");
  Session session(machine, false);
  const Finding finding = session.check({{"arguments", {"iommu=pt", "quiet", "ro"}}});
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "the kernel runs without iommu=pt quiet (it has iommu=on)");
  CHECK(finding.facts["missing"] == nlohmann::json{"quiet"});
  CHECK(finding.facts["conflicting"] == nlohmann::json{{{"wanted", "iommu=pt"}, {"running", "iommu=on"}}});
  CHECK(finding.facts["trial"] == true);
  CHECK(finding.facts["configured"] == false);
  CHECK(finding.evidence.at(0).source == "/proc/cmdline");
  CHECK_FALSE(finding.next.empty());
  CHECK(session.passes({{"arguments", {"iommu=on", "ro"}}}));
  machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
  CHECK(session.check(kPt).facts["configured"] == true);
  CHECK(session.check(kPt).next.starts_with("Reboot"));
  CHECK(session.check(kPt).verdict == Verdict::fail);
}

TEST_CASE("a trial boot becomes the default once proven, and goes back", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  machine.boot();
  const std::string first = machine.tree();
  REQUIRE_FALSE(session.passes(kPt));

  const Description plan = fix.describe(host, kPt).value();
  CHECK(machine.tree() == first);
  REQUIRE(plan.files.size() == 2);
  CHECK(plan.cost == "iommu=pt: every device can read and write all of this host's memory");
  CHECK(plan.commands.at(0) == "grub-reboot p2pd-trial");

  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.get(kCustom) == plan.files[0].content);
  CHECK(machine.checked == Lines{machine.get(kCustom)});
  CHECK(machine.get(kConfig) == kDebianGrub);
  CHECK(machine.get(kDropIn) == "absent");
  const std::string applied = machine.tree();
  const std::size_t ran = machine.runner.ran.size();
  REQUIRE(fix.apply(host, kPt));
  CHECK(machine.tree() == applied);
  CHECK(machine.runner.ran.size() == ran);

  SECTION("the power goes before the reboot: the old default boots") {
    machine.boot();
    CHECK_FALSE(session.passes(kPt));
    machine.recorder.put_back();
    REQUIRE(fix.undo(host, kPt));
  }
  SECTION("armed, but undone before the reboot") {
    REQUIRE(fix.before_reboot(host, kPt));
    const std::size_t before = machine.runner.ran.size();
    REQUIRE(fix.before_reboot(host, kPt));  // only looks
    CHECK(machine.runner.ran.size() == before + 2);
    CHECK(machine.recorder.how.at("/boot/grub/grubenv") == Restore::generated);
    machine.recorder.put_back();
    machine.environment("next_entry=p2pd-trial\n").value();  // as if written anew since
    REQUIRE(fix.undo(host, kPt));
    CHECK(machine.get(kEnv).find("next_entry") == std::string::npos);
    fs::remove(machine.directory / kEnv);
    machine.boot();
  }
  SECTION("armed, tried, proven, committed") {
    REQUIRE(fix.before_reboot(host, kPt));
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == true);
    REQUIRE(fix.commit(host, kPt));
    const std::string committed = machine.tree();
    CHECK(machine.get(kCustom) == "absent");
    CHECK(machine.get(kDropIn) == plan.files[1].content);
    CHECK(machine.recorder.how.at("/boot/grub/grub.cfg") == Restore::generated);
    const std::size_t before = machine.runner.ran.size();
    REQUIRE(fix.commit(host, kPt));
    CHECK(machine.tree() == committed);
    CHECK(machine.runner.ran.size() == before);
    machine.boot();
    CHECK(session.passes(kPt));
    CHECK(session.check(kPt).facts["trial"] == false);
    CHECK(session.check(kPt).facts["configured"] == true);
    SECTION("undone to the byte") {
      machine.recorder.put_back();
      REQUIRE(fix.undo(host, kPt));
    }
    SECTION("undone after a kernel update has generated grub.cfg anew") {
      machine.recorder.put_back();
      machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
      const std::string anew = machine.generate();
      fs::remove(machine.directory / kDropIn);
      machine.put(kConfig, anew);
      REQUIRE(fix.undo(host, kPt));
      CHECK(machine.get(kConfig) == kDebianGrub);
    }
    SECTION("undone to what an earlier run made permanent") {
      machine.recorder.put_back();
      machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
      machine.put(kConfig, machine.generate());
      REQUIRE(fix.undo(host, kPt));
      CHECK(machine.get(kConfig) == machine.generate());
      fs::remove(machine.directory / kDropIn);
      machine.put(kConfig, kDebianGrub);
    }
    fs::remove(machine.directory / kEnv);
    machine.boot();
  }
  fs::remove_all(machine.directory / "etc/default/grub.d");  // the directory goes back by the engine's own record
  CHECK(machine.tree() == first);
}

TEST_CASE("two steps share the trial entry and the drop-in", "[kernel_cmdline]") {
  Machine machine;
  machine.put(kCustom, "menuentry 'mine' {\n true\n}");  // no newline at its end
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  for (const Parameters& step : {kPt, kAcs}) REQUIRE(fix.apply(host, step));
  const std::string both = machine.get(kCustom);
  for (const Parameters& step : {kAcs, kPt}) REQUIRE(fix.apply(host, step));
  CHECK(machine.get(kCustom) == both);
  CHECK(both.starts_with("menuentry 'mine' {\n true\n}\n### BEGIN"));
  for (const Parameters& step : {kPt, kAcs}) REQUIRE(fix.before_reboot(host, step));
  machine.boot();
  CHECK(session.passes(kPt));
  CHECK(session.passes(kAcs));
  REQUIRE(fix.commit(host, kPt));  // and the power goes before the other's commit
  machine.boot();
  CHECK(session.passes(kPt));
  CHECK(session.passes(kAcs));
  const std::string committed = machine.tree();
  REQUIRE(fix.commit(host, kAcs));
  CHECK(machine.tree() == committed);
  CHECK(machine.get(kCustom) == "menuentry 'mine' {\n true\n}\n");
  CHECK(machine.get(kConfig).find(" iommu=pt pci=disable_acs_redir=0000:00:01.0\\;0000:00:02.0\n") !=
        std::string::npos);
}

TEST_CASE("a commit that is killed anywhere ends the same", "[kernel_cmdline]") {
  struct Killer : Recorder {
    int left = 0;
    Result<void> before_change(std::string_view path, Restore restore) override {
      if (left-- == 0) return fail(ErrorCode::interrupted, "killed");
      return Recorder::before_change(path, restore);
    }
  };
  std::string end;
  int kills = 0;
  for (int at = 0;; ++at) {
    Machine machine;
    Session session(machine);
    NEEDS_ROOT(session);
    Killer killer;
    killer.root = &*session.root;
    killer.left = at;
    Host killed(*session.root, machine.runner, &killer);
    const auto walk = [](Host& host) -> Result<void> {
      TRY(fix.apply(host, kPt));
      TRY(fix.before_reboot(host, kPt));
      return fix.commit(host, kPt);
    };
    const bool done = walk(killed).has_value();
    if (!done) REQUIRE(walk(*session.host));
    if (!end.empty()) CHECK(machine.tree() == end);
    end = machine.tree();
    if (done && at > 0) break;
    ++kills;
  }
  CHECK(kills >= 4);
}

TEST_CASE("a host that cannot have a trial boot is told why", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  const auto refused = [&](const std::string& why) {
    const std::string before = machine.tree();
    const auto result = fix.apply(host, kPt);
    CAPTURE(result ? "applied" : result.error().message);
    CHECK(says(result, why));
    CHECK((result || !result.error().next.empty()));
    CHECK(machine.tree() == before);
  };
  SECTION("no GRUB") {
    fs::remove(machine.directory / kConfig);
    refused("does not boot with GRUB");
    CHECK(says(fix.commit(host, kPt), "does not boot with GRUB"));
    CHECK(fix.undo(host, kPt));
  }
  SECTION("no grub-mkconfig") {
    fs::remove(machine.directory / "usr/sbin/grub-mkconfig");
    refused("grub-mkconfig is not installed");
  }
  SECTION("no 41_custom") {
    machine.put(kConfig, kDebianGrub.substr(0, kDebianGrub.find("### BEGIN /etc/grub.d/41_custom")));
    refused("41_custom");
  }
  SECTION("a default set by hand") {
    machine.put(kCustom, "set default=1\n");
    refused("ignores grub-reboot");
  }
  SECTION("LVM, RAID, btrfs") {
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "lvm\n");
    refused("/boot/grub is on lvm");
    CHECK_FALSE(fix.describe(host, kPt));
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "diskfilter mdraid1x\n");
    refused("/boot/grub is on diskfilter");
    machine.runner.on("grub-probe --target=abstraction /boot/grub").on("grub-probe --target=fs /boot/grub", "btrfs\n");
    refused("/boot/grub is on btrfs");
  }
  SECTION("somebody who plans and may not ask grub-probe") {
    machine.runner.on("grub-probe --target=abstraction /boot/grub", "", 1, "cannot open /dev/sda");
    CHECK(fix.describe(host, kPt));
  }
  SECTION("an initrd is missing") {
    fs::remove(machine.directory / "boot/initrd.img-6.1.0-50-amd64");
    refused("/boot/initrd.img-6.1.0-50-amd64 does not exist");
  }
  SECTION("GRUB does not like it") {
    machine.script_status = 1;
    refused("Syntax error at line 7");
  }
  SECTION("a file of the user where the drop-in goes") {
    machine.put(kDropIn, "GRUB_TIMEOUT=1\n");
    refused(kDropIn);
  }
  SECTION("armed without a trial entry") { CHECK(says(fix.before_reboot(host, kPt), "the trial entry is missing")); }
  SECTION("grub-reboot that does nothing") {
    REQUIRE(fix.apply(host, kPt));
    machine.runner.on("grub-reboot p2pd-trial");
    CHECK(says(fix.before_reboot(host, kPt), "grubenv"));
  }
}

TEST_CASE("the trial follows the default entry", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  const auto kernel = [&] {
    REQUIRE(fix.apply(*session.host, kPt));
    return parse_grub(machine.get(kCustom)).value().entries.at(0).loads.at(0).words.at(0);
  };
  SECTION("in a submenu") {
    machine.put(kConfig, with(kDebianGrub, "set default=\"0\"", "set default=\"1>2\""));
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-49-amd64");
  }
  SECTION("saved") {
    machine.put(kConfig, with(kDebianGrub, "set default=\"0\"", "set default=\"${saved_entry}\""));
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-50-amd64");
    machine.environment("saved_entry=gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503\n").value();
    CHECK(kernel() == "/boot/vmlinuz-6.1.0-49-amd64");
  }
  SECTION("with /boot on a partition of its own") {
    std::string config = kDebianGrub;
    for (const char* name : {"/boot/vmlinuz", "/boot/initrd"})
      for (std::size_t at = 0; (at = config.find(name)) != std::string::npos;) config.erase(at, 5);
    machine.put(kConfig, config);
    CHECK(kernel() == "/vmlinuz-6.1.0-50-amd64");
  }
}

TEST_CASE("a grub.cfg that is not right never replaces the old one", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine);
  NEEDS_ROOT(session);
  Host& host = *session.host;
  REQUIRE(fix.apply(host, kPt));
  SECTION("a later drop-in takes the arguments away") {
    machine.put("etc/default/grub.d/zzz.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n");
    CHECK(says(fix.commit(host, kPt), "/etc/default/grub.d/zzz.cfg"));
  }
  SECTION("grub-mkconfig fails") {
    machine.runner.on("grub-mkconfig", "", 1, "grub-probe: error");
    CHECK(says(fix.commit(host, kPt), "grub-probe: error"));
  }
  SECTION("it is empty, torn, or without its kernel") {
    for (const std::string& text :
         {std::string(), kDebianGrub.substr(0, 2000), with(machine.generate(), "-50-amd64 root", "-51 root")}) {
      machine.runner.on("grub-mkconfig", text);
      CHECK_FALSE(fix.commit(host, kPt));
    }
  }
  SECTION("GRUB cannot read it") {
    machine.script_status = 1;
    CHECK(says(fix.commit(host, kPt), "Syntax error"));
  }
  CHECK(machine.get(kConfig) == kDebianGrub);
}

TEST_CASE("grub.cfg is generated in the language of the system", "[kernel_cmdline]") {
  Machine machine;
  machine.put("etc/default/locale", "# x\nLANG=\"de_DE.UTF-8\"\n");
  Session session(machine);
  NEEDS_ROOT(session);
  std::map<std::string, std::string> environment;
  machine.runner.on("grub-mkconfig", [&](const Command& command) {
    environment = command.environment;
    return Result<CommandResult>({0, machine.generate(), ""});
  });
  REQUIRE(fix.commit(*session.host, kPt));
  CHECK(environment == std::map<std::string, std::string>{{"LANG", "de_DE.UTF-8"}, {"LC_ALL", ""}});
}

TEST_CASE("an image gets the arguments at once", "[kernel_cmdline]") {
  Machine machine;
  Session session(machine, false);
  Host& host = *session.host;
  CHECK_FALSE(session.passes(kPt));
  SECTION("with GRUB") {
    const Description plan = fix.describe(host, kPt).value();
    REQUIRE(fix.apply(host, kPt));
    CHECK(grub_entry_has(parse_grub(machine.get(kConfig)).value().entries.at(0), {"iommu=pt"}));
    CHECK(plan.files.at(0).content == machine.get(kDropIn));
    CHECK(machine.get(kCustom) == "absent");
  }
  SECTION("without GRUB") {
    fs::remove(machine.directory / kConfig);
    REQUIRE(fix.apply(host, kPt));
    CHECK(machine.runner.ran.empty());
  }
  CHECK(session.passes(kPt));
  CHECK_FALSE(session.passes(kAcs));
  const std::string applied = machine.tree();
  REQUIRE(fix.apply(host, kPt));
  REQUIRE(fix.before_reboot(host, kPt));
  REQUIRE(fix.commit(host, kPt));
  CHECK(machine.tree() == applied);
  REQUIRE(fix.apply(host, kAcs));
  CHECK(session.passes({{"arguments", {"iommu=pt", kAcs["arguments"][0]}}}));
  machine.recorder.put_back();
  REQUIRE(fix.undo(host, kPt));
  CHECK(machine.get(kDropIn) == "absent");
}

TEST_CASE("kernel-cmdline: a plan says where only a shell can tell what /etc/default gives GRUB") {
  Machine machine;
  Session image(machine, false);
  CHECK(fix.describe(*image.host, kPt)->notes.empty());
  machine.put("etc/default/grub.d/10-x.cfg", "if :; then GRUB_CMDLINE_LINUX=a; fi\n");
  CHECK(fix.describe(*image.host, kPt)->notes.size() == 1);
}

TEST_CASE("kernel-cmdline: what /etc/default keeps from the kernel is refused with its line, and never claimed") {
  struct Row {
    const char *name, *file, *text, *says;
  };
  const std::string quiet = "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n";
  const Row rows[] = {
      {"read-only", "grub", "GRUB_TIMEOUT=1\nreadonly GRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
       "/etc/default/grub:2 makes GRUB_CMDLINE_LINUX_DEFAULT read-only"},
      {"read-only later", "grub.d/10-x.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=a\n\nreadonly GRUB_CMDLINE_LINUX_DEFAULT\n",
       "/etc/default/grub.d/10-x.cfg:3 makes GRUB_CMDLINE_LINUX_DEFAULT read-only"},
      {"set again", "grub.d/zzz.cfg", "# mine\nGRUB_CMDLINE_LINUX_DEFAULT=\"splash\"\n",
       "/etc/default/grub.d/zzz.cfg:2 sets GRUB_CMDLINE_LINUX_DEFAULT again"},
      {"--", "grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet -- debug\"\n",
       "/etc/default/grub:1: GRUB_CMDLINE_LINUX_DEFAULT holds \"--\""},
      {"-- of every entry", "grub", "GRUB_CMDLINE_LINUX=\"-- x\"\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
       "/etc/default/grub:1: GRUB_CMDLINE_LINUX holds \"--\""},
      {"two lines", "grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\n  splash\"\nGRUB_TIMEOUT=3\n",
       "/etc/default/grub:1: GRUB_CMDLINE_LINUX_DEFAULT holds a line break"},
      {"a comment of GRUB", "grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet # no splash\"\n",
       "/etc/default/grub:1: GRUB_CMDLINE_LINUX_DEFAULT keeps what p2pd appends from the kernel"},
      {"another command", "grub.d/20-x.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT quiet; true\"\n",
       "/etc/default/grub.d/20-x.cfg:1: GRUB_CMDLINE_LINUX_DEFAULT keeps what p2pd appends from the kernel"},
      {"an open quotation", "grub", "GRUB_CMDLINE_LINUX_DEFAULT='dyndbg=\"file x'\n",
       "/etc/default/grub:1: GRUB_CMDLINE_LINUX_DEFAULT keeps what p2pd appends from the kernel"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    Machine machine;
    fs::remove(machine.directory / kConfig);  // an image whose grub.cfg is made at its first boot
    Session image(machine, false);
    machine.put(kDropIn, grub_drop_in({"iommu=pt"}));
    REQUIRE(image.passes(kPt));
    machine.put(std::string("etc/default/") + row.file, row.text);
    const Finding finding = image.check(kPt);
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.summary.starts_with(row.says));
    CHECK_FALSE(finding.next.empty());
    fs::remove(machine.directory / kDropIn);
    const std::string before = machine.tree();
    CHECK(says(fix.apply(*image.host, kPt), row.says));
    const auto told = fix.describe(*image.host, kPt);
    CHECK((!told && told.error().message.starts_with(row.says)));
    CHECK(machine.tree() == before);
  }
}

TEST_CASE("kernel-cmdline: defaults that do no harm are no reason to refuse") {
  for (const char* text :
       {"", "GRUB_CMDLINE_LINUX_DEFAULT=\"a \\\n  b\"\n", "GRUB_CMDLINE_LINUX_DEFAULT=\"--verbose a--b\"\n",
        "GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\nexport GRUB_CMDLINE_LINUX_DEFAULT='x'\n",
        "readonly GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=iommu=off  # ours comes later\n"}) {
    CAPTURE(text);
    Machine machine;
    fs::remove(machine.directory / kConfig);
    Session image(machine, false);
    machine.put("etc/default/grub", text);
    machine.put("etc/default/grub.d/zzz.cfg",
                "GRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT} console=ttyS0\"\n");
    CHECK(fix.describe(*image.host, kPt));
    REQUIRE(fix.apply(*image.host, kPt));
    CHECK(image.passes(kPt));
  }
}

TEST_CASE("kernel-cmdline: a grub.cfg that a kernel's installation wrote meanwhile is not replaced by an older one") {
  Machine machine;
  Session image(machine, false);
  int times = 0;
  const auto newer = [&] {  // as update-grub writes it once 6.1.0-51 is there
    std::string text = machine.generate();
    for (std::size_t at = 0; (at = text.find("6.1.0-50", at)) != std::string::npos; at += 8) text[at + 7] = '1';
    return text;
  };
  SECTION("once: it is generated again") {
    machine.runner.on("grub-mkconfig", [&](const Command&) -> Result<CommandResult> {
      if (times++ > 0) return CommandResult{0, newer(), ""};
      const std::string old = machine.generate();
      for (const char* name : {"vmlinuz-", "initrd.img-"})
        machine.put(std::string("boot/") + name + "6.1.0-51-amd64", "");
      fs::permissions(machine.directory / kConfig, fs::perms(0644));
      machine.put(kConfig, with(newer(), " iommu=pt", ""));
      return CommandResult{0, old, ""};
    });
    REQUIRE(fix.apply(*image.host, kPt));
    CHECK(times == 2);
    CHECK(machine.get(kConfig).find("6.1.0-51-amd64") != std::string::npos);
    CHECK(machine.get(kConfig).find("iommu=pt") != std::string::npos);
  }
  SECTION("each time: it is left, and told") {
    machine.runner.on("grub-mkconfig", [&](const Command&) -> Result<CommandResult> {
      const std::string old = machine.generate();
      machine.put(kConfig, kDebianGrub + "# " + std::to_string(++times) + "\n");
      return CommandResult{0, old, ""};
    });
    const auto applied = fix.apply(*image.host, kPt);
    CHECK(says(applied, "written by another program"));
    CHECK((!applied && applied.error().code == ErrorCode::busy));
    CHECK(machine.get(kConfig) == kDebianGrub + "# " + std::to_string(times) + "\n");
  }
}
