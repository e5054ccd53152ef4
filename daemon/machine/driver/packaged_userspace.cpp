// SPDX-License-Identifier: MIT
#include "machine/driver/packaged_userspace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "machine/driver/driver_install.hpp"
#include "machine/driver/driver_libraries.hpp"

namespace p2pd {
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
