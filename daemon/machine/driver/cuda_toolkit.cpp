// SPDX-License-Identifier: MIT
#include "machine/driver/cuda_toolkit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/version.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kLongestVersion = 7;  // "123-456"
constexpr std::string_view kPackage = "cuda-toolkit-";

std::string version_of(const Parameters& parameters) { return parameters.at("version").get<std::string>(); }

/// Version {12, 8} in "12-8"; nullopt for other text.
std::optional<Version> toolkit_version(std::string text) {
  if (text.size() > kLongestVersion || text.find('.') != std::string::npos) return std::nullopt;
  std::ranges::replace(text, '-', '.');
  const auto version = parse_version(text);
  return version && version->size() == 2 ? version : std::nullopt;
}

/// "12-8" for {12, 8}.
std::string dashed(const Version& version) { return fmt::format("{}", fmt::join(version, "-")); }

/// Newest of these versions that is not newer than `most`; empty: none is.
std::string newest(std::vector<Version> versions, const Version& most) {
  std::erase_if(versions, [&](const Version& one) { return one > most; });
  return versions.empty() ? "" : dashed(std::ranges::max(versions));
}

std::vector<Version> installed_toolkits(const Host& host) {
  std::vector<Version> versions;
  for (const std::string& name : host.names("/usr/local"))
    if (name.starts_with("cuda-") && host.has_program(fmt::format("/usr/local/{}/bin/nvcc", name)))
      if (const auto version = parse_version(name.substr(5)); version && version->size() == 2)
        versions.push_back(*version);
  return versions;
}

Result<std::vector<Version>> offered_toolkits(const Host& host) {
  std::vector<Version> versions;
  std::istringstream names(TRY(host.output_of({{"apt-cache", "pkgnames", std::string(kPackage)}})));
  for (std::string name; std::getline(names, name);)
    if (name.starts_with(kPackage))
      if (const auto version = toolkit_version(name.substr(kPackage.size()))) versions.push_back(*version);
  return versions;
}

/// Number after the last `mark` in `text`.
std::optional<int> number_after(const std::string& text, std::string_view mark) {
  const std::size_t at = text.rfind(mark);
  int number = 0;
  if (at == std::string::npos) return std::nullopt;
  const char* const begin = text.data() + at + mark.size();
  return std::from_chars(begin, text.data() + text.size(), number).ec == std::errc() ? std::optional(number)
                                                                                     : std::nullopt;
}

/// Newest major version of GCC that the toolkit takes.
std::optional<int> newest_gcc(const Host& host, const std::string& folder) {
  return number_after(host.files().read(folder + "/include/crt/host_config.h").value_or(""), "#if __GNUC__ > ");
}

/// Major version of a compiler, by the name of its file: "/usr/bin/x86_64-linux-gnu-g++-12".
std::optional<int> gcc_of(const Host& host, const std::string& path) {
  return number_after(host.files().real_path(path).value_or("").string(), "g++-");
}

}  // namespace

Result<void> validate_cuda_toolkit(const Parameters& parameters) {
  const std::string version = version_of(parameters), compiler = parameters.value("host_compiler", std::string());
  if (version != kChosenCuda && !toolkit_version(version))
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
  const std::string found = newest(offered_toolkits(host).value_or(std::vector<Version>()), *most);
  return found.empty() ? dashed(*most) : found;
}

std::string cuda_package(const Parameters& parameters) { return std::string(kPackage) + version_of(parameters); }

std::string cuda_folder(const Parameters& parameters) {
  std::string version = version_of(parameters);
  std::ranges::replace(version, '-', '.');
  return "/usr/local/cuda-" + version;
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
