// SPDX-License-Identifier: MIT
#include "base/module_install.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/modprobe_d.hpp"
#include "base/module_file.hpp"
#include "base/staging.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kAside = ".p2pd-aside.";  // no ".ko" at its end: depmod passes it by
constexpr std::string_view kDkms = "/var/lib/dkms";
constexpr std::string_view kSuffixes[] = {".ko", ".ko.gz", ".ko.xz", ".ko.zst"};
constexpr std::string_view kPlaces[] = {
    kDkmsPlace, kOwnPlace, "updates", "extra", "kernel/drivers/video", "kernel/drivers/char/drm"};

using Names = std::vector<std::string>;

Names names_in(const Host& host, const std::string& path) { return host.files().list(path).value_or(Names()); }

std::string place_of(std::string_view release, std::string_view place) {
  return fmt::format("{}/{}", module_directory(release), place);
}

/// "6.1.0-1-amd64" of the vermagic of a module file, compressed or not.
Result<std::string> kernel_of_module(const Host& host, const std::string& file) {
  std::string vermagic;
  if (file.ends_with(".ko")) {
    auto info = TRY(module_info(host, file));
    vermagic = info["vermagic"];
  } else {
    vermagic = TRY(host.query({{"modinfo", "-F", "vermagic", file}, {}, {}}));
  }
  return vermagic.substr(0, vermagic.find_first_of(" \n"));
}

/// True for "kernel-RELEASE-x86_64", the link by which DKMS says what is installed for `release`.
bool is_link_of(std::string_view name, std::string_view release) {
  const std::string prefix = fmt::format("kernel-{}-", release);
  return name.starts_with(prefix) && name.find('-', prefix.size()) == std::string_view::npos;
}

/// True where modules.dep lists a driver module that is gone, or none where one lies.
bool depmod_due(const Host& host, std::string_view release) {
  const auto listed = modules_by_name(host, release);
  if (!listed) return false;
  return std::ranges::any_of(kDriverModules, [&](std::string_view module) {
    const std::string name = kernel_name(module);
    const auto found = listed->find(name);
    return found == listed->end() ? !module_copies(host, release, name).empty() : !host.files().exists(found->second);
  });
}

/// Removes a directory that is empty now.
void remove_empty(Host& host, const std::string& path) {
  const auto names = host.files().list(path);
  if (names && names->empty()) (void)host.remove(path);  // in use again: it stays
}

Result<void> clear_kernel(Host& host, const std::string& release) {
  if (in_dkms(host, release)) {
    for (const std::string_view module : kDriverModules)
      for (const std::string_view suffix : kSuffixes)
        TRY(host.discard(fmt::format("{}/{}{}", place_of(release, kDkmsPlace), module, suffix)));
    remove_empty(host, place_of(release, kDkmsPlace));
    remove_empty(host, place_of(release, "updates"));
  }
  TRY(host.discard(place_of(release, kOwnPlace)));
  for (const std::string_view place : kPlaces) {
    const std::string directory = place_of(release, place);
    for (const std::string& name : names_in(host, directory)) {
      if (!name.starts_with(kAside)) continue;
      const std::string old = name.substr(kAside.size(), name.size() - kAside.size() - std::string_view(".old").size());
      TRY(host.move(directory + "/" + name, directory + "/" + old));
    }
  }
  return {};
}

}  // namespace

Result<void> validate_module_install(const Parameters& parameters) {
  const auto by = parameters.value("by", std::string("dkms"));
  if (by != "dkms" && by != "modules_install")
    return fail(ErrorCode::invalid, "by: '" + by + "' is neither dkms nor modules_install");
  return validate_staging(parameters);
}

bool by_dkms(const Parameters& parameters) { return parameters.value("by", "dkms") == "dkms"; }

Result<InstalledModules> installed_modules(const Host& host, const ModuleBuild& build) {
  const nlohmann::json record = TRY(check_build(host, build));
  const std::string& release = build.target.release;
  const auto listed = TRY_IN("what modprobe would load is not known", modules_by_name(host, release));
  InstalledModules out;
  const auto lacks = [&](std::string why) {
    if (out.lacking.empty()) out.lacking = std::move(why);
  };
  const auto renamed = installed_name(host, "nvidia");
  if (!renamed && renamed.error().code != ErrorCode::invalid) return Failure(renamed.error());
  if (!renamed)
    lacks(renamed.error().message);
  else if (*renamed != "nvidia")
    lacks("an install line of modprobe.d makes modprobe load " + *renamed + " for nvidia");
  for (const std::string_view module : kDriverModules) {
    const auto found = listed.find(kernel_name(module));
    out.files[module] = found == listed.end() ? nlohmann::json() : nlohmann::json(found->second);
    if (found == listed.end() || !host.files().exists(found->second)) {
      lacks(fmt::format("{} has no {}", release, module));
      continue;
    }
    const std::string& file = found->second;
    const auto versions = module_srcversions(host, {file});
    if (!versions && versions.error().code != ErrorCode::invalid) return Failure(versions.error());
    const std::string srcversion = versions ? versions->front() : "unknown";  // the kernel's own modules have none
    const bool same =
        srcversion == record["modules"][module]["srcversion"] && TRY(kernel_of_module(host, file)) == release;
    if (same) continue;
    lacks(fmt::format("{} is another build (srcversion {})", file, srcversion));
    out.foreign.push_back(file);
  }
  return out;
}

bool in_dkms(const Host& host, std::string_view release) {
  const Names names = names_in(host, std::string(kDkmsTree));
  return std::ranges::any_of(names, [&](const std::string& name) { return is_link_of(name, release); });
}

Result<std::string> owner_of_module(const Host& host, std::string_view release, const std::string& file) {
  for (const std::string& path : {file, "/usr" + file}) {  // of a merged /usr, packages use either
    const CommandResult said = TRY(host.ask({{"dpkg-query", "--search", path}, {}, {}}));
    if (said.status == 0) return "package " + said.output.substr(0, said.output.find(": "));
  }
  const std::string name = file.substr(file.rfind('/') + 1);
  for (const std::string& module : names_in(host, std::string(kDkms))) {
    const std::string tree = fmt::format("{}/{}", kDkms, module);
    for (const std::string& link : names_in(host, tree))
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
  return host.move(file, fmt::format("{}{}{}.old", file.substr(0, name), kAside, file.substr(name)));
}

Result<void> clear_modules(Host& host) {
  const Names releases = names_in(host, "/lib/modules");
  for (const std::string& release : releases) TRY(clear_kernel(host, release));
  TRY(host.discard(kDkmsTree));
  for (const std::string& name : names_in(host, "/usr/src"))
    if (name.starts_with(std::string(kDkmsName) + "-")) TRY(host.discard("/usr/src/" + name));
  TRY(host.discard(kDkmsKept));
  for (const std::string& release : releases)
    if (depmod_due(host, release)) TRY(host.run({{"depmod", release}, {}, {}, std::chrono::minutes(10)}));
  return {};
}

std::vector<std::string> depmod_files(std::string_view release) {
  Names out;
  for (const char* name : {"dep", "dep.bin", "alias", "alias.bin", "symbols", "symbols.bin", "softdep", "weakdep",
                           "devname", "builtin.bin", "builtin.alias.bin"})
    out.push_back(fmt::format("{}/modules.{}", module_directory(release), name));
  return out;
}

}  // namespace p2pd
