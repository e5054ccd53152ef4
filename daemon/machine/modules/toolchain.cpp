// SPDX-License-Identifier: MIT
#include "machine/modules/toolchain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/version.hpp"
#include "machine/boot/kernels.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersion = "/proc/version";
constexpr std::size_t kHeaderLimit = 4U << 20;  // bytes
constexpr std::size_t kConfigLimit = 4U << 20;  // bytes

bool digit(char c) { return c >= '0' && c <= '9'; }

/// First number of the first "1.2" in `text`.
std::optional<int> first_major(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!digit(text[at])) continue;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    int major = 0;
    const bool fits = std::from_chars(text.data() + at, text.data() + end, major).ec == std::errc() && major < 1000;
    if (fits && end + 1 < text.size() && text[end] == '.' && digit(text[end + 1])) return major;
    at = end;
  }
  return std::nullopt;
}

/// Value of the first line of `text` that starts with `key`, without quotes; empty if there is none.
std::string value_of(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.size() > 1 && (line.front() == '"' || line.front() == '\'') && line.back() == line.front())
      line = line.substr(1, line.size() - 2);
    return std::string(line);
  }
  return {};
}

/// Part of /proc/version after the builder's own text: "Linux version RELEASE (user@host) (COMPILER) #1".
std::string_view compiler_part(std::string_view version) {
  const std::size_t at = version.find(") (");
  return at == std::string_view::npos ? std::string_view() : version.substr(at + 3);
}

BuildTarget look_at(const Host& host, const std::string& release, bool running) {
  BuildTarget kernel{release, running, std::nullopt, "/boot/config-" + release, false};
  kernel.has_headers = host.files().exists(kernel.build() + "/Makefile");
  for (const std::string& config : {"/boot/config-" + release, kernel.build() + "/.config"}) {
    const auto text = host.files().read(config, kConfigLimit);
    if (!text) continue;
    kernel.compiler = parse_compiler(value_of(*text, "CONFIG_CC_VERSION_TEXT="));
    kernel.strict.clear();
    for (const char* option : {"CONFIG_OBJTOOL_WERROR", "CONFIG_WERROR"})
      if (value_of(*text, option + std::string("=")) == "y") kernel.strict.emplace_back(option);
    if (kernel.compiler) kernel.compiler_source = config;
    if (kernel.compiler) return kernel;
  }
  if (!running) return kernel;
  kernel.compiler_source = kVersion;
  kernel.compiler = parse_compiler(compiler_part(host.line(kVersion).value_or("")));
  return kernel;
}

/// Checks that a release can be part of a path, and leads nowhere else.
bool is_release(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

}  // namespace

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

Result<std::vector<int>> installed_gcc(const Host& host) {
  std::vector<int> majors;
  for (const std::string& name : TRY(host.files().list("/usr/bin"))) {
    if (!name.starts_with("gcc-")) continue;
    int major = 0;
    const char* const end = name.data() + name.size();
    const auto [next, error] = std::from_chars(name.data() + 4, end, major);
    if (error == std::errc() && next == end && host.has_program("/usr/bin/" + name)) majors.push_back(major);
  }
  std::ranges::sort(majors);
  return majors;
}

std::string Distribution::text() const {
  if (id.empty()) return {};
  std::string out = id + (version.empty() ? "" : " " + version);
  out.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(out.front())));
  return out + (uses_apt && id != "debian" && id != "ubuntu" ? ", not tested with p2pd" : "");
}

Distribution distribution(const Host& host) {
  std::string text = host.line("/etc/os-release").value_or("");
  if (text.empty()) text = host.line("/usr/lib/os-release").value_or("");
  Distribution found{value_of(text, "ID="), value_of(text, "VERSION_ID="), false};
  const std::string family = " " + found.id + " " + value_of(text, "ID_LIKE=") + " ";
  found.uses_apt = family.find(" debian ") != std::string::npos || family.find(" ubuntu ") != std::string::npos;
  return found;
}

}  // namespace p2pd
