// SPDX-License-Identifier: MIT
// Kernel arguments: of the running kernel, of an image, and those that /etc/default prevents; a commit that is killed
// or wrong. The trial boot before it: kernel_cmdline_trial_test.cpp.
#include "catch.hpp"
#include "grub_machine.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using Machine = test::GrubMachine;
using Session = test::GrubSession;
using test::kAcs;
using test::kConfig;
using test::kCustom;
using test::kDebianGrub;
using test::kDropIn;
using test::kPt;
using test::Recorder;
using test::says;
using test::with;

namespace {

const Action& fix = kKernelCmdlineAction;

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
