// SPDX-License-Identifier: MIT
#include "machine/driver/driver_install.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "machine/modules/dkms.hpp"
#include "machine/modules/toolchain.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kRunfileManifest = "/var/lib/nvidia/log";  // runfile's list of the files that it installed
constexpr std::string_view kUninstaller = "/usr/bin/nvidia-uninstall";
constexpr std::string_view kLibraryDirectories[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
    "/usr/lib/wsl/lib",          "/run/opengl-driver/lib"};

/// Finds the driver itself: its modules, and libraries that talk to them.
Result<void> find_packages(const Host& host, DriverInstall& found) {
  if (!host.files().exists(kDpkgStatus) && distribution(host).lacks_apt()) return {};
  for (DpkgPackage& package : TRY(dpkg_packages(host))) {
    const DriverRole role = driver_role(package.name);
    if (!package.present() || (role != DriverRole::modules && role != DriverRole::libraries)) continue;
    found.evidence.push_back({std::string(kDpkgStatus), fmt::format("{}:{} {} {}", package.name, package.architecture,
                                                                    package.version, package.want)});
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
  if (found.runfile.installed || manifest.error().code == ErrorCode::not_found) return {};
  if (manifest.error().code == ErrorCode::denied)
    return fail(ErrorCode::denied, manifest.error().message + "; root would tell", "Run it as root.");
  return Failure(manifest.error());
}

void find_dkms(const Host& host, DriverInstall& found) {
  for (const std::string& module : host.names(kDkms)) {
    if (!module.starts_with("nvidia") || module.starts_with("nvidia-fs")) continue;
    for (const std::string& version : host.names(fmt::format("{}/{}", kDkms, module))) {
      if (version.starts_with("kernel-")) continue;  // a link to the version installed for a kernel
      const std::string name = fmt::format("{}/{}", module, version), tree = fmt::format("{}/{}", kDkms, name);
      std::vector<std::string> kernels = host.names(tree);
      std::erase_if(kernels, [](const std::string& entry) { return entry == "source" || entry == "build"; });
      for (const std::string& kernel : kernels) found.dkms.insert(fmt::format("{} for {}", name, kernel));
      if (kernels.empty()) found.dkms.insert(name);
      found.evidence.push_back({tree, kernels.empty() ? "added, not built" : "built"});
    }
  }
}

bool has_firmware(const Host& host, const std::string& version) {
  for (const std::string_view directory : {"/lib/firmware/nvidia/", "/usr/lib/firmware/nvidia/"})
    for (const std::string& name : host.names(std::string(directory) + version))
      if (name.starts_with("gsp_")) return true;
  return false;
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

std::string driver_version_of(const std::string& file) {
  const std::size_t at = file.find(".so.");
  const std::string version = at == std::string::npos ? "" : file.substr(at + 4);
  const bool number = std::ranges::all_of(version, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  return number && version.find('.') != std::string::npos ? version : "";
}

std::vector<DriverLibrary> driver_libraries(const Host& host, std::string_view name) {
  std::vector<DriverLibrary> out;
  std::vector<std::string> seen;  // on some hosts /usr/lib64 is a link to /usr/lib
  for (const std::string_view directory : kLibraryDirectories) {
    const std::string link = fmt::format("{}/{}", directory, name);
    const auto file = host.files().real_path(link);
    if (!file || std::ranges::find(seen, file->string()) != seen.end()) continue;
    seen.push_back(file->string());
    out.push_back({link, driver_version_of(file->filename().string())});
  }
  return out;
}

Result<PackagedUserspace> packaged_userspace(const Host& host) {
  const auto cannot_stay = [](std::string why) { return PackagedUserspace{"", std::move(why)}; };
  const DriverInstall install = TRY(installed_driver(host));
  if (install.packages.empty()) return PackagedUserspace();
  if (install.runfile.installed) return cannot_stay("NVIDIA's runfile installed a driver beside the packages");
  std::set<std::string> versions;
  for (const std::string_view library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    const auto found = driver_libraries(host, library);
    if (found.empty()) return cannot_stay(fmt::format("the packages bring no {}", library));
    for (const DriverLibrary& one : found) versions.insert(one.version);
  }
  if (versions.size() > 1 || versions.begin()->empty())
    return cannot_stay(fmt::format("libraries of more than one driver are installed: {}", fmt::join(versions, ", ")));
  const std::string& version = *versions.begin();
  if (!install.package_versions().contains(version))
    return cannot_stay(fmt::format("the libraries of {} belong to no package", version));
  PackagedUserspace found{version, ""};
  if (!has_firmware(host, version))
    found.why_not = fmt::format(
        "the firmware for open modules of {} is not installed (firmware-nvidia-gsp, nvidia-firmware-*)", version);
  return found;
}

}  // namespace p2pd
