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
    std::vector<std::string> words;  ///< what follows the command, quotes off, variables as written
    std::size_t end = 0;             ///< its end in `body`
  };
  std::string title;
  std::string id;
  std::string options;       ///< of the entry, as written, without its id
  std::string body;          ///< between the braces, as written; empty for a submenu
  bool submenu = false;
  bool conditional = false;  ///< inside an `if`: GRUB may not show it
  std::vector<Load> loads;
  std::vector<GrubEntry> children;
};

/// What a grub.cfg offers to boot.
struct GrubMenu {
  std::vector<GrubEntry> entries;
  std::string default_entry;   ///< as written; may be "${saved_entry}"
  bool one_time = false;       ///< the entry that grub-reboot names goes before the default
  bool reads_custom = false;   ///< sources custom.cfg
};

/// Reads grub.cfg; `before` is the menu that an earlier file left. ErrorCode::invalid names the line.
Result<GrubMenu> parse_grub(std::string_view text, GrubMenu before = {});

/// The variables of a grubenv file.
std::map<std::string, std::string> parse_grub_environment(std::string_view text);

/// The entry that GRUB boots by default, found by GRUB's own rules: a number, title or id, ">" between levels; what
/// names no entry is the first one. ErrorCode::invalid where that depends on what only GRUB sees.
Result<const GrubEntry*> default_grub_entry(const GrubMenu& menu,
                                            const std::map<std::string, std::string>& environment);

/// What is wrong with booting `entry`: no Linux, or a kernel or initrd that does not exist; fine otherwise.
Result<void> check_grub_entry(const Host& host, const GrubEntry& entry);

/// What a load command gives to the kernel: its words up to a "--", its file among them.
std::vector<KernelArgument> kernel_line(const GrubEntry::Load& load);

/// True when `entry` loads Linux, each time with every one of `arguments`.
bool grub_entry_has(const GrubEntry& entry, const std::vector<std::string>& arguments);

}  // namespace p2pd
