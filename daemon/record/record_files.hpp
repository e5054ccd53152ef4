// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/root.hpp"

namespace p2pd {

/// Files whose text is part of a record; `*` matches any name in one directory.
struct RecordText {
  std::string_view pattern;
  std::string (*excerpt)(const std::string& text);  ///< part of the text that is kept; null: every byte
};
std::span<const RecordText> record_texts();

/// Paths whose existence alone is part of a record: files, directories, and links with their targets.
std::span<const std::string_view> record_names();
std::span<const std::string_view> record_directories();
std::span<const std::string_view> record_links();
/// Libraries by the name that programs load; the version is in the name of the file that it links to.
std::span<const std::string_view> record_libraries();
/// Files of the NVIDIA modules, in the places where drivers are installed.
std::span<const std::string_view> record_modules();
/// Programs that a check or a fix looks for, in the directories of PATH.
std::vector<std::string> record_programs(const RootReader& root);

/// Lists paths of `root` that match `pattern`; without `*`, the pattern itself, whether it exists or not.
std::vector<std::string> record_paths(const RootReader& root, std::string_view pattern);

}  // namespace p2pd
