// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "catch.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/solver.hpp"

namespace p2pd::test {

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr char kRule[] = "pci-resize-exclude-bars";
inline constexpr char kNewest[] = "fork/570.86.16";

/// A build that is pinned, verified, and needs a rule that no compat header compensates: the case of most tests.
inline CatalogueEntry build(const std::string& version, std::map<std::string, std::string> architectures = {
                                                            {"Ampere", "unknown"}, {"Ada", "reported"}}) {
  CatalogueEntry entry;
  entry.id = "fork/" + version;
  entry.base_version = entry.made_for = version;
  entry.kernel_min = Version{4, 15};
  entry.compat = {kRule};
  entry.architectures = std::move(architectures);
  entry.runfile_path = "/" + version + ".run";
  entry.runfile_sha256 = std::string(64, '1');
  entry.base_known = entry.patch_known = entry.runfile_known = Known::verified;
  return entry;
}

/// Two builds for old kernels, two for newer ones, and two that may not be used yet.
inline Catalogue made() {
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

inline const Catalogue& all() {
  static const Catalogue kAll = made();
  return kAll;
}

struct Card {
  const char* id;
  std::uint64_t bar1 = 32 * kGiB;
  std::optional<std::uint64_t> most = 32 * kGiB;
  std::optional<std::uint64_t> told = std::nullopt;
};

inline Machine::Gpu gpu_of(const Card& card, std::size_t at) {
  Machine::Gpu gpu{
      {"0000:0" + std::to_string(at + 1) + ":00.0", card.id, std::nullopt}, card.told, card.bar1, card.most};
  for (const GpuModel& model : gpu_models())
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
inline Machine machine_of(const std::vector<Card>& cards, const std::vector<Boots>& kernels, const char* driver = "",
                          const char* distribution = "debian") {
  Machine machine;
  for (const Card& card : cards) machine.gpus.push_back(gpu_of(card, machine.gpus.size()));
  for (const Boots& boots : kernels) {
    Machine::Target kernel{{boots.release, machine.kernels.empty(), boots.compiler, "/boot/config", true}, {}};
    kernel.compiler_installed = boots.compiler == Compiler{"gcc", 12};
    if (boots.headers != Headers::absent) kernel.rules[kRule] = boots.headers == Headers::backport;
    machine.kernels.push_back(kernel);
  }
  machine.distribution = {distribution, "", "12",
                          std::string(distribution) == "debian" ? PackageManager::apt : PackageManager::other};
  machine.driver_version = machine.installed = driver;
  return machine;
}

inline const EntryVerdict& row(const Choice& choice, std::string_view entry) {
  const auto found = std::ranges::find(choice.table, entry, [](const EntryVerdict& one) { return one.entry->id; });
  REQUIRE(found != choice.table.end());
  return *found;
}

inline constexpr char k4090[] = "10de:2684", k3090[] = "10de:2204", k5090[] = "10de:2b85", kH200[] = "10de:2335",
                      kA6000[] = "10de:2230", kRtx6000Ada[] = "10de:26b1";

/// A machine and the solver's choice for it.
struct Row {
  const char* what;
  Machine machine;
  const char* entry;    // expected; "" for none
  const char* cause;    // expected
  const char* mention;  // in the summary
  std::size_t questions = 0;
};

inline const std::vector<Card> kTwo = {{k4090}, {k4090}};
inline const Boots kBookworm{"6.1.0-37-amd64"};

/// Machines of the records, with and without their headers.
inline std::vector<Row> recorded() {
  const Card shrunk{k4090, kGiB / 4, 32 * kGiB}, vbios{k3090, kGiB / 4, kGiB / 4};
  return {
      {"rtx4090-x2-am5", machine_of(kTwo, {{"6.8.0-60-generic", Compiler{"gcc", 13}}}), kNewest, "", "Ada"},
      {"rtx4090-x2-am5 without headers", machine_of(kTwo, {{"6.8.0-60-generic", std::nullopt, Headers::absent}}),
       kNewest, "", "fits", 1},
      {"rtx4090-x2-rebar-off", machine_of({shrunk, shrunk}, {kBookworm}), kNewest, "", "fits"},
      {"rtx4090-x8-two-socket", machine_of({8, Card{k4090}}, {{"5.15.0-139-generic", Compiler{"gcc", 11}}}), kNewest,
       "", "Ada"},
      {"rtx3090-x4-epyc", machine_of({{k3090}, {k3090}, vbios, {k3090}}, {kBookworm}), "", "bar1-too-small", "256 MiB"},
      {"rtx5090-x2-genoa", machine_of({{k5090}, {k5090}}, {{"6.8.0-52-generic"}}), "", "architecture", "Blackwell"},
      {"h200-x4-vm", machine_of({4, Card{kH200, 0, std::nullopt}}, {{"6.18.44"}}, "580.159.04", "ubuntu"), "", "",
       "proof"},
      {"no-gpu", machine_of({}, {kBookworm}), "", "no-gpu", "no NVIDIA GPU"},
      {"one-4090", machine_of({{k4090}}, {kBookworm}), kNewest, "", "fits"},
  };
}

/// Cards of all kinds.
inline std::vector<Row> of_cards() {
  const Card small{k4090, kGiB / 4, kGiB / 4}, blind{k4090, kGiB / 4, std::nullopt},
      converted{k4090, 32 * kGiB, 32 * kGiB, 48 * kGiB - 12 * (kGiB / 1024)};
  return {
      {"3090 pair, nobody showed it", machine_of({{k3090}, {k3090}}, {kBookworm}), kNewest, "", "Ampere"},
      {"two models of one generation", machine_of({{k4090}, {kRtx6000Ada, 64 * kGiB, 64 * kGiB}}, {kBookworm}), kNewest,
       "", "Ada"},
      {"mixed generations", machine_of({{k4090}, {k5090}}, {kBookworm}), "", "mixed-generations", "Ada and Blackwell"},
      {"mixed professional ones", machine_of({{kA6000}, {kRtx6000Ada}}, {kBookworm}, "570.86.16"), "",
       "mixed-generations", "Ampere"},
      {"unknown card", machine_of({{k4090}, {"10de:abcd"}}, {kBookworm}), "", "unknown-gpu",
       "10de:abcd (0000:02:00.0)"},
      {"consumer Turing", machine_of({{"10de:1e07"}, {"10de:1e07"}}, {kBookworm}), "", "old-geforce", "a Turing card"},
      {"small Turing", machine_of({{"10de:2184"}}, {kBookworm}), "", "old-geforce", "a Turing card"},
      {"GTX 1080 Ti", machine_of({2, Card{"10de:1b06", kGiB / 4, kGiB / 4}}, {kBookworm}), "", "old-geforce",
       "a Pascal card"},
      {"TITAN V", machine_of({{"10de:1d81"}}, {kBookworm}), "", "old-geforce", "a Volta card"},
      {"a GT 1030 for the screen", machine_of({{k4090}, {k4090}, {"10de:1d01"}}, {kBookworm}), "", "old-geforce",
       "GT 1030 (0000:03:00.0)"},
      {"48 GB conversion", machine_of({converted, converted}, {kBookworm}), "", "converted-card", "49140 MiB"},
      {"BAR1 for good too small", machine_of({small, small}, {kBookworm}), "", "bar1-too-small", "24 GiB"},
      {"BAR1 not readable", machine_of({blind, blind}, {kBookworm}), kNewest, "", "fits", 2},
      {"several sizes of VRAM, BAR1 at its largest", machine_of({{"10de:2803"}}, {kBookworm}), kNewest, "", "fits"},
      {"several sizes of VRAM, no size of BAR1 readable",
       machine_of({{"10de:2803", 8 * kGiB, std::nullopt}}, {kBookworm}), kNewest, "", "fits", 1},
      {"professional cards", machine_of({{kA6000}, {kA6000}}, {kBookworm}, "550.54.15"), "", "", "already gives P2P"},
      {"professional Turing", machine_of({2, Card{"10de:1e30", kGiB / 4, kGiB / 4}}, {kBookworm}, "570.86.16"), "", "",
       "already gives P2P"},
      {"A100", machine_of({4, Card{"10de:20b2", 128 * kGiB, 128 * kGiB}}, {kBookworm}, "570.86.16"), "", "",
       "4 x NVIDIA A100-SXM4-80GB"},
      {"professional cards, no driver", machine_of({{kA6000}, {kA6000}}, {kBookworm}), "", "no-driver",
       "none is loaded"},
  };
}

/// Kernels, headers, compilers and distributions.
inline std::vector<Row> of_kernels() {
  const Boots backport{"6.1.0-48-amd64", Compiler{"gcc", 12}, Headers::backport};
  return {
      {"backported argument", machine_of(kTwo, {backport}), "", "headers", "a fourth argument"},
      {"new kernel waits for its boot", machine_of(kTwo, {kBookworm, backport}), "", "headers",
       "running kernel 6.1.0-37-amd64"},
      {"6.13: the newest that may be used", machine_of(kTwo, {{"6.13.2"}}), kNewest, "", "fits"},
      {"6.14: none", machine_of(kTwo, {{"6.14.0-15-generic"}}), "", "kernel", "does not build for Linux 6.14.1"},
      {"Linux 4.14", machine_of(kTwo, {{"4.14.1", Compiler{"gcc", 8}}}), "fork/550.90.07", "", "fits"},
      {"Linux 3.2", machine_of(kTwo, {{"3.2.0"}}), "", "kernel", "older than"},
      {"a kernel of clang", machine_of(kTwo, {{"6.8.0", Compiler{"clang", 17}}}), "", "compiler", "clang 17"},
      {"gcc 14", machine_of(kTwo, {{"6.8.0", Compiler{"gcc", 14}}}), kNewest, "", "fits"},
      {"gcc 14 and 4.14", machine_of(kTwo, {{"4.14.0", Compiler{"gcc", 14}}}), "", "compiler", "gcc 14"},
      {"unknown compiler and 4.14", machine_of(kTwo, {{"4.14.0", std::nullopt}}), "fork/550.90.07", "", "fits", 1},
      {"release without a version", machine_of(kTwo, {{"custom"}}), kNewest, "", "fits", 1},
      {"no kernel", machine_of(kTwo, {}), kNewest, "", "fits", 1},
      {"Fedora", machine_of(kTwo, {{"6.8.0"}}, "", "fedora"), "", "distribution", "fedora"},
  };
}

/// Every machine that the solver is asked about in a row.
inline std::vector<Row> rows() {
  std::vector<Row> all = recorded();
  for (const std::vector<Row>& more : {of_cards(), of_kernels()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace p2pd::test
