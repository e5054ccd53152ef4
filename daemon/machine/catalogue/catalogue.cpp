// SPDX-License-Identifier: MIT
#include "machine/catalogue/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_fields.hpp"
#include "base/yaml.hpp"
#include "machine/catalogue/catalogue_rows.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCatalogue =
#include "catalogue.inc"  // config/catalogue.yaml as JSON, made by CMake
    ;
constexpr std::size_t kCatalogueLimit = 1U << 20;  // bytes

using Json = nlohmann::json;
using Need = JsonFields::Need;

/// A row of one of the catalogue's tables, and its file.
struct Row {
  Json value;
  std::string source;
};

struct Table {
  const char* what;               ///< name of a row in errors
  std::vector<const char*> pins;  ///< keys on which all rows of one name must agree, as JSON pointers
  std::map<std::string, Row> rows = {};
};

/// Tables of all files, by name.
struct Tables {
  std::vector<std::string> runfile_hosts;
  std::string releases_at;
  Table rules{"compat rule", {"/header", "/pattern", "/include", "/gone"}};
  Table defects{"defect", {}};
  Table releases{"release", {"/commit", "/runfile/sha256"}};
  Table patches{"patch", {"/commit", "/sha256", "/base", "/tree", "/grafts"}};
  Table allowed{"allowed", {"/base_commit", "/commit", "/runfile_sha256"}};
  std::vector<std::string> notes;
};

bool any_value(const std::string&, const Json&) { return true; }

/// Returns false if both have the pin, but different values. In an object, those keys count that both have.
bool agree(const Json& one, const Json& other) {
  if (one.is_null() || other.is_null()) return true;
  if (!one.is_object() || !other.is_object()) return one == other;
  return std::ranges::all_of(one.items(),
                             [&](const auto& item) { return agree(item.value(), other.value(item.key(), Json())); });
}

Json at(const Json& row, const char* pin) { return row.value(Json::json_pointer(pin), Json()); }

Result<void> add_rows(const Json& rows, const std::string& source, Table& into, std::vector<std::string>& notes) {
  for (const auto& [name, value] : rows.items()) {
    if (!value.is_object()) return fail(ErrorCode::invalid, fmt::format("{} {}: not an object", into.what, name));
    const auto [there, is_new] = into.rows.try_emplace(name, Row{value, source});
    const Row& first = there->second;
    if (is_new || first.value == value) continue;
    for (const char* pin : into.pins)
      if (!agree(at(first.value, pin), at(value, pin)))
        return fail(ErrorCode::invalid,
                    fmt::format("{} {}: another '{}' than in {}", into.what, name, pin + 1, first.source),
                    "Give what differs a name of its own, or take it out of the drop-in.");
    notes.push_back(fmt::format("{}: {} {} is in {} too, which counts", source, into.what, name, first.source));
  }
  return {};
}

Result<void> add_file(const CatalogueFile& file, Tables& into) {
  JsonFields fields(file.tables);
  const std::string schema = fields.text("schema", [](std::string_view text) { return !text.empty(); });
  if (!schema.empty() && schema != "p2pd.catalogue/2")
    return fail(ErrorCode::invalid, fmt::format("schema {}; this p2pd reads p2pd.catalogue/2", schema),
                "\"p2pctl catalogue add REPOSITORY BRANCH\" writes an entry anew.");
  std::vector<std::string> hosts = fields.texts("runfile_hosts", is_runfile_host, Need::optional);
  const std::string releases_at = fields.text("releases_at", is_repository, Need::optional);
  const Json rules = fields.object("compat_rules", any_value), defects = fields.object("defects", any_value);
  const Json releases = fields.object("releases", any_value), patches = fields.object("patches", any_value);
  const Json allowed = fields.object("allowed", any_value);
  TRY(fields.done());
  // a drop-in that names hosts, or a repository, has a reason: its own precede others
  for (const std::string& host : into.runfile_hosts)
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
  into.runfile_hosts = std::move(hosts);
  if (!releases_at.empty()) into.releases_at = releases_at;
  TRY(add_rows(rules, file.source, into.rules, into.notes));
  TRY(add_rows(defects, file.source, into.defects, into.notes));
  TRY(add_rows(releases, file.source, into.releases, into.notes));
  TRY(add_rows(patches, file.source, into.patches, into.notes));
  return add_rows(allowed, file.source, into.allowed, into.notes);
}

/// Pin that a used entry needs, but no file has; empty: none.
std::string lacking(const CatalogueEntry& entry) {
  if (entry.commit.empty()) return entry.patch_file.empty() ? "the commit of its patch" : "the SHA-256 of its patch";
  if (entry.base_commit.empty()) return "the commit of its release";
  if (entry.is_graft() && entry.made_for_commit.empty()) return "the commit of " + entry.made_for;
  if (entry.runfile_path.empty()) return "the path of its runfile";
  if (entry.runfile_sha256.empty()) return "the SHA-256 of its runfile";
  if (entry.architectures.empty()) return "a GPU architecture";
  return {};
}

/// Applies an allowance if it is for these hashes; ignores one for others.
void allow(CatalogueEntry& entry, const Allowance& given) {
  const auto agrees = [](const std::string& pin, const std::string& allowed) { return pin.empty() || pin == allowed; };
  if (given.commit != entry.commit || !agrees(entry.base_commit, given.base_commit) ||
      !agrees(entry.runfile_sha256, given.runfile_sha256))
    return;
  entry.allowed = true;
  entry.base_commit = given.base_commit;
  entry.runfile_sha256 = given.runfile_sha256;
}

/// Adds the builds of one patch: on its own release, and grafted on others.
Result<void> add_entries(const std::string& id, const Row& row, const Tables& tables,
                         const std::vector<Defect>& defects, Catalogue& into) {
  const PatchRow patch = TRY(parse_patch(id, row.value, defects));
  for (const auto& [version, tree] : patch.trees) {
    const auto& releases = tables.releases.rows;
    const auto release = releases.find(version), made_for = releases.find(patch.entry.made_for);
    if (release == releases.end() || made_for == releases.end())
      return fail(ErrorCode::invalid,
                  fmt::format("there is no release {}", release == releases.end() ? version : patch.entry.made_for));
    CatalogueEntry entry = patch.entry;
    entry.made_for_commit = made_for->second.value.value("commit", "");
    entry.tree = tree;
    TRY(parse_release(version, release->second.value, entry));
    if (entry.is_graft()) {
      entry.id += "-on-" + version;
      for (auto& [architecture, evidence] : entry.architectures) evidence = "unknown";
      entry.reports.clear();
    }
    if (const auto allowed = tables.allowed.rows.find(entry.id); allowed != tables.allowed.rows.end())
      allow(entry, TRY(parse_allowance(allowed->second.value)));
    entry.lacks = lacking(entry);
    entry.source = row.source;
    if (std::ranges::count(into.entries, entry.id, &CatalogueEntry::id) != 0)
      return fail(ErrorCode::invalid, entry.id + " twice");
    into.entries.push_back(std::move(entry));
  }
  return {};
}

std::string where(const Row& row, const Table& table, const std::string& name) {
  return fmt::format("{}: {} {}", row.source, table.what, name);
}

/// Checks that a release is right by itself: entries copy its values.
Result<void> check_release(const std::string& version, const Json& row,
                           const std::map<std::string, CompatRule>& rules) {
  CatalogueEntry entry;
  TRY(parse_release(version, row, entry));
  for (const std::string& rule : entry.compat)
    if (!rules.contains(rule)) return fail(ErrorCode::invalid, "there is no compat rule " + rule);
  return {};
}

Result<Catalogue> built(const Tables& tables, const std::string& shipped) {
  KernelTable kernels = TRY(kernel_table());
  Catalogue all{tables.runfile_hosts, tables.releases_at, {}, {}, tables.notes, std::move(kernels)};
  for (const auto& [name, row] : tables.rules.rows)
    all.compat_rules.emplace(name, TRY_IN(where(row, tables.rules, name), parse_rule(name, row.value)));
  for (const auto& [version, row] : tables.releases.rows)
    TRY_IN(where(row, tables.releases, version), check_release(version, row.value, all.compat_rules));
  for (const auto& [id, row] : tables.allowed.rows) TRY_IN(where(row, tables.allowed, id), parse_allowance(row.value));
  std::vector<Defect> defects;
  for (const auto& [name, row] : tables.defects.rows)
    defects.push_back(TRY_IN(where(row, tables.defects, name), parse_defect(name, row.value)));
  for (const auto& [id, row] : tables.patches.rows) {
    TRY_IN(where(row, tables.patches, id), add_entries(id, row, tables, defects, all));
    for (CatalogueEntry& entry : all.entries) entry.of_this_machine = entry.source != shipped;
  }
  const auto older = [](const CatalogueEntry& one, const CatalogueEntry& other) {
    return std::pair(parse_version(one.base_version), one.id) < std::pair(parse_version(other.base_version), other.id);
  };
  std::ranges::sort(all.entries, older);
  return all;
}

}  // namespace

std::string_view to_string(Known known) {
  switch (known) {
    case Known::single_source: return "single source";
    case Known::corroborated: return "corroborated";
    case Known::verified: return "verified";
  }
  return "single source";
}

CatalogueFile shipped_catalogue() { return {"catalogue.yaml", parse_json(kCatalogue)}; }

Result<CatalogueFile> catalogue_file(std::string source, std::string_view yaml) {
  Json tables = TRY(TRY(yaml::parse(yaml, source)).json());
  return CatalogueFile{std::move(source), std::move(tables)};
}

const CatalogueEntry* dynamic_bar1_build(const Catalogue& catalogue, const std::set<std::string>& architectures) {
  const CatalogueEntry* found = nullptr;
  for (const CatalogueEntry& entry : catalogue.entries) {
    const auto lists = [&](const std::string& one) { return entry.architectures.contains(one); };
    if (!entry.dynamic_bar1 || !std::ranges::all_of(architectures, lists)) continue;
    if (entry.usable()) return &entry;
    found = &entry;
  }
  return found;
}

Result<Catalogue> parse_catalogue(const std::vector<CatalogueFile>& files) {
  Tables tables;
  for (const CatalogueFile& file : files) TRY_IN(file.source, add_file(file, tables));
  return built(tables, files.empty() ? "" : files.front().source);
}

Result<Catalogue> catalogue(const Host& host, const std::vector<CatalogueFile>& more) {
  std::vector<CatalogueFile> files = {shipped_catalogue()};
  std::vector<std::string> skipped;
  const auto names = host.files().list(kCatalogueDropIns);
  if (!names && names.error().code != ErrorCode::not_found) return Failure(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::string path = fmt::format("{}/{}", kCatalogueDropIns, name);
    if (name.ends_with(".yaml"))
      files.push_back(TRY(catalogue_file(path, TRY(host.files().read(path, kCatalogueLimit)))));
    else if (name.ends_with(".json"))  // file of an older p2pd
      skipped.push_back(path + " is not read: \"p2pctl catalogue add REPOSITORY BRANCH\" adds its build again");
  }
  files.insert(files.end(), more.begin(), more.end());
  Catalogue all = TRY(parse_catalogue(files));
  all.notes.insert(all.notes.end(), skipped.begin(), skipped.end());
  return all;
}

}  // namespace p2pd
