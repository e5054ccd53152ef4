// SPDX-License-Identifier: MIT
#include "record/record_excerpt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "machine/boot/mounts.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/packages/apt_conf.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

/// Keeps the lines for which `change` returns a value; the last line may lack its newline.
template <class Change>
std::string by_line(std::string_view text, Change change) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const bool ended = line.size() < text.size();
    text.remove_prefix(line.size() + (ended ? 1 : 0));
    if (const std::optional<std::string> kept = change(line)) out += *kept + (ended ? "\n" : "");
  }
  return out;
}

/// Keeps the lines that begin with one of `words`.
template <std::size_t N>
std::string lines_of(std::string_view text, const std::string_view (&words)[N]) {
  return by_line(text, [&](std::string_view line) {
    const bool wanted = std::ranges::any_of(words, [&](std::string_view word) { return line.starts_with(word); });
    return wanted ? std::optional(std::string(line)) : std::nullopt;
  });
}

std::string_view without_indent(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
}

/// Removes from a line of grub.cfg the users who may edit its entries, and ids of FAT, which are no UUIDs.
std::string grub_line(std::string_view line) {
  const std::string_view words = without_indent(line);
  const std::string indent(line.substr(0, line.size() - words.size()));
  if (words.starts_with("password")) return indent + "password removed removed";
  if (words.starts_with("set superusers")) return indent + "set superusers=\"removed\"";
  if (!words.starts_with("search ") || words.find("--fs-uuid") == std::string_view::npos) return std::string(line);
  const std::size_t last = line.find_last_of(" \t") + 1;
  return std::string(line.substr(0, last)) + zeroed(line.substr(last));
}

/// Source of a mount, without the host of a network mount.
std::string source_of(const Mount& mount) {
  const bool remote = mount.source.find(":/") != std::string::npos || mount.source.starts_with("//");
  std::string source = remote ? "host:/" : mount.source;
  for (std::size_t at = source.find(' '); at != std::string::npos; at = source.find(' ', at))
    source.replace(at, 1, "\\040");
  return source;
}

}  // namespace

std::string plain_excerpt(const std::string& text, const std::string&) { return without_ids(text); }

std::string arguments_excerpt(const std::string& text, const std::string& host_name) {
  return without_host_name(without_ids(without_private_arguments(text)), host_name);
}

std::string nvidia_excerpt(const std::string& text, const std::string&) { return without_ids(without_identity(text)); }

std::string version_excerpt(const std::string& text, const std::string& host_name) {
  return without_host_name(without_builder(text), host_name);
}

std::string zeros_excerpt(const std::string& text, const std::string&) { return zeroed(text); }

std::string first_line_excerpt(const std::string& text, const std::string&) {
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

std::string grub_menu_excerpt(const std::string& text, const std::string& host_name) {
  return arguments_excerpt(by_line(text, [](std::string_view line) { return std::optional(grub_line(line)); }),
                           host_name);
}

std::string cpuinfo_excerpt(const std::string& text, const std::string&) {
  const std::size_t end = text.find("\n\n");
  return end == std::string::npos ? text : text.substr(0, end + 2);
}

std::string iomem_excerpt(const std::string& text, const std::string&) {
  std::size_t bus = std::string::npos;  // indent of the range of a root bus
  return by_line(text, [&](std::string_view line) {
    const std::size_t indent = line.size() - without_indent(line).size();
    if (indent <= bus && bus != std::string::npos) bus = std::string::npos;
    if (bus == std::string::npos && line.find(" : PCI Bus ") != std::string_view::npos) bus = indent;
    return bus == std::string::npos ? std::nullopt : std::optional(std::string(line));
  });
}

std::string modules_dep_excerpt(const std::string& text, const std::string&) {
  return by_line(text, [](std::string_view line) {
    const bool ours = line.substr(0, line.find(':')).find("nvidia") != std::string_view::npos;
    return ours ? std::optional(std::string(line)) : std::nullopt;
  });
}

std::string mounts_excerpt(const std::string& text, const std::string& host_name) {
  constexpr std::string_view kPoints[] = {"/", "/boot", "/boot/efi", "/boot/grub", "/efi", "/usr", "/var"};
  int number = 0;
  const std::string kept = by_line(text, [&](std::string_view line) -> std::optional<std::string> {
    const auto mounts = parse_mounts(line);
    if (!mounts || mounts->empty()) return std::nullopt;
    const Mount& mount = mounts->front();
    if (std::ranges::find(kPoints, mount.point) == std::end(kPoints)) return std::nullopt;
    const std::string_view mode = mount.read_only ? "ro" : "rw";
    ++number;
    return fmt::format("{} {} {} / {} {} - {} {} {}", 24 + number, number == 1 ? 1 : 25, mount.device, mount.point,
                       mode, mount.type, source_of(mount), mode);
  });
  return without_host_name(without_ids(kept), host_name);
}

std::string dm_excerpt(const std::string& text, const std::string&) {
  return text.substr(0, text.find('-') + 1) + "\n";
}

std::string apt_excerpt(const std::string& text, const std::string&) {
  std::string out;
  for (const AptOption& option : parse_apt_conf(text, "")) {
    const bool clear = option.name == "#clear";
    const std::string& name = clear ? option.value : option.name;
    const bool private_one = name.find("mail") != std::string::npos || name.find("sender") != std::string::npos;
    if (!name.starts_with("apt::periodic") && !name.starts_with("unattended-upgrade")) continue;
    if (private_one) continue;
    out += clear ? fmt::format("#clear {};\n", name) : fmt::format("{} \"{}\";\n", name, option.value);
  }
  return out;
}

std::string dpkg_excerpt(const std::string& text, const std::string&) {
  constexpr std::string_view kFields[] = {"Package:", "Status:", "Architecture:", "Version:"};
  if (!parse_dpkg_status(text)) return text;  // keeps a broken file whole: its mistake and line are the fact
  return by_line(text, [&](std::string_view line) {
    const bool wanted = line.empty() || std::ranges::any_of(kFields, [&](auto word) { return line.starts_with(word); });
    return wanted ? std::optional(std::string(line)) : std::nullopt;
  });
}

std::string snapd_excerpt(const std::string& text, const std::string&) {
  const std::size_t at = text.find("\"seeded\"");
  if (at == std::string::npos) return "{}\n";
  return "{" + text.substr(at, std::min(text.find_first_of(",}\n", at), at + 32) - at) + "}\n";
}

std::string build_log_excerpt(const std::string& text, const std::string& host) {
  const auto failure = build_failure(text);
  const std::string head = text.substr(0, text.find(": ") + 2);  // version of p2pd that built it
  return failure && *failure ? head + "\n" + without_host_name((*failure)->line + "\n", host) : "";
}

std::string config_excerpt(const std::string& text, const std::string&) {
  constexpr std::string_view kOptions[] = {"CONFIG_CC_", "CONFIG_CLANG_", "CONFIG_DEBUG_INFO_BTF", "CONFIG_GCC_",
                                           "CONFIG_MOD"};
  return lines_of(text, kOptions);
}

}  // namespace p2pd
