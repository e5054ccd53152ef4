// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "record/record_files.hpp"
#include "record/redact.hpp"

namespace p2pd::test {

/// Excerpts that keep values of any name: of files without names, and of lists in quotes, which noise can open.
inline bool keeps_any_value(const RecordText& row) {
  constexpr std::string_view kWhole[] = {"/proc/modules",
                                         "/etc/debian_version",
                                         "/proc/cpuinfo",
                                         "/proc/iomem",
                                         "/proc/driver/nvidia/params",
                                         "/lib/modules/*/modules.dep",
                                         "/etc/apt/apt.conf",
                                         "/sys/dev/block/*/dm/uuid",
                                         "/etc/p2pd/catalogue.d/*.yaml",
                                         "/proc/self/mountinfo",
                                         "/etc/kernel/proxmox-boot-uuids",
                                         "/sys/kernel/boot_params/data"};
  return row.excerpt == nullptr || std::ranges::any_of(row.patterns, [&](std::string_view pattern) {
           return std::ranges::find(kWhole, pattern) != std::end(kWhole);
         });
}

/// Plants a secret as the value of a name that is not public between two texts, in each kind of file that a record
/// takes and in prose. Returns where it survives, or where a second redaction changes something; empty: nowhere.
inline std::string broken_redaction(const std::string& before, const std::string& behind) {
  constexpr std::string_view kSecret = "ZqSecret", kPlanted = "xplanted=ZqSecret";
  const std::string line = before + " " + std::string(kPlanted) + " " + behind,
                    text = before + "\n" + std::string(kPlanted) + "\n" + behind;
  const auto leaks = [&](const std::string& kept) { return kept.find(kSecret) != std::string::npos; };
  const std::string arguments = public_arguments(line), message = public_kernel_message(text);
  if (leaks(arguments) || leaks(public_prose(line))) return "a secret in a line";
  if (public_arguments(arguments) != arguments) return "arguments change again";
  if (public_kernel_message(message) != message) return "a message of the kernel changes again";
  for (const RecordText& row : record_texts()) {
    if (keeps_any_value(row)) continue;
    const std::string kept = row.excerpt(text);
    if (leaks(kept)) return std::string("a secret in ") + row.patterns.front();
    if (row.excerpt(kept) != kept) return std::string(row.patterns.front()) + " changes again";
  }
  return {};
}

}  // namespace p2pd::test
