// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/catalogue/catalogue.hpp"

namespace p2pd::test {

using Json = nlohmann::json;

/// A catalogue of two releases, and of one patch with a graft.
inline constexpr char kTablesText[] = R"(
schema: p2pd.catalogue/2
runfile_hosts: [https://example.org]
releases_at: https://example.org/nvidia
compat_rules:
  rule: {header: include/linux/pci.h, pattern: exclude_bars, include: rule.h, why: a test}
defects:
  hang: {text: it hangs, use: copies, architectures: [Ada], grave: true}
releases:
  9.9.8:
    commit: "3333333333333333333333333333333333333338"
    known: verified
    runfile: {path: /NVIDIA-Linux-x86_64-9.9.8.run, sha256: "2222222222222222222222222222222222222222222222222222222222222228", known: verified}
  9.9.9:
    commit: "3333333333333333333333333333333333333339"
    known: verified
    cuda: "12.8"
    kernel_min: 3.10
    gcc_below: 14
    compat: [rule]
    runfile: {path: /NVIDIA-Linux-x86_64-9.9.9.run, sha256: "2222222222222222222222222222222222222222222222222222222222222229", bytes: 1000, known: corroborated}
patches:
  test/main:
    repository: https://example.org/fork
    also_in: [file:///srv/clone]
    branch: main
    commit: "1111111111111111111111111111111111111111"
    known: verified
    base: 9.9.9
    tree: "4444444444444444444444444444444444444444"
    grafts: {9.9.8: null}
    architectures: {Ada: reported}
    reports: [somebody]
    defects: [hang]
    module_options: {NVreg_X: 1}
    registry_dwords: {A: 1}
    registry_dwords_forbidden: {B: 0x11}
    dynamic_bar1: true
)";

inline const Json& tables() {
  static const Json kTables = catalogue_file("x.yaml", kTablesText)->tables;
  return kTables;
}

inline const std::string kRelease = "/releases/9.9.9/", kPatch = "/patches/test~1main/";

/// The tables with the value at `path` (a JSON pointer) changed.
inline Json changed(const std::string& path, const Json& value) {
  Json table = tables();
  table[Json::json_pointer(path)] = value;
  return table;
}

inline Json without(const std::string& path) {
  Json table = tables();
  const Json::json_pointer at(path);
  table.at(at.parent_pointer()).erase(at.back());
  return table;
}

/// Faults of `table`; empty if it has none.
inline std::string mistake(const Json& table) {
  const auto parsed = parse_catalogue({{"x.yaml", table}});
  return parsed ? "" : parsed.error().message;
}

inline CatalogueEntry entry_of(const Json& table, std::string_view id = "test/main") {
  const Catalogue all = parse_catalogue({{"x.yaml", table}}).value();
  return *std::ranges::find(all.entries, id, &CatalogueEntry::id);
}

inline Error refused(const Json& drop_in) {
  return parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", drop_in}}).error();
}

inline Json drop_in_of(const char* table, const std::string& name, const Json& row) {
  return {{"schema", "p2pd.catalogue/2"}, {table, {{name, row}}}};
}

/// Paths in the tables, and invalid values for them.
using Changes = std::vector<std::pair<std::string, Json>>;
inline const std::string kRule = "/compat_rules/rule/", kDefect = "/defects/hang/";

/// Wrong values outside of releases and patches.
inline Changes wrong_elsewhere() {
  return {
      {"/schema", 2},
      {"/schema", "p2pd.catalogue/3"},
      {"/entries", Json::array()},
      {"/runfile_hosts/0", "ftp://x"},
      {"/runfile_hosts/0", "https://x/y"},
      {"/compat_rules", 1},
      {"/compat_rules/Name", tables()["compat_rules"]["rule"]},
      {kRule + "header", "/etc/passwd.h"},
      {kRule + "header", "../../x.h"},
      {kRule + "include", "a/b.h"},
      {kRule + "more", 1},
      {kDefect + "text", ""},
      {kDefect + "use", "games"},
      {kDefect + "grave", "yes"},
      {kDefect + "architectures", {"Pascal"}},
      {"/allowed/test~1main", {{"commit", "x"}}},
      {"/allowed/gone~1main", "x"},
  };
}

/// Wrong values of releases.
inline Changes wrong_releases() {
  return {
      {"/releases_at", "git@x"},
      {"/releases/9", tables()["releases"]["9.9.9"]},
      {"/releases/9.9.9.9", tables()["releases"]["9.9.9"]},
      {kRelease + "commit", "cc5890dbae60"},
      {kRelease + "commit", nullptr},
      {kRelease + "known", "certain"},
      {kRelease + "cuda", "12"},
      {kRelease + "kernel_min", 6},
      {kRelease + "gcc_below", "14"},
      {kRelease + "compat", {"no-such-rule"}},
      {kRelease + "compat", "rule"},
      {kRelease + "runfile/sha256", "2e859ae5"},
      {kRelease + "runfile/path", "x.run"},
      {kRelease + "runfile/path", "/NVIDIA-Linux-x86_64-9.9.8.run"},
      {"/releases_at", "https://host"},
      {kRelease + "runfile/bytes", 0},
      {kRelease + "runfile/bytes", -5},
      {kRelease + "runfile/md5", "x"},
      {kRelease + "kernel_below", "6.1"},
  };
}

/// Wrong values of patches.
inline Changes wrong_patches() {
  return {
      {"/patches", Json::array()},
      {"/patches/test~1main", "x"},
      {"/patches/test", tables()["patches"]["test/main"]},
      {"/patches/test~1a~1b", tables()["patches"]["test/main"]},
      {kPatch + "repo", "x"},
      {kPatch + "repository", "git@x"},
      {kPatch + "also_in", {"x"}},
      {kPatch + "commit", std::string(40, 'G')},
      {kPatch + "known", "yes"},
      {kPatch + "base", "9.9.7"},
      {kPatch + "base", 9},
      {kPatch + "tree", "1"},
      {kPatch + "grafts", {{"9.9.8", "x"}}},
      {kPatch + "grafts", {"9.9.8"}},
      {kPatch + "architectures", {{"Pascal", "reported"}}},
      {kPatch + "architectures", {{"Ada", "yes"}}},
      {kPatch + "defects", {"no-such-defect"}},
      {kPatch + "module_options", {{"NVreg_X", 1.5}}},
      {kPatch + "registry_dwords", {{"X", "1"}}},
      {kPatch + "registry_dwords_forbidden", {{"X", -1}}},
      {kPatch + "dynamic_bar1", 1},
      {kPatch + "enabled", true},
  };
}

}  // namespace p2pd::test
