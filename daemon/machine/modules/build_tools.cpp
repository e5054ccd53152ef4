// SPDX-License-Identifier: MIT
#include "machine/modules/build_tools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "machine/modules/toolchain.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDkmsTool = "dkms";

/// Programs, and their packages; xz compresses the shaders of nvidia-modeset.
constexpr std::pair<std::string_view, std::string_view> kTools[] = {
    {"make", "make"}, {"git", "git"}, {kDkmsTool, kDkmsTool}, {"g++", "g++"}, {"xz", "xz-utils"}};

void lack(BuildTools& tools, std::string what, std::string package) {
  tools.lacking.push_back(std::move(what));
  if (std::ranges::count(tools.packages, package) == 0) tools.packages.push_back(std::move(package));
}

/// Returns the running kernel and the newest, which may be the same.
std::vector<BuildTarget> built_for(std::vector<BuildTarget> kernels) {
  const std::string newest = kernels.back().release;
  std::erase_if(kernels, [&](const BuildTarget& kernel) { return !kernel.running && kernel.release != newest; });
  return kernels;
}

void survey_kernel(const Host& host, const BuildTarget& kernel, const std::vector<int>& gcc, BuildTools& tools) {
  tools.evidence.push_back({kernel.build(), kernel.has_headers ? "there" : "not there"});
  tools.facts["kernels"].push_back({{"release", kernel.release},
                                    {"running", kernel.running},
                                    {"headers", kernel.has_headers},
                                    {"compiler", nullptr},
                                    {"compiler_installed", nullptr}});
  nlohmann::json& facts = tools.facts["kernels"].back();
  if (!kernel.strict.empty()) tools.evidence.push_back({kernel.compiler_source, strictness_of(kernel)});
  if (!kernel.has_headers) lack(tools, "headers of " + kernel.release, "linux-headers-" + kernel.release);
  if (!kernel.compiler) return tools.unclear.push_back("the compiler of " + kernel.release);
  const bool installed = kernel.compiler->family == "gcc" ? std::ranges::count(gcc, kernel.compiler->major) > 0
                                                          : host.has_program(kernel.compiler->text());
  facts["compiler"] = kernel.compiler->text();
  facts["compiler_installed"] = installed;
  tools.evidence.push_back({kernel.compiler_source, kernel.release + " was built with " + kernel.compiler->text()});
  if (!installed)
    lack(tools, fmt::format("{}, the compiler of {}", kernel.compiler->text(), kernel.release),
         kernel.compiler->text());
}

void survey_tools(const Host& host, bool dkms, BuildTools& tools) {
  for (const auto& [tool, package] : kTools) {
    if (tool == kDkmsTool && !dkms) continue;
    const bool there = host.has_program(tool);
    tools.facts["tools"][std::string(tool)] = there;
    if (!there) lack(tools, std::string(tool), std::string(package));
  }
}

}  // namespace

Result<BuildTools> build_tools(const Host& host, bool dkms) {
  const std::vector<BuildTarget> kernels = built_for(TRY(build_targets(host)));
  const std::vector<int> gcc = TRY_IN("installed programs", installed_gcc(host));
  BuildTools tools;
  tools.facts = {{"kernels", nlohmann::json::array()}, {"gcc_installed", gcc}, {"tools", nlohmann::json::object()}};
  for (const BuildTarget& kernel : kernels) survey_kernel(host, kernel, gcc, tools);
  survey_tools(host, dkms, tools);
  tools.facts["lacking"] = tools.lacking;
  return tools;
}

}  // namespace p2pd
