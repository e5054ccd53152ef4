// SPDX-License-Identifier: MIT
#include "base/driver/solver.hpp"

#include <algorithm>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

using namespace p2pd;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr char kRule[] = "pci-resize-exclude-bars";
constexpr char kNewest[] = "aikitoria/570.86.16-p2p";

/// The catalogue that ships, but for its compat headers: a rule without one is what needs most tests.
const Catalogue& shipped() {
  static const Catalogue kShipped = [] {
    const test::TemporaryDirectory directory;
    test::FakeRunner runner;
    Catalogue all = catalogue(Host(Root::open(directory.path()).value(), runner)).value();
    all.compat_rules.at(kRule).include.clear();
    return all;
  }();
  return kShipped;
}

struct Card {
  const char* id;
  std::uint64_t bar1 = 32 * kGiB;
  std::optional<std::uint64_t> most = 32 * kGiB;
  std::optional<std::uint64_t> told = std::nullopt;
};

Machine::Gpu gpu_of(const Card& card, std::size_t at) {
  Machine::Gpu gpu{{"0000:0" + std::to_string(at + 1) + ":00.0", card.id, std::nullopt}, card.told, card.bar1, card.most};
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
      {"backported argument", machine_of(two, {backport}), "", "headers", "exclude_bars"},
      {"new kernel waits for its boot", machine_of(two, {bookworm, backport}), "", "headers",
       "running kernel 6.1.0-37-amd64"},
      {"6.13: only the newest", machine_of(two, {{"6.13.2"}}), kNewest, "", "fits"},
      {"6.14: none", machine_of(two, {{"6.14.0-15-generic"}}), "", "kernel", "before Linux 6.14"},
      {"Linux 4.14", machine_of(two, {{"4.14.1", Compiler{"gcc", 8}}}), "tinygrad/550.90.07-p2p", "", "fits"},
      {"Linux 3.2", machine_of(two, {{"3.2.0"}}), "", "kernel", "older than"},
      {"a kernel of clang", machine_of(two, {{"6.8.0", Compiler{"clang", 17}}}), "", "compiler", "clang 17"},
      {"gcc 14", machine_of(two, {{"6.8.0", Compiler{"gcc", 14}}}), kNewest, "", "fits"},
      {"gcc 14 and 4.14", machine_of(two, {{"4.14.0", Compiler{"gcc", 14}}}), "", "compiler", "gcc 14"},
      {"unknown compiler and 4.14", machine_of(two, {{"4.14.0", std::nullopt}}), "tinygrad/550.90.07-p2p", "", "fits",
       1},
      {"release without a version", machine_of(two, {{"custom"}}), kNewest, "", "fits", 1},
      {"no kernel", machine_of(two, {}), kNewest, "", "fits", 1},
      {"Fedora", machine_of(two, {{"6.8.0"}}, "", "fedora"), "", "distribution", "fedora"},
  };
}

}  // namespace

TEST_CASE("solver: machines and the entry or reason each gets", "[solver]") {
  for (const Row& expected : rows()) {
    INFO(expected.what);
    const Choice choice = choose_driver(shipped(), expected.machine);
    INFO(choice.summary);
    CHECK((choice.entry != nullptr ? choice.entry->id : std::string()) == expected.entry);
    CHECK(choice.cause == expected.cause);
    CHECK(choice.summary.find(expected.mention) != std::string::npos);
    CHECK(choice.questions.size() == expected.questions);
    CHECK(choice.table.size() == shipped().entries.size());
    CHECK(std::ranges::all_of(choice.table, [](const EntryVerdict& verdict) { return !verdict.reason.empty(); }));
    CHECK(choice.cause.empty() == choice.next.empty());
    CHECK((choice.entry != nullptr || choice.already_p2p) == choice.cause.empty());
  }
}

TEST_CASE("solver: each entry tells why it does not fit, and what would change it", "[solver]") {
  const std::vector<Card> two = {{k4090}, {k4090}};
  const Choice choice = choose_driver(shipped(), machine_of(two, {{"6.11.0", Compiler{"gcc", 13}}, {"6.12.9"}}));
  CHECK(choice.entry->id == kNewest);
  CHECK(row(choice, "tinygrad/550.54.15-p2p").reason ==
        "it does not build on 6.11.0; a kernel before Linux 6.10 would do");
  CHECK_FALSE(row(choice, "tinygrad/550.54.15-p2p").running_only);
  CHECK(row(choice, "tinygrad/550.90.07-p2p").running_only);
  CHECK(row(choice, "tinygrad/550.90.07-p2p").reason ==
        "it fits the running kernel 6.11.0, but not every bootable one: it does not build on 6.12.9; a kernel before "
        "Linux "
        "6.12 would do");
  CHECK(row(choice, "tinygrad/565.57.01-p2p").fit == EntryVerdict::Fit::fits);
  CHECK(row(choice, "aikitoria/580.82.09-p2p").reason ==
        "not enabled, because its commit is not known; pinned, it would fit");
  CHECK(row(choice, "aikitoria/590.48.01-p2p").reason ==
        "not enabled, because its commit is known by hearsay only; pinned, it would fit");
  const auto told = [&](std::string_view note) { return std::ranges::count(choice.notes, note) == 1; };
  CHECK(told("6.11.0 wants gcc 13; it was built with gcc 12 so far"));
  CHECK(told("gcc-13, the compiler of 6.11.0, is not installed"));
}

TEST_CASE("solver: candidates that would fit are named, never chosen", "[solver]") {
  const Choice choice = choose_driver(
      shipped(), machine_of({{k5090}, {k5090}}, {{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport}}));
  CHECK(choice.entry == nullptr);
  CHECK(choice.next.find("aikitoria/590.48.01-p2p") != std::string::npos);  // knows the argument
  CHECK(choice.next.find("580.82.09") == std::string::npos);                // does not
  CHECK(row(choice, "aikitoria/580.82.09-p2p").reason.find("even pinned it would not fit") != std::string::npos);
}

TEST_CASE("solver: a compat header makes up for what the source does not know", "[solver]") {
  Catalogue all = shipped();
  all.compat_rules.at(kRule).include = "exclude-bars.h";
  const Machine machine = machine_of({{k4090}, {k4090}}, {{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport}});
  CHECK(choose_driver(all, machine).entry->id == kNewest);
}

TEST_CASE("solver: what is certain goes before what is newer", "[solver]") {
  Catalogue all = shipped();
  CatalogueEntry older = all.entries.front();
  older.id = "mine/500.1-p2p";
  older.base_version = "500.1";
  older.compat.clear();
  all.entries.push_back(older);
  const Machine machine = machine_of({{k4090}, {k4090}}, {{"6.1.0", Compiler{"gcc", 12}, Headers::absent}});
  const Choice choice = choose_driver(all, machine);
  CHECK(choice.entry->id == "mine/500.1-p2p");
  CHECK(choice.questions.empty());
}

TEST_CASE("solver: without an enabled entry there is a reason, too", "[solver]") {
  Catalogue all = shipped();
  for (CatalogueEntry& entry : all.entries) entry.enabled = false;
  const Machine machine = machine_of({{k4090}, {k4090}}, {{"6.1.0"}});
  CHECK(choose_driver(all, machine).cause == "no-entry");
  all.entries.clear();
  const Choice choice = choose_driver(all, machine);
  CHECK(choice.cause == "no-entry");
  CHECK(choice.table.empty());
}

TEST_CASE("solver: a newer kernel that does not start by default need not be fitted", "[solver]") {
  for (const Headers headers : {Headers::backport, Headers::absent}) {  // it does not fit; whether it fits is not known
    Machine machine = machine_of({{k4090}, {k4090}}, {{"6.1.0-37-amd64"}, {"6.1.0-48-amd64", Compiler{"gcc", 12}, headers}});
    const Choice held_by_it = choose_driver(shipped(), machine);
    CHECK((held_by_it.entry == nullptr || !held_by_it.questions.empty()));
    machine.kernels.back().held_back = true;
    const Choice choice = choose_driver(shipped(), machine);
    REQUIRE(choice.entry != nullptr);
    CHECK(choice.entry->id == kNewest);
    CHECK(choice.questions.empty());
    CHECK(std::ranges::count(choice.notes, "6.1.0-37-amd64 starts by default: newer kernels have no modules") == 1);
  }
}
