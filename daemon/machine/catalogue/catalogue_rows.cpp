// SPDX-License-Identifier: MIT
#include "machine/catalogue/catalogue_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json_fields.hpp"
#include "machine/fetch/git_store.hpp"
#include "machine/hardware/p2p_use.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;
using Need = JsonFields::Need;

bool made_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kWord = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool is_text(std::string_view text) { return !text.empty(); }
bool is_row_name(std::string_view text) { return made_of(text, kNameLetters) && text.size() <= 64; }
bool is_sha256(std::string_view text) { return made_of(text, kHexDigits) && text.size() == 64; }
bool is_driver_release(std::string_view text) { return parse_version(text) && std::ranges::count(text, '.') <= 2; }
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
bool is_use(std::string_view text) { return uses_from({std::string(text)}).has_value(); }
bool is_nvlink(std::string_view text) { return text == "kept" || text == "lost"; }
bool is_known(std::string_view text) { return text == "verified" || text == "corroborated" || text == "single-source"; }

Known known(JsonFields& fields, Need need = Need::required) {
  const std::string text = fields.text("known", is_known, need);
  return text == "verified" ? Known::verified : text == "corroborated" ? Known::corroborated : Known::single_source;
}

bool architecture_row(const std::string& name, const Json& value) {
  return is_architecture(name) && (value == "reported" || value == "unknown");
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

bool is_runfile_host(std::string_view text) {
  if (text.starts_with("file:///")) return is_repository(text);
  const std::size_t name = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : text.size();
  return name < text.size() && text.find_first_of("/\"\\ ", name) == std::string_view::npos;
}

Result<CompatRule> parse_rule(std::string_view name, const Json& row) {
  JsonFields fields(row);
  CompatRule rule;
  if (!is_row_name(name)) fields.wrong("not a name");
  rule.header = fields.text("header", is_header);
  rule.pattern = fields.text("pattern", is_text);
  rule.gone = fields.has("gone") && fields.boolean("gone");
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
  defect.grave = fields.has("grave") && fields.boolean("grave");
  for (std::string& architecture : fields.texts("architectures", is_architecture, Need::optional))
    defect.architectures.insert(std::move(architecture));
  for (std::string& architecture : fields.texts("together", is_architecture, Need::optional))
    defect.together.insert(std::move(architecture));
  TRY(fields.done());
  return defect;
}

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
  const Json runfile = fields.object(
      "runfile", [](const std::string&, const Json&) { return true; }, Need::required);
  TRY(fields.done());
  TRY(parse_runfile(runfile, entry));
  if (const std::string name = fmt::format("/NVIDIA-Linux-x86_64-{}.run", version); !entry.runfile_path.ends_with(name))
    return fail(ErrorCode::invalid, fmt::format("runfile: 'path' does not end in {}", name));
  return {};
}

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
  entry.dynamic_bar1 = fields.has("dynamic_bar1") && fields.boolean("dynamic_bar1");
  TRY(fields.done());
  return patch;
}

Result<Allowance> parse_allowance(const Json& row) {
  JsonFields fields(row);
  const Allowance given{fields.text("base_commit", is_git_id), fields.text("commit", is_text),
                        fields.text("runfile_sha256", is_sha256)};
  TRY(fields.done());
  return given;
}

}  // namespace p2pd
