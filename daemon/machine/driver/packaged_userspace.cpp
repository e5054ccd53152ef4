// SPDX-License-Identifier: MIT
#include "machine/driver/packaged_userspace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "machine/driver/driver_install.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLibraryDirectories[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
    "/usr/lib/wsl/lib",          "/run/opengl-driver/lib"};

}  // namespace

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
    const std::string link = std::string(directory) + "/" + std::string(name);
    const auto file = host.files().real_path(link);
    if (!file || std::ranges::find(seen, file->string()) != seen.end()) continue;
    seen.push_back(file->string());
    out.push_back({link, driver_version_of(file->filename().string())});
  }
  return out;
}

namespace {

bool has_firmware(const Host& host, const std::string& version) {
  for (const std::string_view directory : {"/lib/firmware/nvidia/", "/usr/lib/firmware/nvidia/"})
    for (const std::string& name : host.names(std::string(directory) + version))
      if (name.starts_with("gsp_")) return true;
  return false;
}

}  // namespace

Result<PackagedUserspace> packaged_userspace(const Host& host) {
  const DriverInstall install = TRY(installed_driver(host));
  if (install.packages.empty()) return PackagedUserspace();
  if (install.runfile.installed)
    return PackagedUserspace{"", "NVIDIA's runfile installed a driver beside the packages"};
  std::set<std::string> versions;
  for (const std::string_view library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    const auto found = driver_libraries(host, library);
    if (found.empty()) return PackagedUserspace{"", fmt::format("the packages bring no {}", library)};
    for (const DriverLibrary& one : found) versions.insert(one.version);
  }
  if (versions.size() > 1 || versions.begin()->empty())
    return PackagedUserspace{
        "", fmt::format("libraries of more than one driver are installed: {}", fmt::join(versions, ", "))};
  const std::string& version = *versions.begin();
  if (!install.package_versions().contains(version))
    return PackagedUserspace{"", fmt::format("the libraries of {} belong to no package", version)};
  if (!has_firmware(host, version))
    return PackagedUserspace{
        version,
        fmt::format("the firmware for open modules of {} is not installed (firmware-nvidia-gsp, nvidia-firmware-*)",
                    version)};
  return PackagedUserspace{version, ""};
}

}  // namespace p2pd
