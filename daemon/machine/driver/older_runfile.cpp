// SPDX-License-Identifier: MIT
#include "machine/driver/older_runfile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kInstallersDkms =
    "/var/lib/dkms/nvidia";  // name that the installer gives its modules in DKMS

bool is_there(const Host& host, const std::string& path) {
  return host.files().exists(path) || host.files().read_link(path).has_value();
}

Failure not_whole(const RunfileManifest& manifest, const std::string& why) {
  return fail(ErrorCode::state,
              fmt::format("the driver of the runfile {} could not come back whole: {}", manifest.version, why),
              "Remove it yourself with \"nvidia-uninstall\", then try again: it does not come back then.");
}

/// Adds the installer's notes and installed files.
void add_listed(const Host& host, const RunfileManifest& manifest, OlderRunfile& found) {
  found.paths.emplace_back(kInstalledByRunfile);
  for (const std::string& name : host.names(kInstalledByRunfile))
    found.paths.push_back(fmt::format("{}/{}", kInstalledByRunfile, name));
  std::istringstream folders(host.files().read(std::string(kInstalledByRunfile) + "/dirs").value_or(""));
  for (std::string line; std::getline(folders, line);)
    if (line.starts_with('/') && host.files().exists(line)) found.paths.push_back(line);
  for (const RunfileManifest::Installed& one : manifest.installed)
    if (is_there(host, one.path)) found.paths.push_back(one.path);
}

/// Adds the modules of one kernel that DKMS installed from `built`, "VERSION/RELEASE/ARCHITECTURE".
Result<void> add_modules(const Host& host, const RunfileManifest& manifest, const std::string& built,
                         OlderRunfile& found) {
  const std::size_t from = built.find('/') + 1;
  const std::string release = built.substr(from, built.find('/', from) - from);
  const std::string place = fmt::format("{}/{}", module_directory(release), kDkmsPlace);
  for (const std::string& name : host.names(fmt::format("{}/{}/module", kInstallersDkms, built))) {
    if (!host.files().exists(place + "/" + name))
      return not_whole(manifest, fmt::format("DKMS installed {} for {}, and {} has none", name, release, place));
    found.paths.push_back(place + "/" + name);
  }
  found.paths.push_back(place.substr(0, place.rfind('/')));
  found.paths.push_back(place);
  found.kernels.push_back(release);
  return {};
}

/// Adds what the installer gave to DKMS, whose modules are in no list of its own: its uninstaller makes DKMS remove
/// them all.
Result<void> add_dkms(const Host& host, const RunfileManifest& manifest, OlderRunfile& found) {
  const std::string records = fmt::format("{}/{}", kInstallersDkms, manifest.version);
  if (!host.files().exists(records)) return {};
  const std::string source = host.files().read_link(records + "/source").value_or("");
  if (!source.starts_with('/') || !host.files().exists(source + "/dkms.conf"))
    return not_whole(manifest, "DKMS has lost its source, " + (source.empty() ? records + "/source" : source));
  if (const std::string other = fmt::format("{}/original_module", kInstallersDkms); !host.names(other).empty())
    return not_whole(manifest, "DKMS keeps modules in " + other + " that it would put back");
  found.trees = {records, source};
  found.paths.emplace_back(kInstallersDkms);
  for (const std::string& name : host.names(kInstallersDkms)) {
    const std::string link = fmt::format("{}/{}", kInstallersDkms, name),
                      built = host.files().read_link(link).value_or("");
    if (!built.starts_with(manifest.version + "/")) continue;
    found.paths.push_back(link);
    TRY(add_modules(host, manifest, built, found));
  }
  return {};
}

/// Adds releases that a listed file is a module of.
void add_kernels(OlderRunfile& found) {
  std::set<std::string> releases(found.kernels.begin(), found.kernels.end());
  for (const std::string& path : found.paths)
    if (const std::size_t at = path.find("/lib/modules/"); at != std::string::npos && at <= 4) {
      const std::string below = path.substr(path.find("modules/") + 8);
      releases.insert(below.substr(0, below.find('/')));
    }
  found.kernels.assign(releases.begin(), releases.end());
}

}  // namespace

Result<OlderRunfile> older_runfile(const Host& host, const RunfileManifest& manifest) {
  OlderRunfile found;
  add_listed(host, manifest, found);
  TRY(add_dkms(host, manifest, found));
  add_kernels(found);
  return found;
}

Result<void> pack_older_runfile(Host& host, const RunfileManifest& manifest, const std::string& tar) {
  const OlderRunfile all = TRY(older_runfile(host, manifest));
  for (const std::string& release : all.kernels)
    for (const std::string& file : depmod_files(release)) TRY(host.will_change(file, Restore::generated));
  TRY_IN("the driver of the runfile " + manifest.version + " cannot be kept for the rollback", pack(host, all, tar));
  return {};
}

Result<void> unpack_older_runfile(Host& host, const std::string& tar) {
  TRY_IN("the driver that was there before", unpack(host, tar));
  return run_due_depmods(host);
}

}  // namespace p2pd
