// SPDX-License-Identifier: MIT
#include "machine/driver/cuda_toolkit.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {
namespace {

constexpr std::string_view kVersionDigits = "0123456789";

std::string version_of(const Parameters& parameters) { return parameters.at("version").get<std::string>(); }

std::string compiler_of(const Parameters& parameters) { return parameters.value("host_compiler", std::string()); }

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of(kVersionDigits) == std::string_view::npos;
}

}  // namespace

Result<void> validate_cuda_toolkit(const Parameters& parameters) {
  const std::string version = version_of(parameters), compiler = compiler_of(parameters);
  const std::size_t dash = version.find('-');
  if (dash == std::string::npos || !is_number(version.substr(0, dash)) || !is_number(version.substr(dash + 1)))
    return fail(ErrorCode::invalid, fmt::format("version \"{}\" is not like 12-8", version));
  const bool plain = std::ranges::all_of(compiler, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._+-").find(c) != std::string_view::npos;
  });
  if (compiler.empty() ? parameters.contains("host_compiler") : !plain || compiler.front() != '/')
    return fail(ErrorCode::invalid, fmt::format("host_compiler \"{}\" is no plain absolute path", compiler));
  return {};
}

std::string cuda_package(const Parameters& parameters) { return "cuda-toolkit-" + version_of(parameters); }

std::string cuda_folder(const Parameters& parameters) {
  std::string version = version_of(parameters);
  std::ranges::replace(version, '-', '.');
  return "/usr/local/cuda-" + version;
}

std::string cuda_profile(const Parameters& parameters) {
  std::string text = fmt::format("# Written by p2pd: the CUDA toolkit for who logs in.\nexport PATH={}/bin:$PATH\n",
                                 cuda_folder(parameters));
  if (const std::string compiler = compiler_of(parameters); !compiler.empty())
    text += fmt::format("export CUDAHOSTCXX={}\n", compiler);
  return text;
}

std::string lacking_cuda_toolkit(const Host& host, const Parameters& parameters) {
  const std::string nvcc = cuda_folder(parameters) + "/bin/nvcc";
  if (!host.has_program(nvcc)) return nvcc + " is not installed";
  if (host.files().read(kCudaProfile).value_or("") == cuda_profile(parameters)) return "";
  return fmt::format("{} does not put {} on the PATH", kCudaProfile, nvcc);
}

}  // namespace p2pd
