// SPDX-License-Identifier: MIT
#include "machine/boot/mounts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace p2pd {
namespace {

/// Parts of `text` between separators, without empty ones.
std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> found;
  std::istringstream rest(text);
  for (std::string part; std::getline(rest, part, separator);)
    if (!part.empty()) found.push_back(std::move(part));
  return found;
}

/// Decodes "\040" and the like: space, tab, newline and backslash in three octal digits.
std::string unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if (rest.size() >= 4 && rest[0] == '\\' && octal(rest[1]) && octal(rest[2]) && octal(rest[3])) {
      out += static_cast<char>(((rest[1] - '0') * 64 + (rest[2] - '0') * 8 + (rest[3] - '0')) & 0xff);
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

/// Checks for file systems, and block devices, in memory.
bool is_memory(const Mount& mount) {
  constexpr std::string_view kTypes[] = {"tmpfs", "ramfs", "rootfs", "devtmpfs"};
  return std::ranges::find(kTypes, mount.type) != std::end(kTypes) || mount.source.starts_with("/dev/ram") ||
         mount.source.starts_with("/dev/zram");
}

/// Layer of `node`, a block device's directory in sysfs; no real stack of devices exceeds the depth limit.
std::string layer_of(const Host& host, const std::string& node, int depth) {
  constexpr int kMostSlaves = 8;
  constexpr std::size_t kWidest = 64;  // limit of devices below one: no real device has more
  const std::string uuid = host.line(node + "/dm/uuid").value_or("");
  if (uuid.starts_with("LVM-")) return "LVM";
  if (uuid.starts_with("DMRAID-")) return "RAID";
  if (host.files().exists(node + "/md") || host.files().exists(node + "/../md")) return "RAID";
  if (depth == kMostSlaves) return "";
  auto below = host.names(node + "/slaves");
  if (below.size() > kWidest) below.resize(kWidest);
  for (const std::string& name : below) {
    std::string layer = layer_of(host, "/sys/class/block/" + name, depth + 1);
    if (!layer.empty()) return layer;
    if (depth > 0) break;  // follows one chain further down: the work stays bounded if links loop
  }
  return "";
}

}  // namespace

Result<std::vector<Mount>> parse_mounts(std::string_view text) {
  constexpr std::string_view kUpper = "upperdir=";
  std::vector<Mount> mounts;
  std::istringstream lines{std::string(text)};
  int number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    const std::vector<std::string> words = parts(line, ' ');
    if (words.empty()) continue;
    // fields: six, optional ones, "-", then type, source and the options of the file system
    const auto dash = std::find(words.begin() + std::min<std::ptrdiff_t>(6, std::ssize(words)), words.end(), "-");
    if (words.end() - dash < 3) return fail(ErrorCode::invalid, fmt::format("line {} is not a mount", number));
    const std::vector<std::string> options = parts(words.end() - dash > 3 ? dash[3] : "", ',');
    Mount mount{unescaped(words[4]), words[2], dash[1], unescaped(dash[2]), false, {}};
    mount.read_only = std::ranges::count(parts(words[5], ','), "ro") + std::ranges::count(options, "ro") > 0;
    for (const std::string& option : options)
      if (mount.type == "overlay" && option.starts_with(kUpper)) mount.upper = unescaped(option.substr(kUpper.size()));
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

const Mount* mount_above(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* found = nullptr;
  for (const Mount& mount : mounts) {
    const std::string_view point = mount.point == "/" ? std::string_view() : std::string_view(mount.point);
    const bool above = path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
    if (above && (found == nullptr || mount.point.size() >= found->point.size())) found = &mount;
  }
  return found;
}

std::string why_volatile(const std::vector<Mount>& mounts, std::string_view path, std::string_view arguments) {
  constexpr std::string_view kLive[] = {
      "boot=live", "boot=casper", "root=live:", "rd.live.image", "overlayroot=tmpfs", "systemd.volatile="};
  const Mount* mount = mount_above(mounts, path);
  if (mount == nullptr) return "";
  if (is_memory(*mount)) return "it lies on " + mount->type;
  if (mount->type != "overlay") return "";
  const Mount* upper = mount->upper.empty() ? nullptr : mount_above(mounts, mount->upper);
  if (upper != nullptr && upper != mount)
    return is_memory(*upper) ? "it lies on an overlay whose changes go to " + upper->type : "";
  const bool live = std::ranges::any_of(kLive, [&](std::string_view word) {
    return fmt::format(" {}", arguments).find(fmt::format(" {}", word)) != std::string::npos;
  });
  return live ? "this is a live system: it lies on an overlay whose changes are not kept" : "";
}

std::string layer_below(const Host& host, const std::string& device) {
  const bool plain = device.find_first_not_of("0123456789:") == std::string::npos;
  return plain ? layer_of(host, "/sys/dev/block/" + device, 0) : "";
}

}  // namespace p2pd
