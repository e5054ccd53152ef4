// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {

/// A boot entry or submenu of grub.cfg.
struct GrubEntry {
  /// A command that loads a kernel (`linux`) or an initrd.
  struct Load {
    bool kernel = false;
    std::vector<std::string> words;  ///< words after the command, without quotes, variables as written
    std::size_t end = 0;             ///< position of its end in `body`
  };
  std::string title;
  std::string id;
  std::string options;  ///< options of the entry, as written, without its id
  std::string body;     ///< text between the braces, as written; empty for a submenu
  bool submenu = false;
  bool conditional = false;  ///< true inside an `if`: GRUB may not show it
  std::vector<Load> loads;
  std::vector<GrubEntry> children;
};

/// Boot menu of a grub.cfg.
struct GrubMenu {
  std::vector<GrubEntry> entries;
  std::string default_entry;  ///< default as written; may be "${saved_entry}"
  bool one_time = false;      ///< the entry that grub-reboot names precedes the default
  bool reads_custom = false;  ///< sources custom.cfg
};

/// Parses grub.cfg; `before` is the menu of an earlier file. ErrorCode::invalid names the line.
Result<GrubMenu> parse_grub(std::string_view text, GrubMenu before = {});

/// Parses the variables of a grubenv file.
std::map<std::string, std::string> parse_grub_environment(std::string_view text);

/// Finds the entry that GRUB boots by default, by GRUB's own rules: a number, title or id, ">" between levels; a name
/// without an entry means the first one. ErrorCode::invalid if that depends on data that only GRUB sees.
Result<const GrubEntry*> default_grub_entry(const GrubMenu& menu,
                                            const std::map<std::string, std::string>& environment);

/// Checks that `entry` can be booted: it loads Linux, and its kernel and initrd exist.
Result<void> check_grub_entry(const Host& host, const GrubEntry& entry);

/// Arguments that a load command passes to the kernel: its words up to a "--", its file among them.
std::vector<KernelArgument> kernel_line(const GrubEntry::Load& load);

/// Checks that `entry` loads Linux, each time with every one of `arguments`.
bool grub_entry_has(const GrubEntry& entry, const std::vector<std::string>& arguments);

}  // namespace p2pd
