// SPDX-License-Identifier: MIT
// The parts of texts that a record and a report may hold: one table of the names whose values stay (redact.cpp). Of
// any other name the name alone stays, so that a reader sees that it was there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "machine/boot/kernel_log.hpp"

namespace p2pd {

/// Word in the place of what is left out.
inline constexpr std::string_view kRemoved = "removed";

/// Text with each line replaced by the result of `change`, or left out; the last line may lack its newline.
std::string by_line(std::string_view text,
                    const std::function<std::optional<std::string>(std::string_view line)>& change);
/// Lines of `text` for which `wanted` is true.
std::string lines_that(std::string_view text, const std::function<bool(std::string_view line)>& wanted);

enum class PublicKind {
  argument,      ///< of the kernel; an option of a module is MODULE.OPTION
  apt_list,      ///< in lower case, of a #clear
  apt_setting,   ///< in lower case
  command_word,  ///< word of a command in modprobe.d or a unit
  disk,          ///< below /dev
  dpkg_field,
  grub_environment,
  grub_variable,  ///< variable of /etc/default/grub that holds kernel arguments
  kernel_config,
  log_field,      ///< NAME= in a line of the kernel's log
  menu_id,        ///< id of an entry of GRUB
  menu_word,      ///< word of the title of an entry
  module_option,  ///< of a module whose options are public arguments
  nccl_variable,
  nvidia_smi_field,
  os_release,
  pin_field,  ///< of apt's preferences
  unit_directive,
};

/// Checks if the value of `name` stays, or the word itself. In arguments '-' is '_'.
bool is_public(PublicKind kind, std::string_view name);

/// Checks for the form of a name: letters, digits and "_-.+,:*?", and not longer than names are.
bool is_plain_name(std::string_view text);

/// Replaces values of kernel arguments that are not public, and what follows "--"; keeps quotes, and variables of a
/// shell. `bare`: an argument without value stays. `module`: the arguments are options of that module.
std::string public_arguments(std::string_view line, bool bare = true, std::string_view module = {});

/// Device of a file system, "/dev/nvme0n1p2" or "UUID=0000-0000": labels and names of volumes are replaced.
std::string public_device(std::string_view device);

/// Keeps a comment that p2pd writes and reads, with its arguments; else returns "#".
std::string public_comment(std::string_view line);

/// Keeps "Linux version RELEASE (user@host) (COMPILER) ..."; any other text is replaced.
std::string public_version(std::string_view text);

/// Keeps a message of the kernel that a check reads, without the names of processes; any other message is replaced.
/// `between`: text between its lines.
std::string public_kernel_message(std::string_view text, std::string_view between = kKernelLogBreak);

/// Removes the values of NAME=VALUE unless a kind of names has NAME, names of processes, serial numbers and ids from
/// prose.
std::string public_prose(std::string text);

/// Zeroes serial numbers, UUIDs, and the builder ("(root@box)") in a text of the driver.
std::string without_identity(std::string_view text);

/// Zeroes UUIDs, MAC addresses, machine ids, and the value after "UUID="; keeps lengths.
std::string without_ids(std::string text);

/// Replaces "(jo@box)", the builder and host of a kernel or a module, by "(user@host)".
std::string without_builder(std::string text);

/// Replaces letters and digits by zeros; keeps "N/A" and a leading "GPU-".
std::string zeroed(std::string_view value);

}  // namespace p2pd
