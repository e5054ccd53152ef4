// SPDX-License-Identifier: MIT
#include "machine/modules/module_install.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/kept_state.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/archive.hpp"
#include "machine/modules/dkms.hpp"
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
    vermagic = TRY(host.output_of({{"modinfo", "-F", "vermagic", file}}));
  }
  return vermagic.substr(0, vermagic.find_first_of(" \n"));
}

/// Existing files of the driver's modules in `directory`, compressed or not, in the order of kModuleNames.
Names modules_in(const Host& host, const std::string& directory) {
  Names files;
  for (const std::string_view module : kModuleNames)
    for (const std::string_view suffix : {".ko", ".ko.gz", ".ko.xz", ".ko.zst"})
      if (std::string file = fmt::format("{}/{}{}", directory, module, suffix); host.files().exists(file))
        files.push_back(std::move(file));
  return files;
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
  const Names files = modules_in(host, fmt::format("{}/{}/module", kDkmsTree, built));
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
    const nlohmann::json recorded = record["modules"].value(std::string(module), nlohmann::json::object());
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
    out.files[std::string(module)] = found == listed->end() ? nlohmann::json() : nlohmann::json(found->second);
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

namespace {

// Removal of all modules that p2pd installed, and keeping them for the undo of a run that installs others.
constexpr std::string_view kBeforeModules = "/var/lib/p2pd/before-modules";
constexpr std::string_view kArchive = "/modules.tar";
constexpr std::string_view kAside = ".p2pd-aside.";  // no ".ko" at its end: depmod ignores it
constexpr std::string_view kAsideEnd = ".old";
constexpr std::string_view kPlaces[] = {kDkmsPlace, "updates", "extra", "kernel/drivers/video",
                                        "kernel/drivers/char/drm"};

/// Removes a directory if it is empty.
void remove_empty(Host& host, const std::string& path) {
  const auto names = host.files().list(path);
  if (names && names->empty()) (void)host.remove(path);  // a directory in use again stays
}

/// Modules that p2pd has installed, of any version and kernel.
struct OwnModules {
  Names files, aside;
  Names directories;  ///< directories to remove with the files, unless others use them
  Names trees;
};

OwnModules own_modules(const Host& host) {
  OwnModules found;
  for (const std::string& release : host.names("/lib/modules")) {
    const std::string dkms = place_of(release, kDkmsPlace), own = place_of(release, kOwnPlace);
    if (!dkms_link(host, release).empty()) {
      const Names files = modules_in(host, dkms);
      found.files.insert(found.files.end(), files.begin(), files.end());
      found.directories.insert(found.directories.end(), {dkms, place_of(release, "updates")});
    }
    for (const std::string_view place : kPlaces)
      for (const std::string& name : host.names(place_of(release, place)))
        if (name.starts_with(kAside)) found.aside.push_back(place_of(release, place) + "/" + name);
    if (host.files().exists(own) || host.files().read_link(own)) found.trees.push_back(own);  // a link may dangle
  }
  for (const std::string_view tree : {kDkmsTree, kDkmsKept, kOwnFiles})
    if (host.files().exists(tree)) found.trees.emplace_back(tree);
  for (const std::string& name : host.names("/usr/src"))
    if (name.starts_with(std::string(kDkmsName) + "-")) found.trees.push_back("/usr/src/" + name);
  return found;
}

/// Name that a file had before it was moved aside; empty: it was not.
std::string name_before(const std::string& path) {
  const std::size_t name = path.rfind('/') + 1;
  if (!path.substr(name).starts_with(kAside)) return "";
  return path.substr(0, name) +
         path.substr(name + kAside.size(), path.size() - name - kAside.size() - kAsideEnd.size());
}

Result<void> remove(Host& host, const OwnModules& own) {
  for (const std::string& file : own.files) TRY(host.remove_tree(file));
  for (const std::string& tree : own.trees) TRY(host.remove_tree(tree));
  for (const std::string& file : own.aside) TRY(host.move(file, name_before(file)));
  for (const std::string& directory : own.directories) remove_empty(host, directory);
  for (const std::string& release : host.names("/lib/modules")) {
    remove_empty(host, place_of(release, "updates"));  // left by packages
    remove_empty(host, module_directory(release));     // of a kernel that was purged while it had modules of p2pd
  }
  return {};
}

/// Restores what keep_modules() kept. Removes files that the archive has under the name that they were moved aside to.
Result<void> unpack_modules(Host& host, const std::string& archive) {
  std::istringstream names(TRY(host.output_of({{"tar", "--list", "--file=" + archive}})));
  for (std::string name; std::getline(names, name);)
    if (const std::string before = name_before(name); !before.empty()) TRY(host.remove_tree("/" + before));
  return unpack(host, archive);
}

}  // namespace

Result<void> put_aside(Host& host, std::string_view release, const std::string& file) {
  const std::string owner = TRY(owner_of_module(host, release, file));
  if (!owner.empty())
    return fail(ErrorCode::busy, fmt::format("{} is in the way, and is of {}", file, owner),
                owner.starts_with("DKMS") ? "dkms remove it, or purge the package that brought it."
                                          : "Purge that package: " + owner.substr(owner.find(' ') + 1));
  const std::size_t name = file.rfind('/') + 1;
  TRY(host.will_change(file, Restore::by_action));
  return host.move(file, fmt::format("{}{}{}{}", file.substr(0, name), kAside, file.substr(name), kAsideEnd));
}

Result<void> clear_modules(Host& host) {
  TRY(remove(host, own_modules(host)));
  return run_due_depmods(host);
}

Result<void> keep_modules(Host& host) {
  const std::string kept = TRY(begin_kept(host, kBeforeModules)), archive = kept + std::string(kArchive);
  if (host.files().exists(archive)) return {};
  const auto run_of = [](const std::string& change) { return change.substr(0, change.find('-')); };
  for (const std::string& change :
       TRY(host.files().list(kBeforeModules)))  // other runs are undone with this one, or not at all
    if (const std::string other = fmt::format("{}/{}{}", kBeforeModules, change, kArchive);
        run_of(change) != run_of(host.change()) && host.files().exists(other))
      TRY(pack(host, {}, other));
  const OwnModules own = own_modules(host);
  ArchivePaths what{own.files, own.trees};
  for (const Names& more : {own.aside, own.directories}) what.paths.insert(what.paths.end(), more.begin(), more.end());
  const std::string beside = unfinished(archive);
  TRY(host.will_change(beside, Restore::discarded));
  TRY_IN("the modules of the run before cannot be kept", pack(host, what, beside));
  return host.move(beside, archive);
}

Result<void> prepare_undo_modules(const Host& host) {
  const std::string archive = kept_for_undo(host, kBeforeModules) + std::string(kArchive);
  if (!host.files().exists(archive)) return {};
  return need_room(host, "/lib/modules/.", TRY(archive_bytes(host, archive)));
}

Result<void> undo_modules(Host& host) {
  const std::string kept = kept_for_undo(host, kBeforeModules), archive = kept + std::string(kArchive);
  if (kept == kBeforeModules || host.files().exists(archive)) {
    TRY(remove(host, own_modules(host)));
    if (kept != kBeforeModules) TRY_IN("the modules of the run before", unpack_modules(host, archive));
    TRY(run_due_depmods(host));
  }
  return own_modules(host).trees.empty() ? host.remove_tree(kBeforeModules) : host.remove_tree(archive);
}

}  // namespace p2pd
