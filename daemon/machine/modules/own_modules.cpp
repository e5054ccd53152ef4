// SPDX-License-Identifier: MIT
// Removes all modules that p2pd installed, and keeps them for the undo of a run that installs others.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/kept_state.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/archive.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kBeforeModules = "/var/lib/p2pd/before-modules";
constexpr std::string_view kArchive = "/modules.tar";
constexpr std::string_view kAside = ".p2pd-aside.";  // no ".ko" at its end: depmod ignores it
constexpr std::string_view kAsideEnd = ".old";
constexpr std::string_view kPlaces[] = {kDkmsPlace, "updates", "extra", "kernel/drivers/video",
                                        "kernel/drivers/char/drm"};

using Names = std::vector<std::string>;

/// Checks for "kernel-RELEASE-x86_64", the link by which DKMS marks what is installed for `release`.
bool is_link_of(std::string_view name, std::string_view release) {
  const std::string prefix = fmt::format("kernel-{}-", release);
  return name.starts_with(prefix) && name.find('-', prefix.size()) == std::string_view::npos;
}

/// Checks that modules.dep is missing, lists a missing driver module or one of updates/, or lists no driver module
/// although one exists. Headers can be configured before their kernel: then undo restores a state without modules.dep.
bool depmod_due(const Host& host, std::string_view release) {
  const auto listed = modules_by_name(host, release);
  if (!listed)
    return listed.error().code == ErrorCode::not_found && host.files().exists(place_of(release, "modules.order"));
  const std::string updates =
      place_of(release, "updates/");  // includes modules of p2pd and of packages, under any names
  if (std::ranges::any_of(*listed, [&](const auto& module) {
        return module.second.starts_with(updates) && !host.files().exists(module.second);
      }))
    return true;
  return std::ranges::any_of(kModuleNames, [&](std::string_view module) {
    const std::string name = kernel_name(module);
    const auto found = listed->find(name);
    return found == listed->end() ? !module_copies(host, release, name).empty() : !host.files().exists(found->second);
  });
}

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
      for (const std::string_view module : kModuleNames)
        for (const std::string_view suffix : kModuleSuffixes)
          if (std::string file = fmt::format("{}/{}{}", dkms, module, suffix); host.files().exists(file))
            found.files.push_back(std::move(file));
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
  std::istringstream names(TRY(host.output_of({{"tar", "--list", "--file=" + archive}, {}, {}})));
  for (std::string name; std::getline(names, name);)
    if (const std::string before = name_before(name); !before.empty()) TRY(host.remove_tree("/" + before));
  return unpack(host, archive);
}

}  // namespace

std::string dkms_link(const Host& host, std::string_view release) {
  for (const std::string& name : host.names(kDkmsTree))
    if (is_link_of(name, release)) return name;
  return "";
}

Result<std::string> owner_of_module(const Host& host, std::string_view release, const std::string& file) {
  for (const std::string& path : {file, "/usr" + file}) {  // packages use either path with a merged /usr
    const CommandResult said = TRY(host.run_readonly({{"dpkg-query", "--search", path}, {}, {}}));
    if (said.status == 0) return "package " + said.output.substr(0, said.output.find(": "));
  }
  const std::string name = file.substr(file.rfind('/') + 1);
  for (const std::string& module : host.names(kDkms)) {
    const std::string tree = fmt::format("{}/{}", kDkms, module);
    for (const std::string& link : host.names(tree))
      if (tree != kDkmsTree && is_link_of(link, release) &&
          host.files().exists(fmt::format("{}/{}/module/{}", tree, link, name)))
        return "DKMS module " + module;
  }
  return std::string();
}

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

Result<void> run_due_depmods(Host& host) {
  for (const std::string& release : host.names("/lib/modules"))
    if (depmod_due(host, release)) TRY(host.run({{"depmod", release}, {}, {}, std::chrono::minutes(10)}));
  return {};
}

}  // namespace p2pd
