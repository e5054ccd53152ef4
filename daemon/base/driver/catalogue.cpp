// SPDX-License-Identifier: MIT
#include "base/driver/catalogue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json_fields.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCatalogue =
#include "catalogue.inc"  // config/catalogue.yaml as a raw string, made by CMake
    ;
constexpr std::size_t kCatalogueLimit = 1U << 20;  // bytes

using Json = nlohmann::json;
using Need = JsonFields::Need;

bool made_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kWord = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool is_text(std::string_view text) { return !text.empty(); }
bool is_name(std::string_view text) { return made_of(text, kNameLetters) && text.size() <= 64; }
bool is_commit(std::string_view text) { return made_of(text, kHexDigits) && text.size() == 40; }
bool is_sha256(std::string_view text) { return made_of(text, kHexDigits) && text.size() == 64; }
bool is_driver_release(std::string_view text) { return parse_version(text) && std::ranges::count(text, '.') <= 2; }
bool is_kernel_version(std::string_view text) { return parse_version(text) && std::ranges::count(text, '.') == 1; }
bool is_header(std::string_view text) {
  return text.size() > 2 && text.ends_with(".h") && text.front() != '/' && text.find("..") == std::string_view::npos;
}
bool is_include(std::string_view text) {
  return text.ends_with(".h") && made_of(text.substr(0, text.size() - 2), "abcdefghijklmnopqrstuvwxyz0123456789_-");
}
bool is_entry_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && made_of(text.substr(0, slash), kWord) &&
         made_of(text.substr(slash + 1), kWord);
}
bool is_repository(std::string_view text) { return text.starts_with("https://") || text.starts_with("file://"); }
bool is_host(std::string_view text) {
  if (text.starts_with("file:///")) return true;
  const std::size_t name = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : text.size();
  return name < text.size() && text.find('/', name) == std::string_view::npos;
}
bool is_runfile(std::string_view text) {
  return text.size() > 5 && text.front() == '/' && text.ends_with(".run") && text.find(' ') == std::string_view::npos;
}
bool is_architecture(std::string_view text) {
  constexpr std::array<std::string_view, 4> kKnown = {"Ampere", "Ada", "Hopper", "Blackwell"};
  return std::ranges::count(kKnown, text) == 1;
}
bool is_evidence(std::string_view text) { return text == "reported" || text == "unknown"; }
bool is_status(std::string_view text) {
  constexpr std::array<std::string_view, 4> kKnown = {"verified_in_git", "third_party_doc", "abbreviated_only",
                                                      "unknown"};
  return std::ranges::count(kKnown, text) == 1;
}

std::optional<Version> kernel_version(JsonFields& fields, const char* key) {
  const std::string text = fields.text(key, is_kernel_version, Need::optional);
  return text.empty() ? std::nullopt : parse_version(text);
}

bool any_value(const std::string&, const Json&) { return true; }
bool architecture_row(const std::string& name, const Json& value) {
  return is_architecture(name) && value.is_string() && is_evidence(value.get_ref<const std::string&>());
}
bool option_row(const std::string&, const Json& value) { return value.is_string() || value.is_number_integer(); }
bool dword_row(const std::string&, const Json& value) { return value.is_number_unsigned(); }

/// What an entry lacks that a used one must have; empty when nothing.
std::string lacking(const CatalogueEntry& entry, const JsonFields& fields) {
  if (entry.commit.empty() || entry.commit_status != "verified_in_git") return "a commit that was verified in git";
  if (entry.runfile_path.empty()) return "the path of its runfile";
  if (entry.runfile_sha256.empty()) return "the SHA-256 of its runfile";
  if (entry.architectures.empty()) return "a GPU architecture";
  for (const char* key : {"kernel", "compiler", "compat", "module_options"})
    if (!fields.has(key)) return fmt::format("'{}'", key);
  return {};
}

Result<void> parse_runfile(const Json& object, CatalogueEntry& entry) {
  JsonFields fields(object, "runfile: ");
  if (fields.text("version", is_driver_release) != entry.base_version) fields.wrong("its version is not base_version");
  entry.runfile_path = fields.text("path", is_runfile, Need::nullable);
  entry.runfile_sha256 = fields.text("sha256", is_sha256, Need::nullable);
  entry.runfile_bytes = fields.bytes("bytes");
  return fields.done();
}

Result<void> parse_limits(const Json& kernel, const Json& compiler, CatalogueEntry& entry) {
  JsonFields versions(kernel, "kernel: ");
  entry.kernel_min = kernel_version(versions, "min");
  entry.kernel_below = kernel_version(versions, "below");
  TRY(versions.done());
  JsonFields gcc(compiler, "compiler: ");
  entry.gcc_tested = gcc.integers("gcc_tested");
  entry.gcc_min = gcc.integer("gcc_min");
  entry.gcc_below = gcc.integer("gcc_below");
  return gcc.done();
}

Result<CatalogueEntry> parse_entry(const Json& row) {
  JsonFields fields(row);
  CatalogueEntry entry;
  entry.id = fields.text("id", is_entry_id);
  (void)fields.text("note", is_text, Need::optional);
  entry.enabled = fields.boolean("enabled");
  entry.fork = fields.text("fork", is_text);
  entry.repository = fields.text("repository", is_repository);
  entry.also_in = fields.texts("also_in", is_repository, Need::optional);
  entry.branch = fields.text("branch", is_text);
  entry.commit = fields.text("commit", is_commit, Need::nullable);
  entry.commit_status = fields.text("commit_status", is_status);
  entry.base_version = fields.text("base_version", is_driver_release);
  entry.compat = fields.texts("compat", is_name, Need::optional);
  entry.module_options = fields.object("module_options", option_row);
  entry.registry_dwords = fields.object("registry_dwords", dword_row);
  entry.registry_dwords_forbidden = fields.object("registry_dwords_forbidden", dword_row);
  const Json architectures = fields.object("architectures", architecture_row, Need::required);
  for (const auto& [name, value] : architectures.items()) entry.architectures[name] = value;
  const Json runfile = fields.object("runfile", any_value, Need::required);
  const Json kernel = fields.object("kernel", any_value), compiler = fields.object("compiler", any_value);
  TRY(fields.done());
  if (entry.id != entry.fork + "/" + entry.branch) return fail(ErrorCode::invalid, "'id' is not fork/branch");
  TRY(parse_runfile(runfile, entry));
  TRY(parse_limits(kernel, compiler, entry));
  const std::string absent = entry.enabled ? lacking(entry, fields) : std::string();
  if (!absent.empty()) return fail(ErrorCode::invalid, "enabled without " + absent);
  return entry;
}

Result<void> add_rules(const Json& rules, Catalogue& into) {
  for (const auto& [name, row] : rules.items()) {
    JsonFields fields(row, fmt::format("compat_rules: {}: ", name));
    if (!is_name(name)) fields.wrong("not a name");
    CompatRule rule{fields.text("header", is_header), fields.text("pattern", is_text),
                    fields.text("include", is_include, Need::optional), fields.text("why", is_text)};
    if (!into.compat_rules.emplace(name, std::move(rule)).second) fields.wrong("twice");
    TRY(fields.done());
  }
  return {};
}

Result<void> add_entries(const Json& rows, std::string_view source, Catalogue& into) {
  for (const Json& row : rows) {
    const auto id = row.is_object() ? row.find("id") : row.end();
    const std::string name = row.is_object() && id != row.end() && id->is_string()
                                 ? id->get<std::string>()
                                 : fmt::format("entry {}", &row - &*rows.begin());
    CatalogueEntry entry = TRY_IN(name, parse_entry(row));
    entry.source = source;
    for (const std::string& rule : entry.compat)
      if (!into.compat_rules.contains(rule)) return fail(ErrorCode::invalid, name + ": no compat rule " + rule);
    if (std::ranges::count(into.entries, entry.id, &CatalogueEntry::id) > 0)
      return fail(ErrorCode::invalid, name + " twice");
    into.entries.push_back(std::move(entry));
  }
  return {};
}

Result<Catalogue> parse(std::string_view text, std::string_view source, Catalogue into) {
  const Json table = parse_json(text);
  if (table.is_discarded()) return fail(ErrorCode::invalid, "not JSON");
  JsonFields fields(table);
  (void)fields.text("schema", [](std::string_view schema) { return schema == "p2pd.catalogue/1"; });
  (void)fields.texts("about", is_text, Need::optional);
  std::vector<std::string> hosts = fields.texts("runfile_hosts", is_host, Need::optional);
  const Json rules = fields.object("compat_rules", any_value);
  const Json& rows = fields.list("entries", Need::required);
  TRY(fields.done());
  // a drop-in that names hosts has a reason: its own come first
  for (const std::string& host : into.runfile_hosts)
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
  into.runfile_hosts = std::move(hosts);
  TRY(add_rules(rules, into));
  TRY(add_entries(rows, source, into));
  return into;
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    version.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != '.' || version.size() == 4) return std::nullopt;
  }
  if (version.size() < 2) return std::nullopt;
  return version;
}

Result<Catalogue> parse_catalogue(std::string_view text, std::string_view source, Catalogue before) {
  return TRY_IN(source, parse(text, source, std::move(before)));
}

Result<Catalogue> catalogue(const Host& host) {
  Catalogue all = TRY(parse_catalogue(kCatalogue, "catalogue.yaml"));
  const auto names = host.files().list(kCatalogueDropIns);
  if (!names && names.error().code != ErrorCode::not_found) return Failure(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!name.ends_with(".json")) continue;
    const std::string path = fmt::format("{}/{}", kCatalogueDropIns, name);
    all = TRY(parse_catalogue(TRY(host.files().read(path, kCatalogueLimit)), path, std::move(all)));
  }
  return all;
}

}  // namespace p2pd
