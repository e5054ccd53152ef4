// SPDX-License-Identifier: MIT
#include "machine/boot/grub_menu.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace p2pd {
namespace {

/// Splits a path like "1>2" or "a>>b>c" into its first level and the rest.
std::pair<std::string, std::string_view> first_level(std::string_view path) {
  std::string name;
  for (std::size_t at = 0; at < path.size(); ++at) {
    if (path[at] == '>') {
      if (path.substr(at, 2) != ">>") return {name, path.substr(at + 1)};
      ++at;
    }
    name += path[at];
  }
  return {name, {}};
}

Result<const GrubEntry*> pick(const std::vector<GrubEntry>& entries, std::string_view path) {
  const auto [name, rest] = first_level(path);
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  bool counted = true;  // found by its index
  if (error != std::errc() || end != name.data() + name.size()) {
    const auto found = std::find_if(entries.begin(), entries.end(), [&name = name](const GrubEntry& entry) {
      return !name.empty() && (entry.title == name || entry.id == name);
    });
    counted = found == entries.end();
    index = static_cast<std::size_t>(found - entries.begin());
  }
  if (index >= entries.size()) index = 0;
  if (entries.empty()) return fail(ErrorCode::invalid, "it has no boot entry where the default one should be");
  for (std::size_t i = 0; counted && i <= index; ++i)
    if (entries[i].conditional)
      return fail(ErrorCode::invalid,
                  "which entry is the default depends on a condition around \"" + entries[i].title +
                      "\" that only GRUB can tell",
                  "Set GRUB_DEFAULT in /etc/default/grub to the id of the entry, run update-grub, then try again.");
  return entries[index].submenu ? pick(entries[index].children, rest) : Result<const GrubEntry*>(&entries[index]);
}

/// Checks that a path of grub.cfg exists: it is relative to the file system that holds it, which may be /boot, a btrfs
/// subvolume ("/@/boot/vmlinuz") or a ZFS dataset ("/BOOT/debian@/boot/vmlinuz").
bool exists(const Host& host, std::string_view path) {
  if (path.starts_with('(')) path.remove_prefix(std::min(path.find(')'), path.size() - 1) + 1);
  const std::size_t subvolume = path.find("@/");
  return path.starts_with('/') &&
         (host.files().exists(path) || host.files().exists("/boot" + std::string(path)) ||
          (subvolume != std::string_view::npos && host.files().exists(path.substr(subvolume + 1))));
}

}  // namespace

Result<const GrubEntry*> default_grub_entry(const GrubMenu& menu,
                                            const std::map<std::string, std::string>& environment) {
  std::string value = menu.default_entry;
  if (value == "${saved_entry}" || value == "$saved_entry") {
    const auto saved = environment.find("saved_entry");
    value = saved == environment.end() ? "" : saved->second;
  } else if (value.find('$') != std::string::npos) {
    return fail(ErrorCode::invalid, "its default entry is \"" + value + "\", which only GRUB can tell");
  }
  return pick(menu.entries, value);
}

Result<void> check_grub_entry(const Host& host, const GrubEntry& entry) {
  const std::string name = "entry \"" + entry.title + "\"";
  bool linux = false;
  for (const GrubEntry::Load& load : entry.loads) {
    linux = linux || load.kernel;
    const std::size_t count = load.kernel ? 1 : load.words.size();
    if (load.words.empty()) return fail(ErrorCode::invalid, name + ": a load command that names no file");
    for (std::size_t i = 0; i < count; ++i)
      if (!exists(host, load.words[i]))
        return fail(ErrorCode::not_found, name + ": " + load.words[i] + " does not exist",
                    "Run update-grub, and look whether the default kernel is installed.");
  }
  if (!linux) return fail(ErrorCode::invalid, name + " does not load Linux by GRUB's linux command");
  return {};
}

std::vector<KernelArgument> kernel_line(const GrubEntry::Load& load) {
  std::vector<KernelArgument> line;
  for (const std::string& word : load.words) {
    if (word == "--") break;
    line.push_back(kernel_argument(word));
  }
  return line;
}

bool grub_entry_has(const GrubEntry& entry, const std::vector<std::string>& arguments) {
  bool linux = false;
  for (const GrubEntry::Load& load : entry.loads) {
    if (!load.kernel) continue;
    linux = true;
    if (!all_in_force(arguments, kernel_line(load))) return false;
  }
  return linux;
}

}  // namespace p2pd
