// SPDX-License-Identifier: MIT
#include "machine/driver/solver.hpp"

#include <algorithm>

#include "solver_machines.hpp"

using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("solver: machines and the entry or reason each gets", "[solver]") {
  for (const Row& expected : rows()) {
    INFO(expected.what);
    const Choice choice = choose_driver(all(), expected.machine);
    INFO(choice.summary);
    CHECK((choice.entry != nullptr ? choice.entry->id : std::string()) == expected.entry);
    CHECK(choice.cause == expected.cause);
    CHECK(choice.summary.find(expected.mention) != std::string::npos);
    CHECK(choice.questions.size() == expected.questions);
    CHECK(choice.table.size() == all().entries.size());
    CHECK(std::ranges::all_of(choice.table, [](const EntryVerdict& verdict) { return !verdict.reason.empty(); }));
    CHECK(choice.cause.empty() == choice.next.empty());
    CHECK((choice.entry != nullptr || choice.already_p2p) == choice.cause.empty());
  }
}

TEST_CASE("solver: each entry tells why it does not fit, and what would change it", "[solver]") {
  const Choice choice =
      choose_driver(all(), machine_of({2, Card{k4090}}, {{"6.11.0", Compiler{"gcc", 13}}, {"6.12.9"}}));
  CHECK(choice.entry->id == kNewest);
  CHECK(row(choice, "fork/550.54.15").reason == "it does not build for Linux 6.10.1: x.c:1: error: no");
  CHECK_FALSE(row(choice, "fork/550.54.15").running_only);
  CHECK(row(choice, "fork/550.90.07").running_only);
  CHECK(row(choice, "fork/550.90.07").reason ==
        "it fits the running kernel 6.11.0, but not every bootable one: it does not build for Linux 6.12.1: x.c:1: "
        "error: no");
  CHECK(row(choice, "fork/565.57.01").fit == EntryVerdict::Fit::fits);
  CHECK(row(choice, "fork/590.48.01").fit == EntryVerdict::Fit::candidate);
  CHECK(row(choice, "fork/590.48.01").reason ==
        "not used, because its hashes are confirmed by one source only; allowed, it would fit");
  CHECK(std::ranges::count(choice.notes, "gcc-13, the compiler of 6.11.0, is not installed") == 1);
}

TEST_CASE("solver: what nobody built for such a kernel is tried where nothing better is known", "[solver]") {
  Catalogue all = made();
  all.kernels.erase(Version{570, 86, 16});
  const Choice choice = choose_driver(all, machine_of({2, Card{k4090}}, {{"6.14.0"}}));
  REQUIRE(choice.entry != nullptr);
  CHECK(choice.entry->id == kNewest);
  CHECK(row(choice, kNewest).fit == EntryVerdict::Fit::untried);
  CHECK(choice.questions.empty());
  CHECK(std::ranges::count(choice.notes,
                           "no test build for 6.14.0: apply builds it first, and changes nothing where that fails") ==
        1);
}

TEST_CASE("solver: a build that failed here is not taken again", "[solver]") {
  Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}});
  const CatalogueEntry& newest = *choose_driver(all(), machine).entry;
  machine.failed_builds[build_name(newest, "6.1.0")] = "y.c:2: error: no";
  const Choice choice = choose_driver(all(), machine);
  CHECK(choice.entry->id == "fork/565.57.01");
  CHECK(row(choice, kNewest)
            .reason.starts_with("it did not build here for 6.1.0: y.c:2: error: no; remove /var/log/p2pd/"));
  machine.failed_builds = {{build_name(newest, kNoSource), "the patch does not apply"}};
  CHECK(row(choose_driver(all(), machine), kNewest)
            .reason.starts_with("its source could not be made here: the patch does not apply; remove /var/log/p2pd/"));
}

TEST_CASE("solver: candidates that would fit are named, never chosen", "[solver]") {
  const Machine machine = machine_of({2, Card{k5090}}, {{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport}});
  const Choice choice = choose_driver(all(), machine);
  CHECK(choice.entry == nullptr);
  CHECK(
      choice.next.ends_with("Would fit, and may not be used yet: fork/590.48.01. "
                            "\"sudo p2pctl catalogue allow fork/590.48.01\" shows what is known, and asks."));
  Catalogue allowed = made();
  allowed.entries[4].allowed = true;
  CHECK(choose_driver(allowed, machine).entry->id == "fork/590.48.01");
  allowed.entries[4].lacks = "the SHA-256 of its runfile";
  CHECK(choose_driver(allowed, machine).entry == nullptr);
  allowed.entries[4].compat = {kRule};  // it does not support the argument
  const Choice neither = choose_driver(allowed, machine);
  CHECK(neither.next.find("590.48.01") == std::string::npos);
  CHECK(row(neither, "fork/590.48.01")
            .reason.starts_with("not used, because the SHA-256 of its runfile is not known; "
                                "and even then it would not fit: "));
}

TEST_CASE("solver: a compat header makes up for what the source does not know", "[solver]") {
  Catalogue all = made();
  all.compat_rules.at(kRule).include = "exclude-bars.h";
  const Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport}});
  CHECK(choose_driver(all, machine).entry->id == kNewest);
}

TEST_CASE("solver: of two that fit the better is taken, which need not be the newer", "[solver]") {
  Catalogue all;
  all.entries = {build("570.1"), build("580.1")};
  CatalogueEntry &older = all.entries[0], &newer = all.entries[1];
  for (CatalogueEntry& entry : all.entries) {
    entry.compat.clear();
    entry.architectures = {{"Ada", "reported"}, {"Blackwell", "reported"}};
    all.kernels[*parse_version(entry.base_version)] = {{entry.base_version, "6.1.1", {6, 1, 1}, {}, {}}};
  }
  Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}});
  const auto chosen = [&] { return choose_driver(all, machine).entry->base_version; };
  CHECK(chosen() == "580.1");

  SECTION("whoever added it wants it") {
    older.of_this_machine = true;
    older.defects = {{.id = "hang", .text = "it hangs", .use = {}, .architectures = {}, .grave = true}};
    all.kernels.erase(Version{570, 1});
    CHECK(chosen() == "570.1");
  }
  SECTION("that it builds is known") {
    all.kernels.erase(Version{580, 1});
    CHECK(chosen() == "570.1");
    older.defects = {{.id = "hang", .text = "it hangs", .use = {}, .architectures = {}, .grave = true}};
    CHECK(chosen() == "580.1");  // the build on the machine decides
  }
  SECTION("it takes no GPU down") {
    newer.defects = {{.id = "slow", .text = "it is slow", .use = {}, .architectures = {}, .grave = false}};
    CHECK(chosen() == "580.1");
    newer.defects = {{.id = "hang", .text = "it hangs", .use = {}, .architectures = {"Ada"}, .grave = true}};
    CHECK(chosen() == "570.1");
    machine = machine_of({2, Card{k5090}}, {{"6.1.0"}});  // not known with such cards
    CHECK(chosen() == "580.1");
  }
  SECTION("it does not lower the driver") {
    newer.architectures["Ada"] = "unknown";
    machine.installed = "575.1";
    CHECK(chosen() == "580.1");
    for (const char* newest : {"580.9", "585.1"}) {
      machine.installed = newest;
      const Choice none = choose_driver(all, machine);
      CHECK(none.cause == "older");
      CHECK(none.next == "Remove that driver and restart to have fork/570.1 chosen. p2pd installs no older driver.");
    }
    machine.installed = "565.1";
    CHECK(chosen() == "570.1");
  }
  SECTION("somebody reported it, or its patch on another release") {
    newer.architectures["Ada"] = kNoReport;
    for (const auto& [evidence, version] :
         {std::pair(kNoReport, "580.1"), {kInherited, "570.1"}, {kReported, "570.1"}}) {
      older.architectures["Ada"] = evidence;
      CHECK(chosen() == version);
    }
    newer.architectures["Ada"] = kInherited;
    CHECK(chosen() == "570.1");
  }
  SECTION("a defect of a use that programs have to ask for has less weight") {
    older.nvlink = "lost";
    newer.nvlink = "kept";
    machine.nvlink = true;
    for (const auto& [use, version] : {std::pair("managed-memory", "580.1"), {"custom-all-reduce", "570.1"}}) {
      newer.defects = {{.id = "x", .text = "x", .use = use, .architectures = {}, .grave = true}};
      CHECK(chosen() == version);
    }
  }
  SECTION("it is known better") {
    newer.base_version = newer.made_for = "570.1";
    older.patch_known = Known::corroborated;
    newer.id = "fork/better";
    CHECK(choose_driver(all, machine).entry->id == "fork/better");
  }
}

TEST_CASE("solver: what the chosen build costs is told", "[solver]") {
  Catalogue all = made();
  all.entries[3].defects = {
      {.id = "slow", .text = "it is slow", .use = {}, .architectures = {"Ada"}, .grave = false},
      {.id = "slower", .text = "it is slower", .use = {}, .architectures = {"Ampere"}, .grave = false}};
  Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}}, "590.48.01");
  const CatalogueEntry& entry = all.entries[3];  // a plan names it
  const auto told = [&](std::string_view note) { return std::ranges::count(notes_on(all, entry, machine), note) == 1; };
  CHECK(
      told("it lowers the driver from 590.48.01 to 570.86.16: programs that need a CUDA newer than 12.8 stop working "
           "(now 13.1)"));
  CHECK(told("known defect: it is slow"));
  CHECK_FALSE(told("known defect: it is slower"));
  machine.driver_version = "585.1";  // of a branch that the catalogue does not know
  CHECK(told("it lowers the driver from 585.1 to 570.86.16: programs that need a CUDA newer than 12.8 stop working"));
  all.entries[3].cuda.clear();
  CHECK(told("it lowers the driver from 585.1 to 570.86.16"));
  all.entries[3].architectures["Ada"] = kReported;
  machine.driver_version = machine.installed = "570.86.16";
  CHECK(choose_driver(all, machine).notes.size() == 1);  // the defect
}

TEST_CASE("solver: the evidence for the chosen build is told", "[solver]") {
  Catalogue all = made();
  const Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}}, "570.86.16");
  const auto chosen = [&](std::string_view how) {
    for (CatalogueEntry& entry : all.entries) {
      entry.architectures["Ada"] = how;
      entry.made_for = "570.1";
    }
    return choose_driver(all, machine);
  };
  CHECK(chosen(kReported).reported);
  CHECK(chosen(kReported).evidence.find("P2P between Ada cards: reported; p2pd itself has not run") !=
        std::string::npos);
  CHECK_FALSE(chosen(kInherited).reported);
  CHECK(chosen(kInherited).evidence.find("reported with this patch on 570.1;") != std::string::npos);
  CHECK_FALSE(chosen(kNoReport).reported);
  CHECK(chosen(kNoReport).evidence.find("nobody reported it yet") != std::string::npos);
}

TEST_CASE("solver: a converted card takes a build with dynamic BAR1, and no other", "[solver]") {
  const Card converted{k4090, 32 * kGiB, 32 * kGiB, 48 * kGiB};
  const Machine machine = machine_of({2, converted}, {{"6.1.0"}});
  Choice choice = choose_driver(all(), machine);
  CHECK(choice.cause == "converted-card");
  CHECK(choice.next.find("\"sudo p2pctl catalogue allow fork/595.71.05\"") != std::string::npos);
  Catalogue all = made();
  all.entries[5].allowed = true;
  choice = choose_driver(all, machine);
  REQUIRE(choice.entry != nullptr);
  CHECK(choice.entry->id == "fork/595.71.05");
  CHECK(choice.needs_dynamic_bar1);
  CHECK(choose_driver(all, machine_of({2, Card{k4090}}, {{"6.1.0"}})).entry->id == kNewest);
  all.entries.pop_back();
  choice = choose_driver(all, machine);
  CHECK(choice.cause == "converted-card");
  CHECK(choice.next.starts_with("Use cards with the memory that their maker gave them"));
}

TEST_CASE("solver: what is certain goes before what is newer", "[solver]") {
  Catalogue all = made();
  all.entries.front().compat.clear();
  const Choice choice =
      choose_driver(all, machine_of({2, Card{k4090}}, {{"6.1.0", Compiler{"gcc", 12}, Headers::absent}}));
  CHECK(choice.entry->id == "fork/550.54.15");
  CHECK(choice.questions.empty());
}

TEST_CASE("solver: without an entry that may be used there is a reason, too", "[solver]") {
  Catalogue all = made();
  for (CatalogueEntry& entry : all.entries) entry.lacks = "the SHA-256 of its runfile";
  const Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}});
  CHECK(choose_driver(all, machine).cause == "no-entry");
  all.entries.clear();
  const Choice choice = choose_driver(all, machine);
  CHECK(choice.cause == "no-entry");
  CHECK(choice.table.empty());
}

TEST_CASE("solver: a newer kernel that does not start by default need not be fitted", "[solver]") {
  for (const Headers headers : {Headers::backport, Headers::absent}) {  // it does not fit; whether it fits is not known
    Machine machine =
        machine_of({{k4090}, {k4090}}, {{"6.1.0-37-amd64"}, {"6.1.0-48-amd64", Compiler{"gcc", 12}, headers}});
    const Choice held_by_it = choose_driver(all(), machine);
    CHECK((held_by_it.entry == nullptr || !held_by_it.questions.empty()));
    machine.kernels.back().held_back = true;
    const Choice choice = choose_driver(all(), machine);
    REQUIRE(choice.entry != nullptr);
    CHECK(choice.entry->id == kNewest);
    CHECK(choice.questions.empty());
    CHECK(std::ranges::count(choice.notes, "6.1.0-37-amd64 starts by default: newer kernels have no modules") == 1);
  }
}

TEST_CASE("solver: a build of the installed packages' version comes first, and they stay") {
  const std::vector<Card> two = {{k4090}, {k4090}};
  Machine machine = machine_of(two, {{"6.1.0-37-amd64"}}, "565.57.01");
  CHECK(choose_driver(all(), machine).entry->id == kNewest);
  CHECK_FALSE(choose_driver(all(), machine).keeps_packages);
  machine.packages.version = "565.57.01";
  const Choice kept = choose_driver(all(), machine);
  CHECK(kept.entry->id == "fork/565.57.01");
  CHECK(kept.keeps_packages);
  CHECK(kept.summary == "fork/565.57.01 fits Ada and 1 bootable kernel, and the installed packages of 565.57.01 stay");
  SECTION("not where it does not build, or takes GPUs down") {
    machine.kernels.front().release = "6.13.2";
    const Choice newer = choose_driver(all(), machine);
    CHECK(newer.entry->id == kNewest);
    CHECK(std::ranges::count(newer.notes,
                             "the driver's packages cannot stay: no build of 565.57.01 may be used and fits") == 1);
    machine.kernels.front().release = "6.1.0-37-amd64";
    Catalogue graver = all();
    graver.entries[2].defects = {{"x", "x", "", {}, true}};
    const Choice other = choose_driver(graver, machine);
    CHECK(other.entry->id == kNewest);
    CHECK(std::ranges::count(other.notes,
                             "the driver's packages cannot stay: fork/565.57.01, the build of their version, has known "
                             "defects that fork/570.86.16 has not") == 1);
  }
  SECTION("why they cannot, where they cannot") {
    machine.packages = {"", "the packages bring no libcuda.so.1"};
    const Choice other = choose_driver(all(), machine);
    CHECK(std::ranges::count(other.notes, "the driver's packages cannot stay: the packages bring no libcuda.so.1") ==
          1);
  }
}

TEST_CASE("solver: packages stay with a build of their version that needs no runfile") {
  Catalogue some = all();
  CatalogueEntry& graft = some.entries.emplace_back(build("570.123.11"));
  graft.id = "fork/570.86.16-on-570.123.11";
  graft.made_for = "570.86.16";
  graft.runfile_path.clear();
  graft.runfile_known = Known::single_source;
  CHECK(graft.usable());
  Machine machine = machine_of(kTwo, {kBookworm}, "570.123.11");
  CHECK(choose_driver(some, machine).cause == "older");  // nothing to keep, and no runfile
  CHECK(row(choose_driver(some, machine), graft.id).cause == "other-packages");
  machine.packages.version = "570.123.11";
  const Choice kept = choose_driver(some, machine);
  CHECK(kept.entry->id == graft.id);
  CHECK(kept.keeps_packages);
  CHECK(kept.possible.empty());
  machine.installed = "595.84";  // still loaded: apt lowered the packages, and nobody restarted
  CHECK(choose_driver(some, machine).entry->id == graft.id);
  graft.runfile_path = "/one.run";  // known badly, and not needed
  CHECK_FALSE(graft.usable());
  CHECK(choose_driver(some, machine).entry->id == graft.id);
  graft.runfile_path.clear();
  machine.packages.why_not = "the firmware is not installed";
  const Choice bare = choose_driver(some, machine);
  CHECK(row(bare, graft.id).reason == "the installed packages cannot stay: the firmware is not installed");
}

TEST_CASE("solver: a build for the installed packages that no file lists is for a person to allow") {
  Machine machine = machine_of(kTwo, {kBookworm}, "565.60");
  machine.packages.version = "565.60";
  const Choice choice = choose_driver(all(), machine);
  CHECK(choice.entry->id == kNewest);
  CHECK(choice.summary == "fork/570.86.16 fits Ada and 1 bootable kernel, and the packages of 565.60 are purged");
  REQUIRE(choice.possible.size() == 1);
  CHECK(choice.possible.front().id == "fork/565.57.01-on-565.60");
  CHECK_FALSE(choice.possible.front().usable());
  CHECK(std::ranges::count(
            choice.notes,
            "the driver's packages cannot stay: no build of 565.60 is listed; \"sudo p2pctl catalogue allow "
            "fork/565.57.01-on-565.60\" shows one that may fit, and asks") == 1);
  machine.packages.version = machine.installed = "570.200";
  const Choice none = choose_driver(all(), machine);
  CHECK(none.cause == "older");
  CHECK(
      none.next.ends_with("\"sudo p2pctl catalogue allow fork/570.86.16-on-570.200\" shows what is known, and asks."));
  machine.gpus = {gpu_of(Card{k5090}, 0), gpu_of(Card{k5090}, 1)};  // such cards are not among those of the patch
  CHECK(choose_driver(all(), machine).possible.empty());
}

TEST_CASE("solver: with NVLink bridges, a build that keeps them precedes one that does not") {
  Machine machine = machine_of({{k4090}, {k4090}}, {{"6.1.0-37-amd64"}});
  Catalogue some = all();
  some.entries[2].nvlink = "kept";  // 565.57.01
  some.entries[3].nvlink = "lost";  // the newest
  CHECK(choose_driver(some, machine).entry->id == kNewest);
  machine.nvlink = true;
  CHECK(choose_driver(some, machine).entry->id == "fork/565.57.01");
  CHECK(choose_driver(some, machine).notes.empty());
  for (CatalogueEntry& entry : some.entries) entry.nvlink = "lost";
  CHECK(std::ranges::count(choose_driver(some, machine).notes,
                           "bridged GPUs lose their NVLink with this build, and use PCIe") == 1);
}

TEST_CASE("solver: one build for all groups of GPUs, or the one for the larger groups is named", "[solver]") {
  Machine machine = machine_of({{k4090}, {k4090}, {k4090}, {k3090}, {k3090}}, {{"6.1.0"}});
  CHECK(choose_driver(made(), machine).cause == "mixed-generations");
  machine.divided = true;
  CHECK(choose_driver(made(), machine).entry->id == kNewest);
  machine.gpus[3].model->architecture = machine.gpus[4].model->architecture = "Blackwell";
  const Choice none = choose_driver(made(), machine);
  CHECK(none.entry == nullptr);
  CHECK(none.next.find("Without 2 GPUs, fork/570.86.16 fits: \"gpus: {exclude: [") != std::string::npos);
}

TEST_CASE("solver: a defect of generations together counts where both are, in P2P or beside it", "[solver]") {
  Catalogue all = made();
  all.entries[3].defects = {
      {.id = "x", .text = "x", .use = {}, .architectures = {}, .grave = true, .together = {"Ampere", "Ada"}}};
  Machine machine = machine_of({2, Card{k4090}}, {{"6.1.0"}});
  CHECK(choose_driver(all, machine).entry->id == kNewest);
  machine.beside = {"Ampere"};
  CHECK(choose_driver(all, machine).entry->id == "fork/565.57.01");
  machine = machine_of({{k4090}, {k4090}, {k3090}, {k3090}}, {{"6.1.0"}});
  machine.divided = true;
  CHECK(choose_driver(all, machine).entry->id == "fork/565.57.01");
}

TEST_CASE("solver: without apt a build is named for a person, with the commands", "[solver]") {
  Catalogue catalogue = all();
  catalogue.releases_at = "https://example.org/nvidia";
  for (CatalogueEntry& entry : catalogue.entries) entry.base_commit = std::string(40, 'c');
  const auto has = [](const Choice& choice, std::string_view text) {
    return std::ranges::any_of(choice.commands, [&](const auto& line) { return line.find(text) != line.npos; });
  };
  Machine machine = machine_of({2, Card{k4090}}, {{"6.8.0"}, {"6.12.9"}}, "565.57.01", "fedora");
  machine.distribution.manager = PackageManager::dnf;
  machine.kernels.front().headers = "kernel-devel-6.8.0";
  Choice choice = choose_driver(catalogue, machine);
  CHECK(choice.entry == nullptr);
  CHECK(choice.by_hand->id == "fork/565.57.01");  // of the installed version: its libraries stay
  CHECK(
      choice.next ==
      "Put the modules of fork/565.57.01 in place of those of 565.57.01: \"p2pctl catalogue\" ends with the commands.");
  for (const char* text :
       {"sudo dnf install kernel-devel-6.8.0 ", "https://example.org/nvidia cccc",
        "p2pctl catalogue diff fork/565.57.01 | git apply", "-j\"$(nproc)\" modules",
        "updates/by-hand\" kernel-open/nvidia*.ko", "override %s * updates/by-hand", "sudo dracut --force"})
    CHECK(has(choice, text));

  machine.distribution.manager = PackageManager::pacman;
  machine.driver_version.clear();
  machine.kernels.front().compiler = Compiler{"clang", 22};
  choice = choose_driver(catalogue, machine);
  CHECK(choice.by_hand->id == kNewest);
  CHECK(choice.next.starts_with("Install nvidia-open-dkms 570.86.16, then the modules of fork/570.86.16: "));
  CHECK(has(choice, "make -j\"$(nproc)\" LLVM=1 modules"));
  CHECK(has(choice, "sudo mkinitcpio -P"));

  machine.kernels = machine_of({}, {{"6.14.0"}}).kernels;
  choice = choose_driver(catalogue, machine);
  CHECK(choice.by_hand == nullptr);
  CHECK(choice.commands.empty());
  CHECK(choice.next.find("does not build for Linux 6.14.1") != std::string::npos);
}
