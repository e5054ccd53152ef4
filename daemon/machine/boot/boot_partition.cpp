// SPDX-License-Identifier: MIT
#include "machine/boot/boot_partition.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <sstream>

namespace p2pd {
namespace {

/// $0 is the device, $1 the file. The mount ends with the namespace, however the command ends. A partition that systemd
/// mounted at /efi cannot be mounted read-only beside that, of which mount warns on standard output.
constexpr std::string_view kMount =
    "set -e; mkdir -p /run/p2pd/boot; mount -t vfat -o {} \"$0\" /run/p2pd/boot >/dev/null 2>&1 || "
    "mount -t vfat \"$0\" /run/p2pd/boot >&2; cd /run/p2pd/boot; {}";

bool has_entries(const Host& host, const std::string& place) {
  return host.files().exists(place + "/loader") || host.files().exists(place + "/EFI/Linux");
}

}  // namespace

std::string BootPartition::path(std::string_view file) const {
  return fmt::format("{}{}/{}", place_, unmounted_ ? ":" : "", file);
}

Result<std::string> BootPartition::run(const Host& host, std::string_view options, std::string_view script,
                                       std::string_view file, std::string input) const {
  if (::geteuid() != 0) return fail(ErrorCode::denied, path(file) + " is mounted by root alone");
  Command command;
  command.argv = {
      "unshare", "--mount",        "--propagation", "private", "sh", "-c", fmt::format(kMount, options, script),
      place_,    std::string(file)};
  command.input = std::move(input);
  const CommandResult result = TRY(host.run_readonly(command));
  if (result.status == 0) return result.output;
  const std::string why = result.errors.substr(0, result.errors.find('\n'));
  return fail(ErrorCode::io, fmt::format("{}: {}", path(file), why.empty() ? "cannot be mounted" : why),
              "Run \"proxmox-boot-tool status\" and correct what it complains of.");
}

Result<std::vector<std::string>> BootPartition::list(const Host& host, std::string_view directory) const {
  if (!unmounted_) {
    auto names = host.files().list(path(directory));
    if (!names && names.error().code == ErrorCode::not_found) return std::vector<std::string>();
    return names;
  }
  std::istringstream lines(TRY(run(host, "ro", "[ ! -d \"$1\" ] || ls -1A \"$1\"", directory)));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) names.push_back(std::move(name));
  std::ranges::sort(names);
  return names;
}

Result<std::string> BootPartition::read(const Host& host, std::string_view file) const {
  return unmounted_ ? run(host, "ro", "cat \"$1\"", file) : host.files().read(path(file));
}

Result<bool> BootPartition::has(const Host& host, std::string_view file) const {
  if (!unmounted_) return host.files().exists(path(file));
  return !TRY(run(host, "ro", "[ ! -e \"$1\" ] || echo it", file)).empty();
}

Result<void> BootPartition::write(Host& host, std::string_view file, std::string content) const {
  if (!unmounted_) return host.write(path(file), std::move(content), 0644, Restore::by_action);
  constexpr std::string_view kReplace =
      "mkdir -p \"${1%/*}\"; cat > \"$1.new\" || { rm \"$1.new\"; exit 1; }; sync \"$1.new\"; mv \"$1.new\" \"$1\"; "
      "sync -f .";
  TRY(host.will_change(kProxmoxPartitions, Restore::by_action));
  TRY(run(host, "rw", kReplace, file, std::move(content)));
  return {};
}

Result<void> BootPartition::copy(Host& host, std::string_view from, std::string_view to) const {
  const Command compares{{"cmp", "--silent", path(from), path(to)}, {}, {}, std::chrono::minutes(5)};
  if (TRY(has(host, to)) && TRY(host.run_readonly(compares)).status == 0) return {};
  TRY(host.will_change(path(to), Restore::by_action));
  const std::string beside = path(to) + ".new";
  const auto done = host.run({{"cp", path(from), beside}, {}, {}, std::chrono::minutes(5)});
  if (!done) {
    TRY(host.remove_tree(beside));
    return fail(done.error().code, done.error().message,
                fmt::format("Make room at {} for one more image, then try again.", place_));
  }
  return host.move(beside, path(to));
}

Result<void> BootPartition::remove(Host& host, std::string_view file) const {
  if (!unmounted_) {
    TRY(host.remove_tree(path(file) + ".new"));
    return host.remove_tree(path(file));
  }
  TRY(run(host, "rw", "rm -rf \"$1\" \"$1.new\"; sync -f .", file));
  return {};
}

bool uses_proxmox_boot_tool(const Host& host) {
  return host.line(kProxmoxPartitions).value_or("").find_first_not_of(" \t\r\n") != std::string::npos;
}

Result<std::vector<BootPartition>> boot_partitions(const Host& host) {
  std::vector<BootPartition> found;
  if (uses_proxmox_boot_tool(host)) {
    static const std::regex kUuid("[0-9a-fA-F]{4}-[0-9a-fA-F]{4}");  // the tool skips other lines, too
    std::istringstream lines(TRY(host.files().read(kProxmoxPartitions)));
    for (std::string uuid; lines >> uuid;)
      if (const std::string device = "/dev/disk/by-uuid/" + uuid;
          std::regex_match(uuid, kUuid) && host.files().exists(device))
        found.emplace_back(device, true);
    if (!found.empty()) return found;
    return fail(ErrorCode::not_found, fmt::format("no partition that {} lists is there", kProxmoxPartitions),
                "Run \"proxmox-boot-tool status\" and correct what it complains of.");
  }
  for (const std::string place : {"/efi", "/boot", "/boot/efi"}) {
    const auto names = host.files().list(place);
    if (!names && names.error().code == ErrorCode::denied) return Failure(names.error());
    if (names && has_entries(host, place)) found.emplace_back(place, false);
  }
  if (found.empty())
    return fail(ErrorCode::not_found, "no partition with boot entries is mounted at /efi, /boot or /boot/efi",
                "Mount the EFI system partition where /etc/fstab has it, then try again.");
  return found;
}

}  // namespace p2pd
