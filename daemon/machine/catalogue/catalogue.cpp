// SPDX-License-Identifier: MIT
#include "machine/catalogue/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/json_fields.hpp"
#include "base/sha256.hpp"
#include "base/yaml.hpp"
#include "machine/fetch/git_store.hpp"
#include "machine/hardware/p2p_use.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCatalogue =
#include "catalogue.inc"  // config/catalogue.yaml as JSON, made by CMake
    ;
constexpr std::size_t kCatalogueLimit = 1U << 20;  // bytes

using Json = nlohmann::json;
using Need = JsonFields::Need;

bool made_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kWord = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool any_value(const std::string&, const Json&) { return true; }

}  // namespace

bool is_architecture(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames = {"Ampere", "Ada", "Hopper", "Blackwell"};
  return std::ranges::count(kNames, text) == 1;
}

bool is_id_part(std::string_view text) { return made_of(text, kWord); }

bool is_repository(std::string_view text) {
  const auto strange = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f || c == '"' || c == '\\'; };
  const bool https = text.starts_with("https://") && text.find('/', 8) != std::string_view::npos;
  return (https || text.starts_with("file:///")) && std::ranges::none_of(text, strange);
}

namespace {

// Rows of the tables. Each is checked key by key; an Error(invalid) names the key.

bool is_text(std::string_view text) { return !text.empty(); }
bool is_row_name(std::string_view text) { return made_of(text, kNameLetters) && text.size() <= 64; }
bool is_driver_release(std::string_view text) { return parse_version(text) && std::ranges::count(text, '.') <= 2; }
bool is_driver_branch(std::string_view text) {
  return made_of(text, "0123456789") && parse_version(fmt::format("{}.0", text));
}
bool is_short_version(std::string_view text) { return parse_version(text) && std::ranges::count(text, '.') == 1; }
bool is_header(std::string_view text) {
  return text.size() > 2 && text.ends_with(".h") && text.front() != '/' && text.find("..") == std::string_view::npos;
}
bool is_include(std::string_view text) {  // one for a removed kernel header keeps its folder: linux/of_gpio.h
  const std::string_view file = text.substr(text.starts_with("linux/") ? 6 : 0);
  return file.ends_with(".h") && made_of(file.substr(0, file.size() - 2), "abcdefghijklmnopqrstuvwxyz0123456789_-");
}
bool is_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && is_id_part(text.substr(0, slash)) && is_id_part(text.substr(slash + 1));
}
bool is_runfile(std::string_view text) {
  return text.size() > 5 && text.front() == '/' && text.ends_with(".run") && made_of(text, std::string(kWord) + "/");
}
/// Checks for scheme and name without a path; or file:///.
bool is_runfile_host(std::string_view text) {
  if (text.starts_with("file:///")) return is_repository(text);
  const std::size_t name = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : text.size();
  return name < text.size() && text.find_first_of("/\"\\ ", name) == std::string_view::npos;
}
bool is_use(std::string_view text) { return uses_from({std::string(text)}).has_value(); }
bool is_nvlink(std::string_view text) { return text == "kept" || text == "lost"; }
bool is_known(std::string_view text) { return text == "verified" || text == "corroborated" || text == "single-source"; }

Known known(JsonFields& fields, Need need = Need::required) {
  const std::string text = fields.text("known", is_known, need);
  return text == "verified" ? Known::verified : text == "corroborated" ? Known::corroborated : Known::single_source;
}

bool architecture_row(const std::string& name, const Json& value) {
  return is_architecture(name) && (value == kReported || value == kNoReport);
}
bool option_row(const std::string&, const Json& value) { return value.is_string() || value.is_number_integer(); }
bool dword_row(const std::string&, const Json& value) { return value.is_number_unsigned(); }
bool graft_row(const std::string& version, const Json& value) {
  return is_driver_release(version) &&
         (value.is_null() || (value.is_string() && is_git_id(value.get_ref<const std::string&>())));
}

Result<void> parse_runfile(const Json& row, CatalogueEntry& entry) {
  JsonFields fields(row, "runfile: ");
  entry.runfile_path = fields.text("path", is_runfile);
  entry.runfile_sha256 = fields.text("sha256", is_sha256, Need::optional);
  entry.runfile_bytes = fields.bytes("bytes");
  entry.runfile_known = known(fields);
  return fields.done();
}

/// Parses the origin of the patch: a commit of a repository, or a file with its SHA-256.
void parse_origin(JsonFields& fields, CatalogueEntry& entry) {
  entry.patch_file = fields.text("file", is_repository, Need::optional);
  const Need need = entry.patch_file.empty() ? Need::required : Need::optional;
  entry.repository = fields.text("repository", is_repository, need);
  entry.also_in = fields.texts("also_in", is_repository, Need::optional);
  entry.branch = fields.text("branch", is_text, need);
  entry.commit = fields.text("commit", is_git_id, Need::optional);
  const std::string sum = fields.text("sha256", is_sha256, Need::optional);
  if (entry.patch_file.empty() && !sum.empty()) fields.wrong("'sha256' is of a patch file, and no 'file' is given");
  if (entry.patch_file.empty()) return;
  if (!entry.repository.empty() || !entry.branch.empty() || !entry.commit.empty())
    fields.wrong("either 'file' and 'sha256', or 'repository', 'branch' and 'commit'");
  entry.commit = sum;
}

Result<CompatRule> parse_rule(std::string_view name, const Json& row) {
  JsonFields fields(row);
  CompatRule rule;
  if (!is_row_name(name)) fields.wrong("not a name");
  rule.header = fields.text("header", is_header);
  rule.pattern = fields.text("pattern", is_text);
  rule.gone = fields.flag("gone");
  rule.include = fields.text("include", is_include, Need::optional);
  rule.why = fields.text("why", is_text);
  TRY(fields.done());
  return rule;
}

Result<Defect> parse_defect(const std::string& name, const Json& row) {
  JsonFields fields(row);
  Defect defect;
  defect.id = name;
  if (!is_row_name(name)) fields.wrong("not a name");
  defect.text = fields.text("text", is_text);
  defect.use = fields.text("use", is_use, Need::optional);
  defect.grave = fields.flag("grave");
  const std::string from = fields.text("from", is_driver_branch, Need::optional);
  if (!from.empty()) defect.from = parse_version(from + ".0").value_or(Version());
  const auto some = fields.texts("architectures", is_architecture, Need::optional),
             all = fields.texts("together", is_architecture, Need::optional);
  defect.architectures = {some.begin(), some.end()};
  defect.together = {all.begin(), all.end()};
  TRY(fields.done());
  return defect;
}

/// Fills in the release's part of `entry`.
Result<void> parse_release(const std::string& version, const Json& row, CatalogueEntry& entry) {
  JsonFields fields(row);
  entry.base_version = version;
  if (!is_driver_release(version)) fields.wrong("not a version of the driver");
  entry.base_commit = fields.text("commit", is_git_id, Need::optional);
  entry.base_known = known(fields, entry.base_commit.empty() ? Need::optional : Need::required);
  entry.cuda = fields.text("cuda", is_short_version, Need::optional);
  const std::string oldest = fields.text("kernel_min", is_short_version, Need::optional);
  if (!oldest.empty()) entry.kernel_min = parse_version(oldest);
  entry.gcc_min = fields.integer("gcc_min");
  entry.gcc_below = fields.integer("gcc_below");
  entry.compat = fields.texts("compat", is_row_name, Need::optional);
  const Json runfile = fields.object("runfile", any_value);
  TRY(fields.done());
  if (!row.contains("runfile")) return {};
  TRY(parse_runfile(runfile, entry));
  if (const std::string name = fmt::format("/NVIDIA-Linux-x86_64-{}.run", version); !entry.runfile_path.ends_with(name))
    return fail(ErrorCode::invalid, fmt::format("runfile: 'path' does not end in {}", name));
  return {};
}

/// A patch: its part of an entry, and the releases that it applies to.
struct PatchRow {
  CatalogueEntry entry;
  /// Releases, its own and grafts, with git's id of the result; empty: not known.
  std::map<std::string, std::string> trees;
};

Result<PatchRow> parse_patch(const std::string& id, const Json& row, const std::vector<Defect>& defects) {
  JsonFields fields(row);
  PatchRow patch;
  CatalogueEntry& entry = patch.entry;
  entry.id = id;
  if (!is_id(id)) fields.wrong("not FORK/BRANCH");
  parse_origin(fields, entry);
  entry.patch_known = known(fields);
  entry.made_for = fields.text("base", is_driver_release);
  patch.trees[entry.made_for] = fields.text("tree", is_git_id, Need::optional);
  entry.diffstat = fields.text("diffstat", is_text, Need::optional);
  const Json grafts = fields.object("grafts", graft_row);
  if (grafts.contains(entry.made_for)) fields.wrong("a graft on " + entry.made_for + ", its own release");
  for (const auto& [version, tree] : grafts.items())
    patch.trees[version] = tree.is_null() ? "" : tree.get<std::string>();
  const Json architectures = fields.object("architectures", architecture_row, Need::required);
  for (const auto& [name, evidence] : architectures.items()) entry.architectures[name] = evidence;
  entry.reports = fields.texts("reports", is_text, Need::optional);
  for (const std::string& name : fields.texts("defects", is_row_name, Need::optional)) {
    const auto defect = std::ranges::find(defects, name, &Defect::id);
    if (defect == defects.end())
      fields.wrong("there is no defect " + name);
    else
      entry.defects.push_back(*defect);
  }
  entry.module_options = fields.object("module_options", option_row);
  entry.registry_dwords = fields.object("registry_dwords", dword_row);
  entry.registry_dwords_forbidden = fields.object("registry_dwords_forbidden", dword_row);
  entry.nvlink = fields.text("nvlink", is_nvlink, Need::optional);
  entry.dynamic_bar1 = fields.flag("dynamic_bar1");
  TRY(fields.done());
  return patch;
}

Result<Allowance> parse_allowance(const Json& row) {
  JsonFields fields(row);
  const Allowance given{fields.text("base_commit", is_git_id), fields.text("commit", is_text),
                        fields.text("runfile_sha256", is_sha256, Need::optional)};
  TRY(fields.done());
  return given;
}

/// A row of one of the catalogue's tables, and its file.
struct Row {
  Json value;
  std::string source;
};

struct Table {
  const char* key;
  const char* what;                    ///< name of a row in errors
  std::vector<const char*> pins;       ///< keys on which all rows of one name must agree, as JSON pointers
  const char* completed_by = nullptr;  ///< key that a later file may add to a row of an earlier one
  std::map<std::string, Row> rows = {};
};

/// Tables of all files, by name.
struct Tables {
  std::vector<std::string> runfile_hosts;
  std::string releases_at;
  Table rules{"compat_rules", "compat rule", {"/header", "/pattern", "/include", "/gone"}};
  Table defects{"defects", "defect", {}};
  Table branches{"branches", "branch", {}};
  Table releases{"releases", "release", {"/commit", "/runfile/sha256"}, "runfile"};
  Table patches{"patches", "patch", {"/commit", "/sha256", "/base", "/tree", "/grafts"}};
  Table allowed{"allowed", "allowed", {"/base_commit", "/commit", "/runfile_sha256"}};
  std::vector<std::string> notes;
};

/// Returns false if both have the pin, but different values. In an object, those keys count that both have.
bool agree(const Json& one, const Json& other) {
  if (one.is_null() || other.is_null()) return true;
  if (!one.is_object() || !other.is_object()) return one == other;
  auto items = one.items();
  return std::all_of(items.begin(), items.end(),
                     [&](const auto& item) { return agree(item.value(), other.value(item.key(), Json())); });
}

Json at(const Json& row, const char* pin) {
  const Json::json_pointer place(pin);
  return row.contains(place) ? row.at(place) : Json();  // value() throws for a list on the way
}

Result<void> add_rows(const Json& rows, const std::string& source, Table& into, std::vector<std::string>& notes) {
  for (const auto& [name, value] : rows.items()) {
    if (!value.is_object()) return fail(ErrorCode::invalid, fmt::format("{} {}: not an object", into.what, name));
    Row& first = into.rows.try_emplace(name, Row{value, source}).first->second;
    for (const char* pin : into.pins)
      if (!agree(at(first.value, pin), at(value, pin)))
        return fail(ErrorCode::invalid,
                    fmt::format("{} {}: another '{}' than in {}", into.what, name, pin + 1, first.source),
                    "Give what differs a name of its own, or take it out of the drop-in.");
    const char* more = into.completed_by;
    if (more != nullptr && !first.value.contains(more) && value.contains(more)) {
      first.value[more] = value[more];
      first.source = source;  // to blame, if that is wrong
    } else if (first.value != value) {
      notes.push_back(fmt::format("{}: {} {} is in {} too, which counts", source, into.what, name, first.source));
    }
  }
  return {};
}

Result<void> add_file(const CatalogueFile& file, Tables& into) {
  JsonFields fields(file.tables);
  const std::string schema = fields.text("schema", [](std::string_view text) { return !text.empty(); });
  if (!schema.empty() && schema != "p2pd.catalogue/2")
    return fail(ErrorCode::invalid, fmt::format("schema {}; this p2pd reads p2pd.catalogue/2", schema),
                "\"sudo p2pctl catalogue add REPOSITORY BRANCH\" writes an entry anew.");
  std::vector<std::string> hosts = fields.texts("runfile_hosts", is_runfile_host, Need::optional);
  const std::string releases_at = fields.text("releases_at", is_repository, Need::optional);
  std::vector<std::pair<Table*, Json>> tables;
  for (Table* table : {&into.rules, &into.defects, &into.branches, &into.releases, &into.patches, &into.allowed})
    tables.emplace_back(table, fields.object(table->key, any_value));
  TRY(fields.done());
  // a drop-in that names hosts, or a repository, has a reason: its own precede others
  for (const std::string& host : into.runfile_hosts)
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
  into.runfile_hosts = std::move(hosts);
  if (!releases_at.empty()) into.releases_at = releases_at;
  for (const auto& [table, rows] : tables) TRY(add_rows(rows, file.source, *table, into.notes));
  return {};
}

/// Pin that its modules need, but no file has; empty: none.
std::string lacking(const CatalogueEntry& entry) {
  if (entry.commit.empty()) return entry.patch_file.empty() ? "the commit of its patch" : "the SHA-256 of its patch";
  if (entry.base_commit.empty()) return "the commit of its release";
  if (entry.is_graft() && entry.made_for_commit.empty()) return "the commit of " + entry.made_for;
  if (entry.architectures.empty()) return "a GPU architecture";
  return {};
}

/// Applies an allowance if it is for these hashes; ignores one for others. Without a sum it is for the modules alone.
void allow(CatalogueEntry& entry, const Allowance& given) {
  const auto agrees = [](const std::string& pin, const std::string& allowed) { return pin.empty() || pin == allowed; };
  const bool has_sum = !given.runfile_sha256.empty();
  if (!agrees(entry.commit, given.commit) || !agrees(entry.base_commit, given.base_commit) ||
      (has_sum && !agrees(entry.runfile_sha256, given.runfile_sha256)))
    return;
  entry.allowed = true;
  entry.runfile_allowed = has_sum;
  entry.commit = given.commit;
  entry.base_commit = given.base_commit;
  if (has_sum) entry.runfile_sha256 = given.runfile_sha256;
}

/// A release, with what its branch has for all of them.
Json release_row(const Tables& tables, const std::string& version, const Row& row) {
  const auto branch = tables.branches.rows.find(version.substr(0, version.find('.')));
  if (branch == tables.branches.rows.end()) return row.value;
  Json merged = branch->second.value;
  merged.update(row.value);
  return merged;
}

/// Makes `entry` a graft on the release that it has: the reports are of another.
void make_graft(CatalogueEntry& entry, const std::string& patch) {
  entry.id = fmt::format("{}-on-{}", patch, entry.base_version);
  for (auto& [architecture, evidence] : entry.architectures)
    if (evidence == kReported) evidence = kInherited;
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
    TRY(parse_release(version, release_row(tables, version, release->second), entry));
    std::erase_if(entry.defects, [of = *parse_version(version)](const Defect& defect) { return of < defect.from; });
    if (entry.is_graft()) make_graft(entry, id);
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

/// Checks what the releases of a branch have in common.
Result<void> check_branch(const std::string& name, const Json& row, const std::map<std::string, CompatRule>& rules) {
  if (!is_driver_branch(name)) return fail(ErrorCode::invalid, "not a branch of the driver");
  for (const char* own : {"commit", "known", "runfile"})
    if (row.contains(own)) return fail(ErrorCode::invalid, fmt::format("'{}' is a release's own", own));
  return check_release(name + ".0", row, rules);
}

Result<Catalogue> built(const Tables& tables, const std::string& shipped) {
  KernelTable kernels = TRY(kernel_table());
  Catalogue all{tables.runfile_hosts, tables.releases_at, {}, {}, tables.notes, std::move(kernels)};
  for (const auto& [name, row] : tables.rules.rows)
    all.compat_rules.emplace(name, TRY_IN(where(row, tables.rules, name), parse_rule(name, row.value)));
  for (const auto& [name, row] : tables.branches.rows)
    TRY_IN(where(row, tables.branches, name), check_branch(name, row.value, all.compat_rules));
  for (const auto& [version, row] : tables.releases.rows)
    TRY_IN(where(row, tables.releases, version),
           check_release(version, release_row(tables, version, row), all.compat_rules));
  for (const auto& [id, row] : tables.allowed.rows) TRY_IN(where(row, tables.allowed, id), parse_allowance(row.value));
  std::vector<Defect> defects;
  for (const auto& [name, row] : tables.defects.rows)
    defects.push_back(TRY_IN(where(row, tables.defects, name), parse_defect(name, row.value)));
  for (const auto& [id, row] : tables.patches.rows) {
    TRY_IN(where(row, tables.patches, id), add_entries(id, row, tables, defects, all));
    for (CatalogueEntry& entry : all.entries) entry.of_this_machine = entry.source != shipped;
  }
  for (const auto& [id, row] : tables.allowed.rows)
    if (auto graft =
            std::ranges::count(all.entries, id, &CatalogueEntry::id) == 0 ? unlisted_graft(all, id) : std::nullopt) {
      allow(*graft, TRY(parse_allowance(row.value)));
      graft->lacks = lacking(*graft);
      graft->source = row.source;
      all.entries.push_back(*std::move(graft));
    }
  const auto older = [](const CatalogueEntry& one, const CatalogueEntry& other) {
    return std::pair(parse_version(one.base_version), one.id) < std::pair(parse_version(other.base_version), other.id);
  };
  std::ranges::sort(all.entries, older);
  return all;
}

}  // namespace

std::string_view to_string(Known known) {
  constexpr std::string_view kNames[] = {"single source", "corroborated", "verified"};
  return kNames[static_cast<std::size_t>(known)];
}

std::string CatalogueEntry::why_not_usable() const {
  if (!lacks.empty()) return lacks + " is not known";
  return has_runfile() && runfile_sha256.empty() ? "the SHA-256 of its runfile is not known"
                                                 : "its hashes are confirmed by one source only";
}

CatalogueFile shipped_catalogue() { return {"catalogue.yaml", parse_json(kCatalogue)}; }

Result<CatalogueFile> catalogue_file(std::string source, std::string_view yaml) {
  Json tables = TRY(TRY(yaml::parse(yaml, source)).json());
  return CatalogueFile{std::move(source), std::move(tables)};
}

std::optional<CatalogueEntry> unlisted_graft(const Catalogue& catalogue, std::string_view id) {
  constexpr std::string_view kOn = "-on-";
  const std::size_t on = id.rfind(kOn);
  if (on == std::string_view::npos || !is_driver_release(id.substr(on + kOn.size()))) return std::nullopt;
  const std::string version(id.substr(on + kOn.size()));
  const Version wanted = *parse_version(version);
  const auto patch = std::ranges::find(catalogue.entries, id.substr(0, on), &CatalogueEntry::id);
  if (patch == catalogue.entries.end() || patch->is_graft() || patch->made_for == version ||
      parse_version(patch->made_for)->front() != wanted.front())
    return std::nullopt;
  const CatalogueEntry* nearest = &*patch;  // that release, or the newest of its branch before it, or the newest
  const auto nearness = [&](const CatalogueEntry& entry) {
    const Version listed = *parse_version(entry.base_version);
    return std::tuple(listed == wanted, listed < wanted, listed);
  };
  for (const CatalogueEntry& entry : catalogue.entries)
    if (parse_version(entry.base_version)->front() == wanted.front() && nearness(entry) > nearness(*nearest))
      nearest = &entry;
  CatalogueEntry graft = *patch;
  std::tie(graft.cuda, graft.kernel_min, graft.gcc_min, graft.gcc_below, graft.compat) =
      std::tie(nearest->cuda, nearest->kernel_min, nearest->gcc_min, nearest->gcc_below, nearest->compat);
  graft.base_version = version;
  graft.base_commit = nearest->base_version == version ? nearest->base_commit : "";
  for (std::string* pin : {&graft.tree, &graft.runfile_path, &graft.runfile_sha256}) pin->clear();
  graft.base_known = Known::single_source;  // a person decides
  graft.allowed = false;
  make_graft(graft, patch->id);
  graft.lacks = lacking(graft);
  return graft;
}

const CatalogueEntry* dynamic_bar1_build(const Catalogue& catalogue, const std::set<std::string>& architectures) {
  const CatalogueEntry* found = nullptr;
  for (const CatalogueEntry& entry : catalogue.entries) {
    const auto lists = [&](const std::string& one) { return entry.architectures.contains(one); };
    if (!entry.dynamic_bar1 || !std::ranges::all_of(architectures, lists)) continue;
    if (entry.usable()) return &entry;
    if (found == nullptr || entry.lacks.empty()) found = &entry;
  }
  return found;
}

Result<Catalogue> parse_catalogue(const std::vector<CatalogueFile>& files) {
  Tables tables;
  for (const CatalogueFile& file : files) TRY_IN(file.source, add_file(file, tables));
  return built(tables, files.empty() ? "" : files.front().source);
}

static Result<Catalogue> read_catalogue(const Host& host, const std::vector<CatalogueFile>& more) {
  std::vector<CatalogueFile> files = {shipped_catalogue()};
  std::vector<std::string> skipped;
  const auto names = host.files().list(kCatalogueDropIns);
  if (!names && names.error().code != ErrorCode::not_found) return Failure(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::string path = fmt::format("{}/{}", kCatalogueDropIns, name);
    if (name.ends_with(".yaml"))
      files.push_back(TRY(catalogue_file(path, TRY(host.files().read(path, kCatalogueLimit)))));
    else if (name.ends_with(".json"))  // file of an older p2pd
      skipped.push_back(path + " is not read: \"sudo p2pctl catalogue add REPOSITORY BRANCH\" adds its build again");
  }
  files.insert(files.end(), more.begin(), more.end());
  Catalogue all = TRY(parse_catalogue(files));
  all.notes.insert(all.notes.end(), skipped.begin(), skipped.end());
  return all;
}

Result<Catalogue> catalogue(const Host& host, const std::vector<CatalogueFile>& more) {
  if (!more.empty()) return read_catalogue(host, more);
  return host.once<Catalogue>("catalogue", [&] { return read_catalogue(host, {}); });
}

}  // namespace p2pd
