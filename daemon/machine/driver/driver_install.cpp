// SPDX-License-Identifier: MIT
#include "machine/driver/driver_install.hpp"

#include <algorithm>

#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kRunfileManifest = "/var/lib/nvidia/log";  // runfile's list of the files that it installed
constexpr std::string_view kUninstaller = "/usr/bin/nvidia-uninstall";
constexpr std::string_view kInstallerLog = "/var/log/nvidia-installer.log";
constexpr std::string_view kRefusal = "/usr/lib/nvidia/alternate-install-present";
constexpr std::string_view kDkms = "/var/lib/dkms";

/// Checks for the driver itself: its modules, or libraries that talk to them.
bool of_driver(const DpkgPackage& package) {
  const DriverRole role = driver_role(package.name);
  return package.present() && (role == DriverRole::modules || role == DriverRole::libraries);
}

Result<void> find_packages(const Host& host, DriverInstall& found) {
  for (DpkgPackage& package : TRY(dpkg_packages(host))) {
    if (!of_driver(package)) continue;
    found.evidence.push_back({std::string(kDpkgStatus),
                              package.name + ":" + package.architecture + " " + package.version + " " + package.want});
    found.packages.push_back(std::move(package));
  }
  return {};
}

Result<void> find_runfile(const Host& host, DriverInstall& found) {
  const auto manifest = host.files().read(kRunfileManifest);
  const bool uninstaller = host.files().exists(kUninstaller);
  if (manifest) {
    found.runfile.version = manifest->substr(0, std::min<std::size_t>(manifest->find('\n'), 64));
    found.evidence.push_back({std::string(kRunfileManifest), found.runfile.version});
  }
  if (uninstaller) found.evidence.push_back({std::string(kUninstaller), "present"});
  found.runfile.installed = uninstaller || manifest;
  found.runfile.log = host.files().exists(kInstallerLog);
  found.runfile.refused_here = host.files().exists(kRefusal);
  if (found.runfile.installed || manifest.error().code == ErrorCode::not_found) return {};
  if (manifest.error().code == ErrorCode::denied)
    return fail(ErrorCode::denied, manifest.error().message + "; root would tell", "Run it as root.");
  return Failure(manifest.error());
}

void find_dkms(const Host& host, DriverInstall& found) {
  const auto names = [&](const std::string& path) { return host.names(path); };
  for (const std::string& module : names(std::string(kDkms))) {
    if (!module.starts_with("nvidia") || module.starts_with("nvidia-fs")) continue;
    const std::string tree = std::string(kDkms) + "/" + module;
    for (const std::string& version : names(tree)) {
      if (version.starts_with("kernel-")) continue;  // a link to the version installed for a kernel
      bool built = false;
      for (const std::string& kernel : names(tree + "/" + version)) {
        if (kernel == "source" || kernel == "build") continue;
        found.dkms.insert(module + "/" + version + " for " + kernel);
        built = true;
      }
      if (!built) found.dkms.insert(module + "/" + version);
      found.evidence.push_back({tree + "/" + version, built ? "built" : "added, not built"});
    }
  }
}

}  // namespace

std::string driver_version(std::string_view package, std::string_view version) {
  if (package.starts_with("linux-modules-nvidia-")) return {};
  version.remove_prefix(version.find(':') + 1);  // npos + 1 is 0
  return std::string(version.substr(0, version.find_first_of("-+~")));
}

std::set<std::string> DriverInstall::package_versions() const {
  std::set<std::string> versions;
  for (const DpkgPackage& package : packages)
    if (std::string version = driver_version(package.name, package.version); !version.empty())
      versions.insert(std::move(version));
  return versions;
}

bool DriverInstall::packaged_modules() const {
  return std::ranges::any_of(
      packages, [](const DpkgPackage& package) { return driver_role(package.name) == DriverRole::modules; });
}

Result<DriverInstall> installed_driver(const Host& host) {
  DriverInstall found;
  TRY(find_packages(host, found));
  TRY(find_runfile(host, found));
  find_dkms(host, found);
  return found;
}

}  // namespace p2pd
