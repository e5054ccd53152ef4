// SPDX-License-Identifier: MIT
#include "machine/modules/module_install.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "machine/catalogue/staging.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_signing.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kCommitDigits = 40;

using Names = std::vector<std::string>;

/// Kernel release in the vermagic of a module file: "6.1.0-1-amd64".
Result<std::string> kernel_of_module(const Host& host, const std::string& file) {
  std::string vermagic;
  if (file.ends_with(".ko")) {
    auto info = TRY(module_info(host, file));
    vermagic = info["vermagic"];
  } else {
    vermagic = TRY(host.output_of({{"modinfo", "-F", "vermagic", file}, {}, {}}));
  }
  return vermagic.substr(0, vermagic.find_first_of(" \n"));
}

using Identities = std::map<std::string, ModuleIdentity>;  // identities of the five modules; empty: there are none

/// Commit, "0e943687...", in p2pd's dkms.conf in `source`; empty: there is none.
std::string commit_of_conf(const Host& host, const std::string& source) {
  constexpr std::string_view kBefore = ", commit ";
  const std::string conf = host.files().read(source + "/dkms.conf").value_or("");
  const std::size_t at = conf.find(kBefore);
  return at == std::string::npos || at > conf.find('\n') ? "" : conf.substr(at + kBefore.size(), kCommitDigits);
}

/// Modules of `entry` for `release` that DKMS has.
Result<Identities> kept_by_dkms(const Host& host, const CatalogueEntry& entry, const std::string& release) {
  const std::string link = dkms_link(host, release);
  const std::string built = host.files().read_link(fmt::format("{}/{}", kDkmsTree, link)).value_or("");
  if (link.empty() || !built.starts_with(entry.base_version + "/") ||
      commit_of_conf(host, dkms_source(entry)) != entry.commit)
    return Identities();
  Names files;
  for (const std::string_view module : kModuleNames)
    for (const std::string_view suffix : kModuleSuffixes)
      if (std::string file = fmt::format("{}/{}/module/{}{}", kDkmsTree, built, module, suffix);
          host.files().exists(file))
        files.push_back(std::move(file));
  if (files.size() != kModuleNames.size()) return Identities();
  const std::vector<ModuleIdentity> identities = TRY(module_identities(host, files));
  Identities out;
  for (std::size_t i = 0; i < files.size(); ++i) out.emplace(kModuleNames[i], identities[i]);
  return out;
}

/// Record of the build that was copied to p2pd's place for `release`; null: there is none.
nlohmann::json record_beside(const Host& host, const std::string& release) {
  const auto text = host.files().read(place_of(release, kOwnPlace) + std::string(kBuildRecord));
  auto record = parse_json(text.value_or(""));
  if (!record.is_object() || !record.contains("made_of") || !record.contains("modules")) return nullptr;
  return record;
}

Result<Identities> kept_beside(const Host& host, const CatalogueEntry& entry, const std::string& release) {
  const nlohmann::json record = record_beside(host, release);
  if (!record.is_object() || record["made_of"].value("commit", "") != entry.commit ||
      record["made_of"].value("release", entry.base_version) != entry.base_version)  // an older record has no release
    return Identities();
  Identities out;
  for (const std::string_view module : kModuleNames) {
    const nlohmann::json recorded = record["modules"].value(module, nlohmann::json::object());
    out.emplace(module, ModuleIdentity{recorded.value("build_id", ""), recorded.value("srcversion", "")});
  }
  return out;
}

}  // namespace

Result<void> validate_module_install(const Parameters& parameters) {
  const auto by = parameters.value("by", std::string("dkms"));
  if (by != "dkms" && by != "modules_install")
    return fail(ErrorCode::invalid, "by: '" + by + "' is neither dkms nor modules_install");
  return validate_staging(parameters);
}

bool by_dkms(const Parameters& parameters) {
  return !keeps_packages(parameters) && parameters.value("by", "dkms") == "dkms";
}

Result<InstalledModules> installed_modules(const Host& host, const CatalogueEntry& entry, const std::string& release,
                                           bool dkms) {
  InstalledModules out;
  const auto lacks = [&](std::string why) {
    if (out.lacking.empty()) out.lacking = std::move(why);
  };
  auto kept = dkms ? kept_by_dkms(host, entry, release) : kept_beside(host, entry, release);
  if (!kept && kept.error().code == ErrorCode::invalid) {  // a power cut truncated a file
    lacks(kept.error().message);
    kept = Identities();
  }
  const Identities wanted = TRY(kept);
  if (wanted.empty()) lacks(release + (dkms ? ": DKMS does not have them" : ": they are not installed"));
  auto listed = modules_by_name(host, release);
  if (!listed && listed.error().code == ErrorCode::not_found) listed = std::map<std::string, std::string>();
  if (!listed)
    return fail(listed.error().code, "the module that modprobe would load is not known: " + listed.error().message);
  const auto name = installed_name(host, "nvidia");
  if (!name && name.error().code != ErrorCode::invalid) return Failure(name.error());
  const std::string base = name.value_or("nvidia");
  if (!name)
    lacks(name.error().message);
  else if (dkms && base != "nvidia")
    lacks("an install line of modprobe.d makes modprobe load " + base + " for nvidia");
  Names as_built;
  for (const std::string_view module : kModuleNames) {
    const auto found = listed->find(renamed(module, dkms ? "nvidia" : base));
    out.files[module] = found == listed->end() ? nlohmann::json() : nlohmann::json(found->second);
    if (wanted.empty()) continue;
    if (found == listed->end() || !host.files().exists(found->second)) {
      lacks(fmt::format("{} has no {}", release, module));
      continue;
    }
    const std::string& file = found->second;
    const auto identities = module_identities(host, {file});
    if (!identities && identities.error().code != ErrorCode::invalid) return Failure(identities.error());
    const ModuleIdentity there =
        identities ? identities->front() : ModuleIdentity{"", "unknown"};  // the kernel's own modules have none
    const ModuleIdentity& built = wanted.at(std::string(module));
    out.by_build_id = out.by_build_id && there.by_build_id(built);
    if (there.is(built) && TRY(kernel_of_module(host, file)) == release) {
      as_built.push_back(file);
      continue;
    }
    lacks(fmt::format("{} is another build ({})", file, there.text(built)));
    out.foreign.push_back(file);
  }
  if (!out.lacking.empty()) return out;
  out.lacking = TRY(refused_because(host, as_built));
  out.refused = !out.lacking.empty();
  return out;
}

std::optional<InstalledBuild> installed_build(const Host& host) {
  const std::string before = std::string(kDkmsName) + "-";
  for (const std::string& name : host.names("/usr/src"))
    if (name.starts_with(before))
      if (std::string commit = commit_of_conf(host, "/usr/src/" + name); !commit.empty())
        return InstalledBuild{name.substr(before.size()), std::move(commit)};
  for (const std::string& kernel : host.names("/lib/modules"))
    if (const nlohmann::json record = record_beside(host, kernel); record.is_object())
      return InstalledBuild{record["made_of"].value("release", ""), record["made_of"].value("commit", "")};
  return std::nullopt;
}

std::vector<std::string> depmod_files(std::string_view release) {
  Names out;
  for (const char* name : {"dep", "dep.bin", "alias", "alias.bin", "symbols", "symbols.bin", "softdep", "weakdep",
                           "devname", "builtin.bin", "builtin.alias.bin"})
    out.push_back(fmt::format("{}/modules.{}", module_directory(release), name));
  return out;
}

}  // namespace p2pd
