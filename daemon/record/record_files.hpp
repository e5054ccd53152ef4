// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/root.hpp"

namespace p2pd {

/// Files whose text is part of a record: patterns in which `*` matches any name in one directory.
struct RecordText {
  /// Part of the text that is kept, by the table of redact.cpp: a text of the same format, in which a line has the same
  /// number if a check tells it. Null: every byte is kept.
  std::string (*excerpt)(const std::string& text);
  std::vector<const char*> patterns;
};
const std::vector<RecordText>& record_texts();

/// Paths whose existence alone is part of a record.
enum class RecordPart {
  names,  ///< files
  directories,
  links,      ///< with their targets
  libraries,  ///< by the name that programs load; the version is in the name of the file that it links to
  modules,    ///< of NVIDIA, in the places where drivers are installed
};
/// Lists those of `root`; a pattern without `*` is listed whether it exists or not.
std::vector<std::string> record_paths(const RootReader& root, RecordPart part);
/// Programs that a check or a fix looks for, in the directories of PATH.
std::vector<std::string> record_programs(const RootReader& root);
/// Lists paths of `root` that match `pattern`, likewise.
std::vector<std::string> record_paths(const RootReader& root, std::string_view pattern);

std::string config_excerpt(const std::string& text);       ///< compiler and module options of a kernel
std::string framebuffer_excerpt(const std::string& text);  ///< of boot_params: kind and place of the framebuffer
std::string nvidia_smi_excerpt(const std::string& text);   ///< output of nvidia-smi -q
std::string unit_excerpt(const std::string& text);         ///< its command

}  // namespace p2pd
