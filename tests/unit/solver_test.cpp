// SPDX-License-Identifier: MIT
#include "machine/driver/solver.hpp"

#include <algorithm>

#include "catch.hpp"
#include "machine/catalogue/staging.hpp"

using namespace p2pd;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr char kRule[] = "pci-resize-exclude-bars";
constexpr char kNewest[] = "fork/570.86.16";

/// A build that is pinned, verified, and needs a rule that no compat header makes up for: that is what needs most
/// tests.
CatalogueEntry build(const std::string& version,
                     std::map<std::string, std::string> architectures = {{"Ampere", "unknown"}, {"Ada", "reported"}}) {
  CatalogueEntry entry;
  entry.id = "fork/" + version;
  entry.base_version = entry.made_for = version;
  entry.kernel_min = Version{4, 15};
  entry.compat = {kRule};
  entry.architectures = std::move(architectures);
  entry.base_known = entry.patch_known = entry.runfile_known = Known::verified;
  return entry;
}

/// Two builds for old kernels, two for newer ones, and two that may not be used yet.
Catalogue made() {
  Catalogue all;
  all.compat_rules[kRule] = {"include/linux/pci.h", "exclude_bars", "", "a fourth argument"};
  for (const char* version : {"550.54.15", "550.90.07"}) {
    all.entries.push_back(build(version));
    all.entries.back().kernel_min = Version{3, 10};
    all.entries.back().gcc_below = 14;
  }
  for (const char* version : {"565.57.01", "570.86.16"}) all.entries.push_back(build(version));
  all.entries.back().cuda = "12.8";
  all.entries.push_back(build("590.48.01", {{"Ada", "reported"}, {"Blackwell", "reported"}}));
  all.entries.back().compat.clear();
  all.entries.back().cuda = "13.1";
  all.entries.push_back(build("595.71.05", {{"Ada", "reported"}}));
  all.entries.back().dynamic_bar1 = true;
  for (std::size_t i = 4; i < 6; ++i) all.entries[i].patch_known = Known::single_source;
  all.kernels = parse_kernel_table(R"({"schema": "p2pd.kernel-table/1", "releases": {
    "550.54.15": {"source": "x", "tree": "x", "kernels": {"6.8.1": "builds", "6.10.1": "fails: x.c:1: error: no"}},
    "550.90.07": {"source": "x", "tree": "x", "kernels": {"6.11.1": "builds", "6.12.1": "fails: x.c:1: error: no"}},
    "565.57.01": {"source": "x", "tree": "x", "kernels": {"6.12.1": "builds", "6.13.1": "fails: x.c:1: error: no"}},
    "570.86.16": {"source": "x", "tree": "x", "kernels": {"6.13.1": "builds", "6.14.1": "fails: x.c:1: error: no"}},
    "590.48.01": {"source": "x", "tree": "x", "kernels": {"6.1.1": "builds", "6.13.1": "builds"}},
    "595.71.05": {"source": "x", "tree": "x", "kernels": {"6.1.1": "builds", "6.13.1": "builds"}}}})")
                    .value();
  return all;
}

const Catalogue& all() {
  static const Catalogue kAll = made();
  return kAll;
}

struct Card {
  const char* id;
  std::uint64_t bar1 = 32 * kGiB;
  std::optional<std::uint64_t> most = 32 * kGiB;
  std::optional<std::uint64_t> told = std::nullopt;
};

Machine::Gpu gpu_of(const Card& card, std::size_t at) {
  Machine::Gpu gpu{
      {"0000:0" + std::to_string(at + 1) + ":00.0", card.id, std::nullopt}, card.told, card.bar1, card.most};
  static const std::vector<GpuModel> kModels = gpu_models().value();
  for (const GpuModel& model : kModels)
    if (model.id == card.id) gpu.model = model;
  return gpu;
}

enum class Headers { absent, old, backport };

struct Boots {
  const char* release;
  std::optional<Compiler> compiler = Compiler{"gcc", 12};
  Headers headers = Headers::old;
};

/// Kernels as they boot: the first runs.
Machine machine_of(const std::vector<Card>& cards, const std::vector<Boots>& kernels, const char* driver = "",
                   const char* distribution = "debian") {
  Machine machine;
  for (const Card& card : cards) machine.gpus.push_back(gpu_of(card, machine.gpus.size()));
  for (const Boots& boots : kernels) {
    Machine::Target kernel{{boots.release, machine.kernels.empty(), boots.compiler, "/boot/config", true}, {}};
    if (boots.headers != Headers::absent) kernel.rules[kRule] = boots.headers == Headers::backport;
    machine.kernels.push_back(kernel);
  }
  machine.gcc_installed = {12};
  machine.distribution = {distribution, "12", std::string(distribution) == "debian"};
  machine.driver_version = driver;
  return machine;
}

const EntryVerdict& row(const Choice& choice, std::string_view entry) {
  const auto found = std::ranges::find(choice.table, entry, &EntryVerdict::entry);
  REQUIRE(found != choice.table.end());
  return *found;
}

constexpr char k4090[] = "10de:2684", k3090[] = "10de:2204", k5090[] = "10de:2b85", kH200[] = "10de:2335",
               kA6000[] = "10de:2230", kRtx6000Ada[] = "10de:26b1";

struct Row {
  const char* what;
  Machine machine;
  const char* entry;    // expected; "" for none
  const char* cause;    // expected
  const char* mention;  // in the summary
  std::size_t questions = 0;
};

std::vector<Row> rows() {
  const Card small{k4090, kGiB / 4, kGiB / 4}, shrunk{k4090, kGiB / 4, 32 * kGiB}, blind{k4090, kGiB / 4, std::nullopt},
      converted{k4090, 32 * kGiB, 32 * kGiB, 48 * kGiB - 12 * (kGiB / 1024)}, vbios{k3090, kGiB / 4, kGiB / 4};
  const std::vector<Card> two = {{k4090}, {k4090}};
  const Boots bookworm{"6.1.0-37-amd64"}, backport{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport};
  return {
      // machines of the records, with and without their headers
      {"rtx4090-x2-am5", machine_of(two, {{"6.8.0-60-generic", Compiler{"gcc", 13}}}), kNewest, "", "Ada"},
      {"rtx4090-x2-am5 without headers", machine_of(two, {{"6.8.0-60-generic", std::nullopt, Headers::absent}}),
       kNewest, "", "fits", 1},
      {"rtx4090-x2-rebar-off", machine_of({shrunk, shrunk}, {bookworm}), kNewest, "", "fits"},
      {"rtx4090-x8-two-socket", machine_of({8, Card{k4090}}, {{"5.15.0-139-generic", Compiler{"gcc", 11}}}), kNewest,
       "", "Ada"},
      {"rtx3090-x4-epyc", machine_of({{k3090}, {k3090}, vbios, {k3090}}, {bookworm}), "", "bar1-too-small", "256 MiB"},
      {"rtx5090-x2-genoa", machine_of({{k5090}, {k5090}}, {{"6.8.0-52-generic"}}), "", "architecture", "Blackwell"},
      {"h200-x4-vm", machine_of({4, Card{kH200, 0, std::nullopt}}, {{"6.18.44"}}, "580.159.04", "ubuntu"), "", "",
       "proof"},
      {"no-gpu", machine_of({}, {bookworm}), "", "no-gpu", "no NVIDIA GPU"},
      {"one-4090", machine_of({{k4090}}, {bookworm}), kNewest, "", "fits"},
      // cards
      {"3090 pair, nobody showed it", machine_of({{k3090}, {k3090}}, {bookworm}), kNewest, "", "Ampere"},
      {"two models of one generation", machine_of({{k4090}, {kRtx6000Ada, 64 * kGiB, 64 * kGiB}}, {bookworm}), kNewest,
       "", "Ada"},
      {"mixed generations", machine_of({{k4090}, {k5090}}, {bookworm}), "", "mixed-generations", "Ada and Blackwell"},
      {"mixed professional ones", machine_of({{kA6000}, {kRtx6000Ada}}, {bookworm}, "570.86.16"), "",
       "mixed-generations", "Ampere"},
      {"unknown card", machine_of({{k4090}, {"10de:abcd"}}, {bookworm}), "", "unknown-gpu", "10de:abcd (0000:02:00.0)"},
      {"consumer Turing", machine_of({{"10de:1e07"}, {"10de:1e07"}}, {bookworm}), "", "old-geforce", "a Turing card"},
      {"small Turing", machine_of({{"10de:2184"}}, {bookworm}), "", "old-geforce", "a Turing card"},
      {"GTX 1080 Ti", machine_of({2, Card{"10de:1b06", kGiB / 4, kGiB / 4}}, {bookworm}), "", "old-geforce",
       "a Pascal card"},
      {"TITAN V", machine_of({{"10de:1d81"}}, {bookworm}), "", "old-geforce", "a Volta card"},
      {"a GT 1030 for the screen", machine_of({{k4090}, {k4090}, {"10de:1d01"}}, {bookworm}), "", "old-geforce",
       "GT 1030 (0000:03:00.0)"},
      {"48 GB conversion", machine_of({converted, converted}, {bookworm}), "", "converted-card", "49140 MiB"},
      {"BAR1 for good too small", machine_of({small, small}, {bookworm}), "", "bar1-too-small", "24 GiB"},
      {"BAR1 not readable", machine_of({blind, blind}, {bookworm}), kNewest, "", "fits", 2},
      {"several sizes of VRAM", machine_of({{"10de:2803"}}, {bookworm}), kNewest, "", "fits", 1},
      {"professional cards", machine_of({{kA6000}, {kA6000}}, {bookworm}, "550.54.15"), "", "", "already gives P2P"},
      {"professional Turing", machine_of({2, Card{"10de:1e30", kGiB / 4, kGiB / 4}}, {bookworm}, "570.86.16"), "", "",
       "already gives P2P"},
      {"A100", machine_of({4, Card{"10de:20b2", 128 * kGiB, 128 * kGiB}}, {bookworm}, "570.86.16"), "", "",
       "4 x NVIDIA A100-SXM4-80GB"},
      {"professional cards, no driver", machine_of({{kA6000}, {kA6000}}, {bookworm}), "", "no-driver",
       "none is loaded"},
      // kernels, headers, compilers, distributions
      {"backported argument", machine_of(two, {backport}), "", "headers", "a fourth argument"},
      {"new kernel waits for its boot", machine_of(two, {bookworm, backport}), "", "headers",
       "running kernel 6.1.0-37-amd64"},
      {"6.13: the newest that may be used", machine_of(two, {{"6.13.2"}}), kNewest, "", "fits"},
      {"6.14: none", machine_of(two, {{"6.14.0-15-generic"}}), "", "kernel", "does not build for Linux 6.14.1"},
      {"Linux 4.14", machine_of(two, {{"4.14.1", Compiler{"gcc", 8}}}), "fork/550.90.07", "", "fits"},
      {"Linux 3.2", machine_of(two, {{"3.2.0"}}), "", "kernel", "older than"},
      {"a kernel of clang", machine_of(two, {{"6.8.0", Compiler{"clang", 17}}}), "", "compiler", "clang 17"},
      {"gcc 14", machine_of(two, {{"6.8.0", Compiler{"gcc", 14}}}), kNewest, "", "fits"},
      {"gcc 14 and 4.14", machine_of(two, {{"4.14.0", Compiler{"gcc", 14}}}), "", "compiler", "gcc 14"},
      {"unknown compiler and 4.14", machine_of(two, {{"4.14.0", std::nullopt}}), "fork/550.90.07", "", "fits", 1},
      {"release without a version", machine_of(two, {{"custom"}}), kNewest, "", "fits", 1},
      {"no kernel", machine_of(two, {}), kNewest, "", "fits", 1},
      {"Fedora", machine_of(two, {{"6.8.0"}}, "", "fedora"), "", "distribution", "fedora"},
  };
}

}  // namespace

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
        "not used, because one source alone has its hashes; allowed, it would fit");
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
}

TEST_CASE("solver: candidates that would fit are named, never chosen", "[solver]") {
  const Machine machine = machine_of({2, Card{k5090}}, {{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport}});
  const Choice choice = choose_driver(all(), machine);
  CHECK(choice.entry == nullptr);
  CHECK(
      choice.next.ends_with("Would fit, and may not be used yet: fork/590.48.01. "
                            "\"p2pctl catalogue allow fork/590.48.01\" shows what is known, and asks."));
  Catalogue allowed = made();
  allowed.entries[4].allowed = true;
  CHECK(choose_driver(allowed, machine).entry->id == "fork/590.48.01");
  allowed.entries[4].lacks = "the SHA-256 of its runfile";
  CHECK(choose_driver(allowed, machine).entry == nullptr);
  allowed.entries[4].compat = {kRule};  // it does not know the argument
  const Choice neither = choose_driver(allowed, machine);
  CHECK(neither.next.find("590.48.01") == std::string::npos);
  CHECK(row(neither, "fork/590.48.01")
            .reason.starts_with("not used, because nobody has the SHA-256 of its runfile; "
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
    machine.driver_version = "580.1";
    CHECK(chosen() == "570.1");
    older.defects = {{.id = "hang", .text = "it hangs", .use = {}, .architectures = {}, .grave = true}};
    CHECK(chosen() == "580.1");  // the build on the machine decides
  }
  SECTION("it takes no GPU down") {
    newer.defects = {{.id = "slow", .text = "it is slow", .use = {}, .architectures = {}, .grave = false}};
    CHECK(chosen() == "580.1");
    newer.defects = {{.id = "hang", .text = "it hangs", .use = {}, .architectures = {"Ada"}, .grave = true}};
    machine.driver_version = "580.1";  // counts for less
    CHECK(chosen() == "570.1");
    machine = machine_of({2, Card{k5090}}, {{"6.1.0"}});  // nobody saw it with such cards
    CHECK(chosen() == "580.1");
  }
  SECTION("it does not lower the driver") {
    newer.architectures["Ada"] = "unknown";
    machine.driver_version = "575.1";
    CHECK(chosen() == "580.1");
    machine.driver_version = "585.1";  // both would, and this one less
    CHECK(chosen() == "580.1");
    machine.driver_version = "580.9";  // not its branch, nor its CUDA
    CHECK(chosen() == "580.1");
    machine.driver_version = "565.1";
    CHECK(chosen() == "570.1");
  }
  SECTION("somebody reported it") {
    newer.architectures["Ada"] = "unknown";
    CHECK(chosen() == "570.1");
  }
  SECTION("it is known better") {
    newer.base_version = "570.1";
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
  const Choice choice = choose_driver(all, machine);
  CHECK(choice.entry->id == kNewest);
  const auto told = [](const Choice& made_choice, std::string_view note) {
    return std::ranges::count(made_choice.notes, note) == 1;
  };
  CHECK(told(choice,
             "it lowers the driver from 590.48.01 to 570.86.16: programs that need a CUDA newer than 12.8 stop working "
             "(now 13.1)"));
  CHECK(told(choice, "known defect: it is slow"));
  CHECK_FALSE(told(choice, "known defect: it is slower"));
  CHECK(row(choice, kNewest).defects == std::vector<std::string>{"it is slow"});
  machine.driver_version = "585.1";  // of a branch that the catalogue does not know
  CHECK(told(choose_driver(all, machine),
             "it lowers the driver from 585.1 to 570.86.16: programs that need a CUDA newer than 12.8 stop working"));
  all.entries[3].cuda.clear();
  CHECK(told(choose_driver(all, machine), "it lowers the driver from 585.1 to 570.86.16"));
  machine.driver_version = "570.86.16";
  CHECK(choose_driver(all, machine).notes.size() == 1);  // the defect
}

TEST_CASE("solver: a converted card takes a build with dynamic BAR1, and no other", "[solver]") {
  const Card converted{k4090, 32 * kGiB, 32 * kGiB, 48 * kGiB};
  const Machine machine = machine_of({2, converted}, {{"6.1.0"}});
  Choice choice = choose_driver(all(), machine);
  CHECK(choice.cause == "converted-card");
  CHECK(choice.next.find("\"p2pctl catalogue allow fork/595.71.05\"") != std::string::npos);
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
