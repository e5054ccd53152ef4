// SPDX-License-Identifier: MIT
#include "base/driver/catalogue.hpp"

#include <algorithm>
#include <fstream>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

using namespace p2pd;
using Json = nlohmann::json;

namespace {

const Json& shipped() {
  static const Json kShipped = [] {
    std::ifstream file(P2PD_SOURCE_DIR "/config/catalogue.yaml");
    return Json::parse(file);
  }();
  return kShipped;
}

/// What is wrong with `table`; empty when nothing is.
std::string mistake(const Json& table, const Catalogue& before = {}) {
  const auto parsed = parse_catalogue(table.dump(), "x.json", before);
  return parsed ? "" : parsed.error().message;
}

/// The shipped table with the value at `path` (a JSON pointer) changed; null with `drop` takes the key out.
Json changed(const std::string& path, const Json& value, bool drop = false) {
  Json table = shipped();
  const Json::json_pointer at(path);
  if (drop)
    table.at(at.parent_pointer()).erase(at.back());
  else
    table[at] = value;
  return table;
}

Json drop_in(const char* id, bool enabled) {
  Json entry = shipped()["entries"][0];
  const std::string name(id);
  entry["id"] = name;
  entry["fork"] = name.substr(0, name.find('/'));
  entry["branch"] = name.substr(name.find('/') + 1);
  entry["enabled"] = enabled;
  return {{"schema", "p2pd.catalogue/1"}, {"entries", {entry}}};
}

struct Tree {
  void put(const std::string& name, const std::string& content) const {
    directory.put("etc/p2pd/catalogue.d/" + name, content);
  }
  Result<Catalogue> load() { return catalogue(Host(Root::open(directory.path()).value(), runner)); }
  test::TemporaryDirectory directory;
  test::FakeRunner runner;
};

}  // namespace

TEST_CASE("catalogue: what ships is compiled in", "[catalogue]") {
  const Catalogue all = Tree().load().value();
  CHECK(all.entries.size() == shipped()["entries"].size());
  CHECK(std::ranges::count(all.entries, true, &CatalogueEntry::enabled) == 6);
  CHECK(all.runfile_hosts.size() == 2);
  CHECK(all.compat_rules.at("pci-resize-exclude-bars").pattern == "exclude_bars");
  const CatalogueEntry& entry = all.entries.front();
  CHECK(entry.commit == "cc5890dbae6093c0c4dc66c456b69642548e111d");
  CHECK(entry.kernel_below == Version{6, 10});
  CHECK(entry.gcc_below == 14);
  CHECK(entry.registry_dwords_forbidden == Json{{"RMForceP2PType", 1}});
  CHECK(entry.source == "catalogue.yaml");
  for (const CatalogueEntry& each : all.entries) {
    INFO(each.id);
    CHECK((!each.enabled || (each.commit.size() == 40 && each.commit_status == "verified_in_git" &&
                             each.runfile_sha256.size() == 64 && !each.runfile_path.empty())));
  }
}

TEST_CASE("catalogue: an enabled entry without its pins is refused", "[catalogue]") {
  const std::string at = "/entries/0/";
  const auto refused = [&](const std::string& key, const Json& value, const std::string& why) {
    INFO(key << " " << value.dump());
    const std::string what = mistake(changed(at + key, value));
    CHECK(what.starts_with("x.json: tinygrad/550.54.15-p2p: "));
    CHECK(what.find(why) != std::string::npos);
    Json candidate = changed(at + key, value);
    candidate["entries"][0]["enabled"] = false;
    CHECK(mistake(candidate).empty());
  };
  refused("commit", nullptr, "enabled without a commit");
  for (const char* status : {"third_party_doc", "abbreviated_only", "unknown"})
    refused("commit_status", status, "enabled without a commit");
  refused("runfile/sha256", nullptr, "SHA-256");
  refused("runfile/path", nullptr, "path of its runfile");
  refused("architectures", Json::object(), "architecture");
  for (const char* key : {"kernel", "compiler", "compat", "module_options"})
    CHECK(mistake(changed(at + key, nullptr, true)).find("enabled without") != std::string::npos);
}

TEST_CASE("catalogue: every key is checked", "[catalogue]") {
  REQUIRE(mistake(shipped()).empty());
  const std::string at = "/entries/0/";
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"/schema", "p2pd.catalogue/2"},
      {"/mirrors", Json::array()},
      {"/entries", Json::object()},
      {"/entries/0", "x"},
      {"/about", "text"},
      {"/runfile_hosts/0", "ftp://x"},
      {"/runfile_hosts/0", "https://x/y"},
      {"/compat_rules", 1},
      {"/compat_rules/Name", Json::object()},
      {"/compat_rules/pci-resize-exclude-bars/header", "/etc/passwd.h"},
      {"/compat_rules/pci-resize-exclude-bars/header", "../../x.h"},
      {"/compat_rules/pci-resize-exclude-bars/include", "a/b.h"},
      {"/compat_rules/pci-resize-exclude-bars/more", 1},
      {at + "repo", "x"},
      {at + "id", "x"},
      {at + "id", "a/b"},
      {at + "enabled", "yes"},
      {at + "repository", "git@x"},
      {at + "also_in", {"x"}},
      {at + "commit", "cc5890dbae60"},
      {at + "commit", std::string(40, 'G')},
      {at + "commit_status", "certain"},
      {at + "base_version", 550.54},
      {at + "base_version", "550"},
      {at + "base_version", "550.1"},
      {at + "runfile/sha256", "2e859ae5"},
      {at + "runfile/version", "550.54.14"},
      {at + "runfile/path", "x.run"},
      {at + "runfile/bytes", 0},
      {at + "runfile/bytes", -5},
      {at + "runfile/md5", "x"},
      {at + "architectures", {{"Pascal", "reported"}}},
      {at + "architectures", {{"Ada", "yes"}}},
      {at + "kernel/min", 6.1},
      {at + "kernel/min", "6"},
      {at + "kernel/max", "6.1"},
      {at + "compiler/gcc_below", "14"},
      {at + "compiler/gcc_tested", {"12"}},
      {at + "compat", {"no-such-rule"}},
      {at + "compat", "x"},
      {at + "module_options", {{"NVreg_X", 1.5}}},
      {at + "registry_dwords", {{"X", "1"}}},
      {at + "registry_dwords_forbidden", {{"X", -1}}},
      {at + "note", ""},
      {"/entries/1", shipped()["entries"][0]},
  };
  for (const auto& [path, value] : wrong) {
    INFO(path << " = " << value.dump());
    CHECK(mistake(changed(path, value)).starts_with("x.json: "));
  }
  for (const char* key : {"id", "enabled", "fork", "repository", "branch", "commit", "commit_status", "base_version",
                          "runfile", "architectures"}) {
    INFO(key);
    CHECK_FALSE(mistake(changed(at + key, nullptr, true)).empty());
  }
  for (const char* text : {"", "[]", "nonsense", "{", "null", "\"x\""})
    CHECK_FALSE(parse_catalogue(text, "x.json").has_value());
}

TEST_CASE("catalogue: drop-ins add entries, and never an enabled one without pins", "[catalogue]") {
  Tree tree;
  tree.put("10-mine.json", drop_in("mine/550.54.15-p2p", true).dump());
  tree.put("20-theirs.json", drop_in("theirs/550.54.15-p2p", false).dump());
  tree.put("README", "not JSON, not looked at");
  const Catalogue all = tree.load().value();
  REQUIRE(all.entries.size() == shipped()["entries"].size() + 2);
  CHECK(all.entries[all.entries.size() - 2].id == "mine/550.54.15-p2p");
  CHECK(all.entries[all.entries.size() - 2].source == "/etc/p2pd/catalogue.d/10-mine.json");

  Json unpinned = drop_in("other/550.54.15-p2p", true);
  unpinned["entries"][0]["commit"] = nullptr;
  tree.put("30-other.json", unpinned.dump());
  CHECK(tree.load().error().message ==
        "/etc/p2pd/catalogue.d/30-other.json: other/550.54.15-p2p: enabled without a commit that was verified in git");
  tree.put("30-other.json", drop_in("tinygrad/550.54.15-p2p", true).dump());
  CHECK(tree.load().error().message.ends_with("tinygrad/550.54.15-p2p twice"));
  tree.put("30-other.json", "{\"schema\": \"p2pd.cat");
  CHECK(tree.load().error().message == "/etc/p2pd/catalogue.d/30-other.json: not JSON");
  tree.put("30-other.json", std::string((1U << 20) + 1, ' '));
  CHECK_FALSE(tree.load().has_value());
  tree.put("30-other.json",
           R"({"schema": "p2pd.catalogue/1", "entries": [], "runfile_hosts": ["file:///srv/mirror"]})");
  CHECK(tree.load()->runfile_hosts.front() == "file:///srv/mirror");
}

TEST_CASE("versions are two to four numbers, compared as numbers", "[catalogue]") {
  CHECK(parse_version("565.57.01").value() < parse_version("565.77").value());
  CHECK(parse_version("6.2").value() < parse_version("6.14").value());
  for (const char* text :
       {"", "6", "6.", ".6", "6..1", "6.1-rc1", "a.b", "1.2.3.4.5", "6.99999999999", " 6.1", "-6.1", "6.1 "}) {
    INFO(text);
    CHECK_FALSE(parse_version(text));
  }
}
