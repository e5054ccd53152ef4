// SPDX-License-Identifier: MIT
#include "machine/modules/toolchain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>
#include <utility>

#include "base/version.hpp"
#include "machine/modules/default_kernel.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersion = "/proc/version";
constexpr std::size_t kHeaderLimit = 4U << 20;  // bytes
constexpr std::size_t kConfigLimit = 4U << 20;  // bytes

/// First number of the first "1.2" in `text`.
std::optional<int> first_major(std::string_view text) {
  static const std::regex kMajor(R"((^|[^0-9])([0-9]{1,3})\.[0-9])");
  std::cmatch found;
  if (!std::regex_search(text.begin(), text.end(), found, kMajor)) return std::nullopt;
  return std::stoi(found[2]);
}

/// Part of /proc/version after the builder's own text: "Linux version RELEASE (user@host) (COMPILER) #1".
std::string_view compiler_part(std::string_view version) {
  const std::size_t at = version.find(") (");
  return at == std::string_view::npos ? std::string_view() : version.substr(at + 3);
}

BuildTarget look_at(const Host& host, const std::string& release, bool running) {
  BuildTarget kernel{release, running, std::nullopt, "/boot/config-" + release};
  kernel.headers = headers_package(host, release);
  kernel.has_headers = host.files().exists(kernel.build() + "/Makefile");
  for (const std::string& config : {"/boot/config-" + release, kernel.build() + "/.config"}) {
    const auto text = host.files().read(config, kConfigLimit);
    if (!text) continue;
    kernel.compiler = parse_compiler(assigned_value(*text, "CONFIG_CC_VERSION_TEXT"));
    kernel.strict.clear();
    for (const char* option : {"CONFIG_OBJTOOL_WERROR", "CONFIG_WERROR"})
      if (assigned_value(*text, option) == "y") kernel.strict.emplace_back(option);
    if (!kernel.compiler) continue;
    kernel.compiler_source = config;
    break;
  }
  if (!kernel.compiler && running) {
    kernel.compiler_source = kVersion;
    kernel.compiler = parse_compiler(compiler_part(host.line(kVersion).value_or("")));
  }
  kernel.compiler_installed = kernel.compiler && host.has_program(kernel.compiler->text());
  return kernel;
}

/// Checks that a release can be part of a path, and leads nowhere else.
bool is_release(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

}  // namespace

std::string assigned_value(const std::string& text, std::string_view name) {
  const std::string before = fmt::format("{}=", name);
  std::string value;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(before)) continue;
    value = line.substr(before.size());
    if (value.size() > 1 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
  }
  return value;
}

std::optional<Compiler> parse_compiler(std::string_view text) {
  text = text.substr(0, std::min({text.find('\n'), text.find(", "), text.find(" #")}));
  const std::size_t clang = text.find("clang version ");
  if (clang != std::string_view::npos) {
    const auto major = first_major(text.substr(clang));
    return major ? std::optional(Compiler{"clang", *major}) : std::nullopt;
  }
  const std::size_t gcc = text.find("gcc");
  if (gcc == std::string_view::npos) return std::nullopt;
  text.remove_prefix(gcc);
  // the version follows the vendor's brackets, which may have a version of the vendor
  const std::size_t bracket = text.rfind(") ");
  auto major = bracket == std::string_view::npos ? std::nullopt : first_major(text.substr(bracket));
  if (!major) major = first_major(text);
  return major ? std::optional(Compiler{"gcc", *major}) : std::nullopt;
}

std::string strictness_of(const BuildTarget& target) {
  return fmt::format("{} makes warnings errors ({}): p2pd builds without that; others' DKMS builds may fail",
                     target.release, fmt::join(target.strict, ", "));
}

Result<std::vector<BuildTarget>> build_targets(const Host& host) {
  const std::string running = host.line("/proc/sys/kernel/osrelease").value_or("");
  const auto bootable = bootable_kernels(host);
  if (!bootable && bootable.error().code != ErrorCode::not_found) return Failure(bootable.error());
  std::vector<BuildTarget> targets;
  for (const Kernel& kernel : bootable.value_or(std::vector<Kernel>()))
    targets.push_back(look_at(host, kernel.version, kernel.version == running));
  if (is_release(running) && std::ranges::count(targets, running, &BuildTarget::release) == 0)
    targets.push_back(look_at(host, running, true));
  if (targets.empty())
    return fail(ErrorCode::not_found, "no kernel: neither /boot/vmlinuz-* nor a running one is known");
  std::ranges::stable_sort(targets, [](const BuildTarget& one, const BuildTarget& other) {
    return compare_versions(one.release, other.release) < 0;
  });
  return targets;
}

Result<std::string> kernel_header(const Host& host, const BuildTarget& target, std::string_view header) {
  auto text = host.files().read(target.build() + "/" + std::string(header), kHeaderLimit);
  if (text || text.error().code != ErrorCode::not_found) return text;
  return host.files().read("/lib/modules/" + target.release + "/source/" + std::string(header), kHeaderLimit);
}

namespace {

constexpr std::string_view kDkmsTool = "dkms";

/// Programs, and their packages; xz compresses the shaders of nvidia-modeset.
constexpr std::pair<std::string_view, std::string_view> kTools[] = {
    {"make", "make"}, {"git", "git"}, {kDkmsTool, kDkmsTool}, {"g++", "g++"}, {"xz", "xz-utils"}};

void lack(BuildTools& tools, std::string what, std::string package) {
  tools.lacking.push_back(std::move(what));
  if (std::ranges::count(tools.packages, package) == 0) tools.packages.push_back(std::move(package));
}

void survey_kernel(const BuildTarget& kernel, BuildTools& tools) {
  const std::string compiler = kernel.compiler ? kernel.compiler->text() : "";
  tools.facts["kernels"].push_back(
      {{"release", kernel.release}, {"compiler", kernel.compiler ? nlohmann::json(compiler) : nlohmann::json()}});
  tools.evidence.push_back({kernel.build(), kernel.has_headers ? "there" : "not there"});
  if (!kernel.strict.empty()) tools.evidence.push_back({kernel.compiler_source, strictness_of(kernel)});
  if (!kernel.has_headers) lack(tools, "headers of " + kernel.release, kernel.headers);
  if (!kernel.compiler) return tools.unclear.push_back("the compiler of " + kernel.release);
  tools.evidence.push_back({kernel.compiler_source, kernel.release + " was built with " + compiler});
  if (!kernel.compiler_installed)
    lack(tools, fmt::format("{}, the compiler of {}", compiler, kernel.release), compiler);
}

}  // namespace

Result<BuildTools> build_tools(const Host& host, bool dkms) {
  const std::vector<BuildTarget> kernels = TRY(build_targets(host));
  TRY_IN("installed programs", host.files().list("/usr/bin"));
  BuildTools tools;
  tools.facts["kernels"] = nlohmann::json::array();
  for (const BuildTarget& kernel : kernels)
    if (kernel.running || kernel.release == kernels.back().release) survey_kernel(kernel, tools);
  for (const auto& [tool, package] : kTools)
    if ((dkms || tool != kDkmsTool) && !host.has_program(tool)) lack(tools, std::string(tool), std::string(package));
  tools.facts["lacking"] = tools.lacking;
  return tools;
}

namespace {

/// Checks that dpkg has the list of files of `package`.
bool is_installed(const Host& host, std::string_view package) {
  return host.files().exists(fmt::format("/var/lib/dpkg/info/{}.list", package));
}

/// Checks for a kernel of Proxmox, "6.17.2-1-pve". Packages of theirs before Linux 6.2.16-6 begin with "pve-".
bool is_of_proxmox(std::string_view release) { return release.ends_with("-pve"); }

/// "Proxmox VE 9" on Debian 13: each is four behind.
std::string proxmox_on(const std::string& debian) {
  constexpr int kBehind = 4;
  const int version = std::atoi(debian.c_str());
  return version <= kBehind ? "Proxmox VE" : fmt::format("Proxmox VE {}", version - kBehind);
}

}  // namespace

std::string Distribution::text() const {
  constexpr std::pair<std::string_view, std::string_view> kTested[] = {
      {"debian", "12"}, {"debian", "13"}, {"ubuntu", "22.04"}, {"ubuntu", "24.04"}};
  if (id.empty()) return {};
  if (!product.empty()) return product + ", not tested with p2pd";
  const bool tested =
      std::ranges::find(kTested, std::pair<std::string_view, std::string_view>(id, version)) != std::end(kTested);
  return name + (version.empty() ? "" : " " + version) + (tested ? "" : ", not tested with p2pd");
}

Distribution distribution(const Host& host) {
  constexpr std::string_view kGnu = " GNU/Linux";  // Debian's name without it is short, and says the same
  constexpr std::pair<std::string_view, PackageManager> kFamilies[] = {{"debian", PackageManager::apt},
                                                                       {"ubuntu", PackageManager::apt},
                                                                       {"arch", PackageManager::pacman},
                                                                       {"fedora", PackageManager::dnf},
                                                                       {"rhel", PackageManager::dnf}};
  std::string text = host.line("/etc/os-release").value_or("");
  if (text.empty()) text = host.line("/usr/lib/os-release").value_or("");
  Distribution found{assigned_value(text, "ID"), assigned_value(text, "NAME"), assigned_value(text, "VERSION_ID")};
  if (found.name.ends_with(kGnu)) found.name.resize(found.name.size() - kGnu.size());
  if (found.name.empty()) found.name = found.id;
  std::istringstream family(found.id + " " + assigned_value(text, "ID_LIKE"));
  for (std::string word; found.manager == PackageManager::other && family >> word;)
    for (const auto& [name, manager] : kFamilies)
      if (word == name) found.manager = manager;
  if (found.id == "debian" && is_installed(host, "pve-manager")) found.product = proxmox_on(found.version);
  return found;
}

std::string headers_package(const Host& host, const std::string& release) {
  const std::string base = host.line(fmt::format("/lib/modules/{}/pkgbase", release)).value_or("linux");  // of Arch
  switch (distribution(host).manager) {
    case PackageManager::pacman: return base + "-headers";
    case PackageManager::dnf: return "kernel-devel-" + release;
    case PackageManager::apt:
    case PackageManager::other: break;
  }
  if (!is_of_proxmox(release)) return "linux-headers-" + release;
  return (is_installed(host, "pve-kernel-" + release) ? "pve-headers-" : "proxmox-headers-") + release;
}

std::string kernel_package(const Host& host, const std::string& release) {
  if (!is_of_proxmox(release)) return "linux-image-" + release;
  const std::string signed_image = fmt::format("proxmox-kernel-{}-signed", release), old = "pve-kernel-" + release;
  return is_installed(host, old) ? old : is_installed(host, signed_image) ? signed_image : "proxmox-kernel-" + release;
}

}  // namespace p2pd
