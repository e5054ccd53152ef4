// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "record/record_excerpt.hpp"
#include "record/record_files.hpp"
#include "record/redact.hpp"

namespace p2pd::test {

/// Excerpts that keep values of any name: of files without names, and of lists in quotes, which noise can open.
inline bool keeps_any_value(const RecordText& row) {
  constexpr decltype(row.excerpt) kWhole[] = {
      nullptr,        plain_excerpt,       first_line_excerpt, cpuinfo_excerpt, iomem_excerpt,
      nvidia_excerpt, modules_dep_excerpt, apt_excerpt,        dm_excerpt,      catalogue_excerpt,
      mounts_excerpt, zeros_excerpt,       framebuffer_excerpt};
  return std::ranges::find(kWhole, row.excerpt) != std::end(kWhole);
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
  const auto rows = record_texts();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RecordText& row = rows[i];
    const bool seen =
        std::ranges::any_of(rows.first(i), [&](const RecordText& one) { return one.excerpt == row.excerpt; });
    if (seen || keeps_any_value(row)) continue;
    const std::string kept = row.excerpt(text);
    if (leaks(kept)) return "a secret in " + std::string(row.pattern);
    if (row.excerpt(kept) != kept) return std::string(row.pattern) + " changes again";
  }
  return {};
}

}  // namespace p2pd::test
