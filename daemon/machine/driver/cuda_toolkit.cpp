// SPDX-License-Identifier: MIT
#include "machine/driver/cuda_toolkit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/version.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersionDigits = "0123456789";
constexpr std::string_view kPackage = "cuda-toolkit-";
constexpr std::string_view kFolder = "/usr/local/cuda-";

std::string version_of(const Parameters& parameters) { return parameters.at("version").get<std::string>(); }

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of(kVersionDigits) == std::string_view::npos;
}

bool is_version(std::string_view version) {
  const std::size_t dash = version.find('-');
  return dash != std::string_view::npos && is_number(version.substr(0, dash)) && is_number(version.substr(dash + 1));
}

/// "12.8" for "12-8", and back.
std::string with(std::string version, char from, char to) {
  std::ranges::replace(version, from, to);
  return version;
}

/// Newest of these versions, "12-8", that is not newer than `most`; empty: none is.
std::string newest(const std::vector<std::string>& versions, const Version& most) {
  std::optional<Version> best;
  std::string found;
  for (const std::string& one : versions)
    if (const auto version = parse_version(with(one, '-', '.'));
        version && *version <= most && (!best || *version > *best)) {
      best = version;
      found = one;
    }
  return found;
}

std::vector<std::string> installed_toolkits(const Host& host) {
  std::vector<std::string> versions;
  for (const std::string& name : host.files().list("/usr/local").value_or(std::vector<std::string>()))
    if (name.starts_with("cuda-") && is_version(with(name.substr(5), '.', '-')) &&
        host.has_program(fmt::format("/usr/local/{}/bin/nvcc", name)))
      versions.push_back(with(name.substr(5), '.', '-'));
  return versions;
}

Result<std::vector<std::string>> offered_toolkits(const Host& host) {
  std::vector<std::string> versions;
  std::istringstream names(TRY(host.output_of({{"apt-cache", "pkgnames", std::string(kPackage)}, {}, {}})));
  for (std::string name; std::getline(names, name);)
    if (name.starts_with(kPackage) && is_version(name.substr(kPackage.size())))
      versions.push_back(name.substr(kPackage.size()));
  return versions;
}

/// Newest major version of GCC that the toolkit takes, from "#if __GNUC__ > 14" of its header.
std::optional<int> newest_gcc(const Host& host, const std::string& folder) {
  constexpr std::string_view kLimit = "#if __GNUC__ > ";
  const std::string header = host.files().read(folder + "/include/crt/host_config.h").value_or("");
  const std::size_t at = header.find(kLimit);
  int major = 0;
  if (at == std::string::npos) return std::nullopt;
  const char* const begin = header.data() + at + kLimit.size();
  return std::from_chars(begin, header.data() + header.size(), major).ec == std::errc() ? std::optional(major)
                                                                                        : std::nullopt;
}

/// Major version of a compiler, by the name of its file: "/usr/bin/x86_64-linux-gnu-g++-12".
std::optional<int> gcc_of(const Host& host, const std::string& path) {
  const std::string file = host.files().real_path(path).value_or("");
  const std::size_t dash = file.rfind("g++-");
  int major = 0;
  const char* const end = file.data() + file.size();
  if (dash == std::string::npos || std::from_chars(file.data() + dash + 4, end, major).ptr != end) return std::nullopt;
  return major;
}

}  // namespace

Result<void> validate_cuda_toolkit(const Parameters& parameters) {
  const std::string version = version_of(parameters), compiler = parameters.value("host_compiler", std::string());
  if (version != kChosenCuda && !is_version(version))
    return fail(ErrorCode::invalid, fmt::format("version \"{}\" is neither like 12-8 nor chosen", version));
  const bool plain = std::ranges::all_of(compiler, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._+-").find(c) != std::string_view::npos;
  });
  if (compiler.empty() ? parameters.contains("host_compiler")
                       : compiler != kChosenCuda && (!plain || compiler.front() != '/'))
    return fail(ErrorCode::invalid, fmt::format("host_compiler \"{}\" is no plain absolute path", compiler));
  return {};
}

Result<std::string> toolkit_for(const Host& host, const std::string& runs) {
  const std::optional<Version> most = parse_version(runs);
  if (!most) return fail(ErrorCode::invalid, fmt::format("\"{}\" is no version of CUDA", runs));
  if (std::string installed = newest(installed_toolkits(host), *most); !installed.empty()) return installed;
  const auto offered = offered_toolkits(host).value_or(std::vector<std::string>());
  const std::string found = newest(offered, *most);
  return found.empty() ? with(runs, '.', '-') : found;
}

std::string cuda_package(const Parameters& parameters) { return std::string(kPackage) + version_of(parameters); }

std::string cuda_folder(const Parameters& parameters) {
  return std::string(kFolder) + with(version_of(parameters), '-', '.');
}

Result<std::string> cuda_host_compiler(const Host& host, const Parameters& parameters) {
  std::string wanted = parameters.value("host_compiler", std::string());
  if (wanted != kChosenCuda) {
    if (wanted.empty() || host.has_program(wanted)) return wanted;
    return fail(ErrorCode::not_found, "the compiler that nvcc is to call is not installed: " + wanted,
                "Install the package that brings it, or give another one as host_compiler.");
  }
  const std::optional<int> most = newest_gcc(host, cuda_folder(parameters)), usual = gcc_of(host, "/usr/bin/g++");
  if (!most || (usual && *usual <= *most)) return std::string();
  for (int major = *most; major > 8; --major)
    if (std::string path = fmt::format("/usr/bin/g++-{}", major); host.has_program(path)) return path;
  return fail(ErrorCode::not_found,
              fmt::format("the toolkit takes g++ up to {}, and {}", *most,
                          usual ? fmt::format("{} is installed", *usual) : "none is installed"),
              fmt::format("Install g++-{}, or one that is older.", *most));
}

std::string cuda_profile(const Parameters& parameters, const std::string& compiler) {
  std::string text = fmt::format("# Written by p2pd: the CUDA toolkit for who logs in.\nexport PATH={}/bin:$PATH\n",
                                 cuda_folder(parameters));
  if (!compiler.empty()) text += fmt::format("export CUDAHOSTCXX={}\n", compiler);
  return text;
}

std::string lacking_cuda_toolkit(const Host& host, const Parameters& parameters, const std::string& compiler) {
  if (version_of(parameters) == kChosenCuda) return "the CUDA version that the driver supports is not known";
  const std::string nvcc = cuda_folder(parameters) + "/bin/nvcc";
  if (!host.has_program(nvcc)) return nvcc + " is not installed";
  if (host.files().read(kCudaProfile).value_or("") == cuda_profile(parameters, compiler)) return "";
  return fmt::format("{} does not put {} on the PATH", kCudaProfile, nvcc);
}

}  // namespace p2pd
