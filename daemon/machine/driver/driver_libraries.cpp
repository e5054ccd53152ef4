// SPDX-License-Identifier: MIT
#include "machine/driver/driver_libraries.hpp"

#include <algorithm>

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

}  // namespace p2pd
