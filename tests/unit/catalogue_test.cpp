// SPDX-License-Identifier: MIT
#include "machine/catalogue/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "catalogue_tables.hpp"
#include "catch.hpp"

using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("catalogue: what ships is compiled in, and sound", "[catalogue]") {
  std::ifstream file(P2PD_SOURCE_DIR "/config/catalogue.yaml");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  CHECK(catalogue_file("catalogue.yaml", text)->tables == shipped_catalogue().tables);
  const Catalogue all = parse_catalogue({shipped_catalogue()}).value();
  CHECK(all.runfile_hosts.size() == 2);
  CHECK(all.releases_at == "https://github.com/NVIDIA/open-gpu-kernel-modules");
  CHECK(all.compat_rules.at("pci-resize-exclude-bars").pattern == "exclude_bars");
  CHECK(std::ranges::count_if(all.entries, &CatalogueEntry::usable) >= 6);
  CHECK(std::ranges::none_of(all.entries, &CatalogueEntry::allowed));
  CHECK(std::ranges::none_of(all.entries, &CatalogueEntry::of_this_machine));
  const CatalogueEntry& oldest = *std::ranges::find(all.entries, "tinygrad/550.54.15-p2p", &CatalogueEntry::id);
  CHECK(oldest.commit == "cc5890dbae6093c0c4dc66c456b69642548e111d");
  CHECK(oldest.gcc_below == 14);
  CHECK(oldest.registry_dwords_forbidden == Json{{"RMForceP2PType", 1}});
  CHECK(oldest.source == "catalogue.yaml");
}

TEST_CASE("catalogue: an entry is a release, a patch and a runfile", "[catalogue]") {
  const CatalogueEntry entry = entry_of(tables());
  CHECK(entry.base_version == "9.9.9");
  CHECK(entry.base_commit.back() == '9');
  CHECK(entry.cuda == "12.8");
  CHECK(entry.kernel_min == Version{3, 10});
  CHECK(entry.runfile_path == "/NVIDIA-Linux-x86_64-9.9.9.run");
  CHECK(entry.runfile_bytes == 1000);
  CHECK(entry.compat == std::vector<std::string>{"rule"});
  CHECK(entry.also_in == std::vector<std::string>{"file:///srv/clone"});
  CHECK(entry.tree == std::string(40, '4'));
  CHECK(entry.registry_dwords_forbidden == Json{{"B", 17}});
  CHECK(entry.dynamic_bar1);
  REQUIRE(entry.defects.size() == 1);
  CHECK(entry.defects[0].text == "it hangs");
  CHECK(entry.defects[0].grave);
  CHECK_FALSE(entry.is_graft());

  const CatalogueEntry file = entry_of(changed("/patches/test~1main", {{"file", "https://example.org/p.patch"},
                                                                       {"sha256", std::string(64, '5')},
                                                                       {"known", "verified"},
                                                                       {"base", "9.9.9"},
                                                                       {"architectures", {{"Ada", "unknown"}}}}));
  CHECK(file.patch_file == "https://example.org/p.patch");
  CHECK(file.commit == std::string(64, '5'));
  CHECK(file.usable());
}

TEST_CASE("catalogue: a graft is the patch on another release, whose reports are of its own", "[catalogue]") {
  const CatalogueEntry graft = entry_of(tables(), "test/main-on-9.9.8");
  CHECK(graft.is_graft());
  CHECK(graft.base_version == "9.9.8");
  CHECK(graft.base_commit.back() == '8');
  CHECK(graft.made_for == "9.9.9");
  CHECK(graft.made_for_commit.back() == '9');
  CHECK(graft.commit == std::string(40, '1'));
  CHECK(graft.tree.empty());
  CHECK(graft.compat.empty());
  CHECK(graft.architectures.at("Ada") == kInherited);
  CHECK(entry_of(changed(kPatch + "architectures/Ada", "unknown"), "test/main-on-9.9.8").architectures.at("Ada") ==
        kNoReport);
  CHECK(graft.defects.size() == 1);
  CHECK(graft.known() == Known::verified);
  CHECK(mistake(changed(kPatch + "grafts", {{"9.9.7", nullptr}})) ==
        "x.yaml: patch test/main: there is no release 9.9.7");
  CHECK(mistake(changed(kPatch + "grafts", {{"9.9.9", nullptr}})) ==
        "x.yaml: patch test/main: a graft on 9.9.9, its own release");
  Json twice = tables();
  twice["patches"]["test/main-on-9.9.8"] = twice["patches"]["test/main"];
  CHECK(mistake(twice) == "x.yaml: patch test/main-on-9.9.8: test/main-on-9.9.8 twice");
}

TEST_CASE("catalogue: a build is known as well as its weakest part, and used with all pins only", "[catalogue]") {
  CHECK(entry_of(tables()).known() == Known::corroborated);  // its runfile
  CHECK(entry_of(tables()).usable());
  for (const std::string& part : {kRelease, kPatch, kRelease + "runfile/"}) {
    INFO(part);
    const CatalogueEntry weak = entry_of(changed(part + "known", "single-source"));
    CHECK(weak.known() == Known::single_source);
    CHECK_FALSE(weak.usable());
  }
  const auto lacks = [](const Json& table, const std::string& what) {
    const CatalogueEntry entry = entry_of(table);
    CHECK(entry.why_not_usable() == what + " is not known");
    CHECK_FALSE(entry.usable());
    CHECK(entry.modules_usable() == what.ends_with("runfile"));
  };
  lacks(without(kPatch + "commit"), "the commit of its patch");
  lacks(without(kRelease + "runfile/sha256"), "the SHA-256 of its runfile");
  lacks(changed(kPatch + "architectures", Json::object()), "a GPU architecture");
  lacks(without(kRelease + "commit"), "the commit of its release");
  CHECK(entry_of(without(kRelease + "commit"), "test/main-on-9.9.8").lacks == "the commit of 9.9.9");
  Json unpinned = without(kRelease + "commit");
  unpinned["releases"]["9.9.9"].erase("known");
  CHECK(entry_of(unpinned).base_known == Known::single_source);
}

TEST_CASE("catalogue: every key is checked", "[catalogue]") {
  REQUIRE(mistake(tables()).empty());
  for (const Changes& wrong : {wrong_elsewhere(), wrong_releases(), wrong_patches()})
    for (const auto& [path, value] : wrong) {
      INFO(path << " = " << value.dump());
      CHECK(mistake(changed(path, value)).starts_with("x.yaml: "));
    }
  for (const std::string& key :
       {kRule + "header", kRule + "pattern", kRule + "why", kDefect + "text", kRelease + "known",
        kRelease + "runfile/path", kRelease + "runfile/known", kPatch + "repository", kPatch + "branch",
        kPatch + "known", kPatch + "base", kPatch + "architectures"}) {
    INFO(key);
    CHECK(mistake(without(key)).find("is missing") != std::string::npos);
  }
  CHECK(mistake(changed(kPatch + "defects", {"no-such-defect"})) ==
        "x.yaml: patch test/main: there is no defect no-such-defect");
  CHECK(mistake(changed(kRelease + "compat", {"none"})) == "x.yaml: release 9.9.9: there is no compat rule none");
  for (const Json& table : {Json(), Json("x"), Json::array(), Json(1)}) CHECK_FALSE(mistake(table).empty());
}

TEST_CASE("catalogue: a patch is a commit or a file, not both", "[catalogue]") {
  CHECK(mistake(changed(kPatch + "file", "https://example.org/x.patch")) ==
        "x.yaml: patch test/main: either 'file' and 'sha256', or 'repository', 'branch' and 'commit'");
  CHECK(mistake(changed(kPatch + "sha256", std::string(64, '5'))) ==
        "x.yaml: patch test/main: 'sha256' is of a patch file, and no 'file' is given");
  CHECK(mistake(changed(kPatch + "repository", "https://example.org/\"x")) ==
        "x.yaml: patch test/main: 'repository' cannot be \"https://example.org/\\\"x\"");
}

TEST_CASE("catalogue: a drop-in adds, may say a row again, and contradicts no pin", "[catalogue]") {
  const Json& release = tables()["releases"]["9.9.9"];
  Json mine = tables()["patches"]["test/main"];
  mine.erase("grafts");
  Json drop_in = drop_in_of("patches", "mine/main", mine);
  drop_in["releases"]["9.9.9"] = release;
  const Catalogue all = parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", drop_in}}).value();
  REQUIRE(all.entries.size() == 3);
  CHECK(all.entries[1].id == "mine/main");
  CHECK(all.entries[1].source == "mine.yaml");
  CHECK(all.entries[1].of_this_machine);
  CHECK_FALSE(all.entries[2].of_this_machine);
  const Catalogue again = parse_catalogue({{"x.yaml", tables()}, {"again.yaml", tables()}}).value();
  CHECK(again.entries.size() == 2);
  CHECK(again.notes.empty());

  // as after an update that ships a row that this machine had added: the pins agree, and p2pd's row has more keys
  Json known = tables()["patches"]["test/main"];
  known["known"] = "single-source";
  known.erase("tree");
  const Catalogue shipped =
      parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", drop_in_of("patches", "test/main", known)}}).value();
  CHECK(shipped.entries.size() == 2);
  CHECK(std::ranges::all_of(shipped.entries, [](const CatalogueEntry& entry) {
    return entry.patch_known == Known::verified && entry.source == "x.yaml";
  }));
  CHECK(shipped.notes == std::vector<std::string>{"mine.yaml: patch test/main is in x.yaml too, which counts"});

  const auto contradicts = [](const char* table, const std::string& name, const char* key, const Json& value,
                              const std::string& message) {
    Json row = tables()[table][name];
    row[Json::json_pointer(fmt::format("/{}", key))] = value;
    const Error error = refused(drop_in_of(table, name, row));
    CHECK(error.message == message);
    CHECK_FALSE(error.next.empty());
  };
  contradicts("releases", "9.9.9", "commit", std::string(40, '6'),
              "mine.yaml: release 9.9.9: another 'commit' than in x.yaml");
  contradicts("releases", "9.9.9", "runfile/sha256", std::string(64, '6'),
              "mine.yaml: release 9.9.9: another 'runfile/sha256' than in x.yaml");
  contradicts("patches", "test/main", "base", "9.9.8", "mine.yaml: patch test/main: another 'base' than in x.yaml");
  contradicts("patches", "test/main", "tree", std::string(40, '6'),
              "mine.yaml: patch test/main: another 'tree' than in x.yaml");
  contradicts("compat_rules", "rule", "pattern", "x", "mine.yaml: compat rule rule: another 'pattern' than in x.yaml");
}

TEST_CASE("catalogue: one of an older p2pd names its next step", "[catalogue]") {
  const Error error = refused({{"schema", "p2pd.catalogue/1"}, {"entries", Json::array()}});
  CHECK(error.message == "mine.yaml: schema p2pd.catalogue/1; this p2pd reads p2pd.catalogue/2");
  CHECK(error.next == "\"sudo p2pctl catalogue add REPOSITORY BRANCH\" writes an entry anew.");
}

TEST_CASE("catalogue: an allowance fills in what is missing, and counts for the hashes it was given to",
          "[catalogue]") {
  Json weak = changed(kPatch + "known", "single-source");
  weak["releases"]["9.9.9"].erase("commit");
  weak["releases"]["9.9.9"]["runfile"].erase("sha256");
  const Json given = {{"base_commit", std::string(40, '7')},
                      {"commit", std::string(40, '1')},
                      {"runfile_sha256", std::string(64, '8')}};
  const auto allowed = [&](const Json& table, const Json& row) {
    const Catalogue all =
        parse_catalogue({{"x.yaml", table}, {"mine.yaml", drop_in_of("allowed", "test/main", row)}}).value();
    return *std::ranges::find(all.entries, "test/main", &CatalogueEntry::id);
  };
  const CatalogueEntry entry = allowed(weak, given);
  CHECK(entry.usable());
  CHECK(entry.allowed);
  CHECK(entry.known() == Known::single_source);
  CHECK(entry.base_commit == std::string(40, '7'));
  CHECK(entry.runfile_sha256 == std::string(64, '8'));
  CHECK_FALSE(entry.of_this_machine);
  CHECK(entry.source == "x.yaml");
  for (const auto& [key, pin] : {std::pair<const char*, const char*>{"commit", "/patches/test~1main/commit"},
                                 {"base_commit", "/releases/9.9.9/commit"},
                                 {"runfile_sha256", "/releases/9.9.9/runfile/sha256"}}) {
    INFO(key);
    Json pinned = weak;
    pinned[Json::json_pointer(pin)] = given[key];
    CHECK(allowed(pinned, given).allowed);
    pinned[Json::json_pointer(pin)] = std::string(given[key].get_ref<const std::string&>().size(), '9');  // moved since
    CHECK_FALSE(allowed(pinned, given).allowed);
    CHECK_FALSE(allowed(pinned, given).usable());
  }
  Json two = drop_in_of("allowed", "gone/main", given);  // of a removed entry
  CHECK(parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", two}}));
}

TEST_CASE("catalogue: a runfile that is known badly, or comes later, concerns no packages that stay", "[catalogue]") {
  for (const char* known : {"single-source", "verified"}) {
    const CatalogueEntry entry = entry_of(changed(kRelease + "runfile/known", known));
    CHECK(entry.modules_usable());
    CHECK(entry.usable() == (std::string(known) == "verified"));
  }
  const Json modules = {{"base_commit", std::string(40, '7')},
                        {"commit", std::string(40, '1')}};  // allowed beside packages
  Json weak = changed(kPatch + "known", "single-source");
  weak["patches"]["test/main"]["commit"] = modules["commit"];
  weak["releases"]["9.9.9"]["commit"] = modules["base_commit"];
  const auto all =
      parse_catalogue({{"x.yaml", weak}, {"mine.yaml", drop_in_of("allowed", "test/main", modules)}}).value();
  const auto entry = std::ranges::find(all.entries, "test/main", &CatalogueEntry::id);
  CHECK(entry->modules_usable());
  CHECK(entry->usable());  // the runfile has a sum that two sources have
}

TEST_CASE("catalogue: the commit of a branch that is not pinned is the allowed one", "[catalogue]") {
  Json weak = without(kPatch + "commit");
  const Json given = {{"base_commit", weak["releases"]["9.9.9"]["commit"]}, {"commit", std::string(40, '1')}};
  const auto all =
      parse_catalogue({{"x.yaml", weak}, {"mine.yaml", drop_in_of("allowed", "test/main", given)}}).value();
  const auto entry = std::ranges::find(all.entries, "test/main", &CatalogueEntry::id);
  CHECK(entry->commit == std::string(40, '1'));
  CHECK(entry->lacks.empty());
}

TEST_CASE("catalogue: a release has what its branch has, and its own first", "[catalogue]") {
  Json table = changed("/branches", {{"9", {{"cuda", "12.9"}, {"compat", {"rule"}}, {"gcc_min", 11}}}});
  CHECK(entry_of(table, "test/main-on-9.9.8").cuda == "12.9");
  CHECK(entry_of(table, "test/main-on-9.9.8").compat == std::vector<std::string>{"rule"});
  CHECK(entry_of(table).cuda == "12.8");
  CHECK(entry_of(table).gcc_min == 11);
  const Json other = {{"schema", "p2pd.catalogue/2"}, {"branches", table["branches"]}};
  const auto apart = parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", other}}).value().entries;
  CHECK(std::ranges::find(apart, "test/main-on-9.9.8", &CatalogueEntry::id)->cuda == "12.9");  // another file's
  table["branches"]["9"]["compat"] = {"none"};
  CHECK(mistake(table) == "x.yaml: branch 9: there is no compat rule none");
  CHECK(mistake(changed("/branches", {{"9.9", Json::object()}})) == "x.yaml: branch 9.9: not a branch of the driver");
  CHECK(mistake(changed("/branches", {{"9", {{"commit", std::string(40, '1')}}}})) ==
        "x.yaml: branch 9: 'commit' is a release's own");
}

TEST_CASE("catalogue: a defect counts from the release on that has it", "[catalogue]") {
  CHECK(entry_of(changed("/defects/hang/from", "9")).defects.size() == 1);
  CHECK(entry_of(changed("/defects/hang/from", "10")).defects.empty());
}

TEST_CASE("catalogue: a release without a runfile is for packages that stay", "[catalogue]") {
  const Json drop_in = drop_in_of("releases", "9.9.9", tables()["releases"]["9.9.9"]);
  const auto more =
      parse_catalogue({{"x.yaml", without(kRelease + "runfile")}, {"mine.yaml", drop_in}}).value().entries;
  CHECK(std::ranges::find(more, "test/main", &CatalogueEntry::id)->runfile_sha256.back() == '9');  // a drop-in has it
  const CatalogueEntry entry = entry_of(without(kRelease + "runfile"));
  CHECK_FALSE(entry.has_runfile());
  CHECK(entry.usable());
  CHECK(entry.known() == Known::verified);
}

TEST_CASE("catalogue: a graft that no file lists takes all but the pins from the nearest release", "[catalogue]") {
  const Catalogue all = parse_catalogue({{"x.yaml", tables()}}).value();
  const auto graft = unlisted_graft(all, "test/main-on-9.10");
  REQUIRE(graft);
  CHECK(graft->id == "test/main-on-9.10");
  CHECK(graft->made_for == "9.9.9");
  CHECK(graft->made_for_commit.back() == '9');
  CHECK(graft->cuda == "12.8");
  CHECK(graft->compat == std::vector<std::string>{"rule"});
  CHECK(graft->architectures.at("Ada") == kInherited);
  CHECK((graft->base_commit.empty() && graft->tree.empty() && !graft->has_runfile()));
  CHECK(graft->lacks == "the commit of its release");
  CHECK(unlisted_graft(all, "test/main-on-9.9.8.1") == std::nullopt);  // no version of a driver
  CHECK(unlisted_graft(all, "test/main-on-9.9.8")->base_commit.back() ==
        '8');  // pinned for another patch, or another graft
  CHECK(unlisted_graft(all, "test/main-on-9.9.8")->compat.empty());
  for (const char* other : {"test/main-on-9.9.9", "test/main-on-9.9.8-on-9.10", "test/main", "test/main-on-10.1",
                            "none/main-on-9.10", "test/main-on-x", "-on-9.10", ""})
    CHECK_FALSE(unlisted_graft(all, other));
}

TEST_CASE("catalogue: an allowance makes an entry of a graft that no file lists", "[catalogue]") {
  const Json given = {{"base_commit", std::string(40, '7')}, {"commit", std::string(40, '1')}};
  const auto allowed = [&](const Json& row) {
    return parse_catalogue({{"x.yaml", tables()}, {"mine.yaml", drop_in_of("allowed", "test/main-on-9.10", row)}})
        .value()
        .entries;
  };
  const CatalogueEntry entry = allowed(given).back();
  CHECK(entry.id == "test/main-on-9.10");
  CHECK(entry.usable());
  CHECK(entry.base_commit == std::string(40, '7'));
  CHECK(entry.source == "mine.yaml");
  CHECK_FALSE(entry.of_this_machine);
  Json other = given;
  other["commit"] = std::string(40, '5');  // the patch has moved since
  CHECK_FALSE(allowed(other).back().usable());
}
